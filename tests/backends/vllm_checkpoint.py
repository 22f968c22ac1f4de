"""The bundled judge as a folder that vLLM can serve: its checkpoint with tokenizer, template and token numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))

import bundled_checkpoint

BUNDLED = Path(__file__).resolve().parents[2] / "vrt_lite" / "bundled" / "vrt-tiny-0"
_NUMBERED = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


def make(folder: Path) -> Path:
    """Write the folder."""
    projector = next(BUNDLED.glob("mmproj*.gguf"))
    words = next(path for path in BUNDLED.glob("*.gguf") if path != projector)
    bundled_checkpoint.make(folder, (words, projector))
    fields = gguf.GGUFReader(words).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    numbers = {name: tokens.index(word) for name, word in _NUMBERED.items()}
    _add(folder / "config.json", numbers | {"bos_token_id": None, "eos_token_id": tokens.index("<|im_end|>")})
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= {"model_type": "qwen2_5_vl_text", "eos_token_id": tokens.index("<|im_end|>")}
    config["text_config"]["rope_parameters"] |= {"type": "mrope"}
    config["vision_config"] |= {"model_type": "qwen2_5_vl_vision"}
    (folder / "config.json").write_text(json.dumps(config))
    # A range unlike the requests': were theirs not followed, every frame would be resized to 45 cells.
    size = {"min_pixels": 45 * 784, "max_pixels": 45 * 784, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    names = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"}
    _add(folder / "preprocessor_config.json", size | names)
    _add(folder / "tokenizer_config.json", {"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|im_end|>"})
    (folder / "chat_template.jinja").write_text(fields["tokenizer.chat_template"].contents())
    return folder


def _add(file: Path, values: dict[str, Any]) -> None:
    found = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(found | values))
