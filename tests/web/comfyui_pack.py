"""The pack of nodes for ComfyUI, loaded as ComfyUI's loader does, beside a stand-in of ComfyUI's own modules.

These have the few names that the pack imports, as ComfyUI 0.3.64 has them. test_comfyui.py also runs ComfyUI itself.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

PACK = Path(__file__).parents[2] / "integrations" / "comfyui"


class Interrupts(ModuleType):
    """The button sets a flag, which the next look at it clears and raises."""

    class InterruptProcessingException(Exception):  # noqa: N818 - ComfyUI's name
        pass

    wanted = False

    def interrupt_current_processing(self, value: bool = True) -> None:
        self.wanted = value

    def throw_exception_if_processing_interrupted(self) -> None:
        wanted, self.wanted = self.wanted, False
        if wanted:
            raise self.InterruptProcessingException


class Progress(ModuleType):
    """A bar tells a hook that the page sets."""

    PROGRESS_BAR_HOOK: Callable[[int, int], None] | None = None

    def ProgressBar(self, total: int) -> Any:  # noqa: N802 - ComfyUI's name
        return SimpleNamespace(update_absolute=functools.partial(self.tell, total))

    def tell(self, first: int, value: int, total: int | None = None) -> None:
        if self.PROGRESS_BAR_HOOK:
            self.PROGRESS_BAR_HOOK(min(value, total or first), total or first)


@dataclass
class VideoFromFile:
    """A VIDEO that is a file."""

    file: str

    def get_stream_source(self) -> str:
        return self.file


@dataclass
class Pack:
    """The pack as ComfyUI has it: its nodes by name, and the parts of ComfyUI that it talks to."""

    nodes: dict[str, type]
    parts: dict[str, ModuleType]
    interrupts: Interrupts
    progress: Progress

    def file(self, path: str | Path) -> Any:
        return VideoFromFile(str(path))

    def run(self, name: str, **inputs: Any) -> tuple[Any, ...]:
        """Run a node as ComfyUI does: what it requires, by name, each in a list if it asks for lists."""
        node = self.nodes[name]
        required = node.INPUT_TYPES()["required"]
        values = {key: spec[1]["default"] for key, spec in required.items() if len(spec) > 1 and "default" in spec[1]}
        values |= inputs
        if getattr(node, "INPUT_IS_LIST", False):
            values = {key: value if isinstance(value, list) else [value] for key, value in values.items()}
        return getattr(node(), node.FUNCTION)(**values)


@contextlib.contextmanager
def load_pack() -> Iterator[Pack]:
    """Load the folder under its path with another spelling of dots."""
    interrupts, progress = Interrupts("comfy.model_management"), Progress("comfy.utils")
    torch, latest = ModuleType("torch"), ModuleType("comfy_api.latest")
    torch.from_numpy = lambda array: array  # an IMAGE is a tensor; here the array that it would be made from
    latest.InputImpl = SimpleNamespace(VideoFromFile=VideoFromFile)
    stand_ins = {module.__name__: module for module in (interrupts, progress, torch, latest)}
    stand_ins |= {name: ModuleType(name) for name in ("comfy", "comfy_api")}
    before = {name: sys.modules.pop(name) for name in stand_ins if name in sys.modules}
    sys.modules.update(stand_ins)
    name = str(PACK).replace(".", "_x_")
    try:
        spec = importlib.util.spec_from_file_location(name, PACK / "__init__.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        parts = {part: sys.modules[f"{name}.{part}"] for part in ("nodes", "server", "clips")}
        yield Pack(module.NODE_CLASS_MAPPINGS, parts, interrupts, progress)
        assert module.NODE_CLASS_MAPPINGS.keys() == module.NODE_DISPLAY_NAME_MAPPINGS.keys()
    finally:
        for loaded in [m for m in sys.modules if m.startswith(name) or m in stand_ins]:
            del sys.modules[loaded]
        sys.modules.update(before)
