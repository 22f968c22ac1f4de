"""Runs a workflow in ComfyUI's own code, in its checkout: PACK FOLDER WHEN PID. Prints what happened as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

pack, folder, when, server_pid = sys.argv[1:]
sys.argv = ["main.py", "--cpu", "--output-directory", folder]
sys.path.insert(0, os.getcwd())  # noqa: PTH109

import torch  # noqa: E402

# A torchvision that was built for another torch lacks operators that its own import describes.
library = torch.library.Library("torchvision", "FRAGMENT")
for operator in ("nms", "qnms"):
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import comfy.model_management  # noqa: E402
import comfy.utils  # noqa: E402
import execution  # noqa: E402
import folder_paths  # noqa: E402
import nodes  # noqa: E402
from comfy_config import config_parser  # noqa: E402

progress: list[tuple[int, int]] = []


class Page:
    """What the executor tells a browser."""

    client_id = None
    last_node_id = None
    last_prompt_id = None
    sockets_metadata: dict[str, Any] = {}  # noqa: RUF012

    def send_sync(self, event: str, data: Any, sid: str | None = None) -> None:
        pass


def hook(value: int, total: int, preview: Any = None, node_id: str | None = None) -> None:
    progress.append((value, total))
    if when == "interrupt" and value:
        comfy.model_management.interrupt_current_processing()
    if when == "kill" and value:
        os.kill(int(server_pid), signal.SIGKILL)


async def main() -> None:
    folder_paths.set_output_directory(folder)
    before = set(nodes.NODE_CLASS_MAPPINGS)
    assert await nodes.load_custom_node(pack)
    loaded = sorted(set(nodes.NODE_CLASS_MAPPINGS) - before)
    for extra in ("nodes_video", "nodes_preview_any"):
        assert await nodes.load_custom_node(f"comfy_extras/{extra}.py", module_parent="comfy_extras")
    comfy.utils.set_progress_bar_global_hook(hook)
    workflow = json.loads(Path(folder, "workflow.json").read_text("utf-8"))
    valid, error, outputs, node_errors = await execution.validate_prompt("prompt", workflow, None)
    executor = execution.PromptExecutor(Page())
    executor.add_message = lambda event, data, broadcast: messages.append((event, data))
    messages: list[tuple[str, Any]] = []
    if valid:
        await executor.execute_async(workflow, "prompt", {}, outputs)
    shown = executor.history_result.get("outputs", {}) if hasattr(executor, "history_result") else {}
    failed = [data for event, data in messages if event == "execution_error"]
    told = {
        "loaded": loaded,
        "display": config_parser.extract_node_configuration(pack).tool_comfy.display_name,
        "menu": nodes.NODE_CLASS_MAPPINGS["VrtLiteRank"].INPUT_TYPES()["required"]["judge"][0],
        "valid": valid,
        "errors": str((error, node_errors)),
        "messages": [event for event, _ in messages],
        "error": failed[0]["exception_message"] if failed else "",
        "progress": progress,
        "saved": sorted(path.name for path in Path(folder, "video").glob("best*")),
        "shown": shown.get("5", {}).get("text", [""])[0],
    }
    print()
    print(json.dumps(told))


asyncio.run(main())
