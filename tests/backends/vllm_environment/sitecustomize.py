"""Lets torchvision be imported beside a torch without CUDA: the package index has a torchvision for CUDA alone.

Its compiled operators cannot be loaded there; nothing that is tested uses them, but importing it names two of them.
"""

import importlib.util
from pathlib import Path

_found = importlib.util.find_spec("torchvision")
if _found and _found.origin:
    import torch

    try:
        for _file in Path(_found.origin).parent.glob("_C*.so"):
            torch.ops.load_library(str(_file))
    except OSError:
        _library = torch.library.Library("torchvision", "DEF")
        for _name in ("nms", "qnms"):
            _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
