"""The pack of nodes for ComfyUI, loaded as ComfyUI's loader does, beside a stand-in of ComfyUI's own modules."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

PACK = Path(__file__).parents[2] / "integrations" / "comfyui"
INTERFACE = Path(__file__).parent / "comfyui_interface"
STOOD_IN = ("comfy", "comfy_api", "torch")


@dataclass
class Pack:
    """The pack as ComfyUI has it: its nodes by name, and the parts of ComfyUI that it talks to."""

    nodes: dict[str, type]
    parts: dict[str, ModuleType]
    interrupts: ModuleType
    progress: ModuleType
    videos: ModuleType

    def file(self, path: str | Path) -> Any:
        """A VIDEO of a file."""
        return self.videos.VideoFromFile(str(path))

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
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] in STOOD_IN}
    for name in before:
        del sys.modules[name]
    sys.path.insert(0, str(INTERFACE))
    name = str(PACK).replace(".", "_x_")
    try:
        spec = importlib.util.spec_from_file_location(name, PACK / "__init__.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        parts = {part: sys.modules[f"{name}.{part}"] for part in ("nodes", "server", "clips")}
        found = (
            importlib.import_module(part) for part in ("comfy.model_management", "comfy.utils", "comfy_api.latest")
        )
        yield Pack(module.NODE_CLASS_MAPPINGS, parts, *found)
        assert module.NODE_CLASS_MAPPINGS.keys() == module.NODE_DISPLAY_NAME_MAPPINGS.keys()
    finally:
        sys.path.remove(str(INTERFACE))
        for loaded in [m for m in sys.modules if m.startswith(name) or m.split(".")[0] in STOOD_IN]:
            del sys.modules[loaded]
        sys.modules.update(before)
