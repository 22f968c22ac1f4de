"""Makes heads.json from the reference (extra `parity`: torch, transformers): raw scores of the clips in head_cases.py.

    OMP_NUM_THREADS=1 python tests/golden/make_heads.py [FOLDER]

The class is VideoAlign's: transformers' Qwen2-VL with `rm_head` over the last state, read at three tokens, clips in one
padded batch. Its forward passes no positions to the language model. Under transformers 4.45 that means 0, 1, 2, … on
all three axes; 5.x would count patches, so they are given here. LoRA is not merged, as in the checkpoint.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

import head_cases  # noqa: E402
import synthetic_families as families  # noqa: E402

from convert.reference_frames import ReferenceFrames, ShownFrames  # noqa: E402
from vrt_lite.protocol.messages import FrameRef, Message, Text, Video  # noqa: E402


class RewardModel(transformers.Qwen2VLForConditionalGeneration):
    """Qwen2VLRewardModelBT."""

    def __init__(self, config: Any, heads: int) -> None:
        super().__init__(config)
        self.rm_head = torch.nn.Linear(config.get_text_config().hidden_size, heads, bias=False)

    def score(self, inputs: dict[str, Any], rewards: Sequence[int]) -> Any:
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        embeddings = self.get_input_embeddings()(ids)
        for pad, pixels, grid in (
            ("image_token_id", "pixel_values", "image_grid_thw"),
            ("video_token_id", "pixel_values_videos", "video_grid_thw"),
        ):
            if pixels in inputs:
                shown = self.model.visual(inputs[pixels], grid_thw=inputs[grid])
                shown = getattr(shown, "pooler_output", shown)
                embeddings[ids == getattr(self.config, pad)] = shown
        positions = torch.arange(ids.shape[1]).expand(3, *ids.shape)
        states = self.model.language_model(
            inputs_embeds=embeddings, attention_mask=mask, position_ids=positions, use_cache=False
        )[0]
        logits = self.rm_head(states)
        special = torch.isin(ids, torch.tensor(rewards))
        pooled = logits[special].view(len(ids), 3, -1)
        return pooled.diagonal(dim1=1, dim2=2) if pooled.shape[-1] == 3 else pooled[..., 0]


class Reference:
    """The checkpoint folder of head_cases.py, loaded as VideoAlign does it."""

    def __init__(self, folder: Path, *, heads: int = 1) -> None:
        values = json.loads((folder / "config.json").read_text("utf-8"))
        values["vocab_size"] = families.ROWS
        for key, token in (
            *(("image_token_id", "<|image_pad|>"), ("video_token_id", "<|video_pad|>")),
            *(("vision_start_token_id", "<|vision_start|>"), ("vision_end_token_id", "<|vision_end|>")),
        ):
            values[key] = families.FIRST_ADDED + families.CONTROL.index(token)
        self.config = transformers.Qwen2VLConfig(**values)
        self.config._attn_implementation = "eager"
        self.model = RewardModel(self.config, heads).eval()
        state = {name: torch.from_numpy(values) for name, values in head_cases.state(heads=heads).items()}
        self._load(state)
        words = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        self.plain = tokenizer_of({**words, "added_tokens": []}, folder)
        self.special = [*families.CONTROL, *families.REWARDS]
        self.frames = ReferenceFrames(
            json.loads((folder / "preprocessor_config.json").read_text("utf-8")), head_cases.PROFILE
        )

    def _load(self, state: dict[str, Any]) -> None:
        """Load the weights. Each adapted layer becomes the layer and its correction, computed one after the other."""
        halves = {name: state.pop(name) for name in list(state) if ".lora_" in name}
        renamed = {}
        for key, values in state.items():
            name = key.removeprefix("base_model.model.").replace(".base_layer.", ".")
            name = re.sub("^model[.]", "model.language_model.", name)
            renamed[re.sub("^visual[.]", "model.visual.", name)] = values
        missing, unexpected = self.model.load_state_dict(renamed, strict=False)
        assert not missing and not unexpected, (missing, unexpected)
        scale = head_cases.ALPHA / head_cases.RANK
        for name in [name for name in halves if ".lora_A." in name]:
            module = name.removeprefix("base_model.model.model.").partition(".lora_A")[0]
            a, b = halves[name], halves[name.replace("lora_A", "lora_B")]
            layer = self.model.model.language_model.get_submodule(module)
            layer.register_forward_hook(lambda _, given, out, a=a, b=b: out + scale * (given[0] @ a.T @ b.T))

    def ids(self, conversation: Sequence[Message]) -> list[Any]:
        """Token ids, and the parts that show frames: ChatML with the judge's turn begun."""
        pieces: list[Any] = []
        for message in conversation:
            run = [Text(f"<|im_start|>{message.role}\n")]
            for part in message.parts:
                if isinstance(part, Text):
                    run.append(part)
                else:
                    run.append(Text("<|vision_start|>"))
                    pieces += [*self.tokenize(run), part]
                    run = [Text("<|vision_end|>")]
            pieces += self.tokenize([*run, Text("<|im_end|>\n")])
        return [*pieces, *self.tokenize([Text("<|im_start|>assistant\n")])]

    def tokenize(self, run: Sequence[Text]) -> list[int]:
        """Tokenize a run of text. Only what stands wholly in the template is a special token."""
        whole = "".join(part.text for part in run)
        trusted = np.concatenate([np.full(len(part.text), part.trusted) for part in run])
        found: list[tuple[int, str]] = []
        for word in self.special:
            at = whole.find(word)
            while at >= 0:
                found += [(at, word)] if trusted[at : at + len(word)].all() else []
                at = whole.find(word, at + 1)
        ids: list[int] = []
        start = 0
        for at, word in sorted(found):
            ids += self.plain.encode(whole[start:at], add_special_tokens=False)
            ids.append(families.FIRST_ADDED + self.special.index(word))
            start = at + len(word)
        return ids + self.plain.encode(whole[start:], add_special_tokens=False)

    def scores(self, cases: Sequence[head_cases.Case]) -> list[dict[str, float]]:
        """The raw scores of clips in one batch, padded at the right."""
        rows: list[list[int]] = []
        everything = ShownFrames()
        for case in cases:
            row: list[int] = []
            for piece in self.ids(case.conversation):
                if isinstance(piece, int):
                    row.append(piece)
                    continue
                shown: tuple[FrameRef, ...] = piece.frames if isinstance(piece, Video) else (piece.frame,)
                tokens = everything.add(piece, *self.frames.patches(case.pixels(shown), called=False))
                pad = self.config.video_token_id if isinstance(piece, Video) else self.config.image_token_id
                row += [pad] * tokens
            rows.append(row)
        length = max(map(len, rows))
        padding = families.FIRST_ADDED
        inputs: dict[str, Any] = {
            "input_ids": torch.tensor([row + [padding] * (length - len(row)) for row in rows]),
            "attention_mask": torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows]),
            **everything.inputs(torch),
        }
        rewards = [families.FIRST_ADDED + self.special.index(word) for word in families.REWARDS]
        with torch.no_grad():
            found = self.model.score(inputs, rewards).tolist()
        return [dict(zip(("VQ", "MQ", "TA"), row, strict=True)) for row in found]


def tokenizer_of(words: dict[str, Any], folder: Path) -> Any:
    """A tokenizer without added tokens."""
    path = folder / "plain.json"
    path.write_text(json.dumps(words), "utf-8")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))


def record(heads: int) -> dict[str, dict[str, float]]:
    """The scores of every case."""
    with tempfile.TemporaryDirectory() as scratch:
        head_cases.make_checkpoint(Path(scratch) / "c", heads=heads)
        reference = Reference(Path(scratch) / "c", heads=heads)
        cases = head_cases.CASES
        return {case.name: scores for case, scores in zip(cases, reference.scores(cases), strict=True)}


def main(out: Path) -> None:
    """Write the golden file into `out`."""
    told = {"source": f"transformers {transformers.__version__}", **{f"{n} heads": record(n) for n in (1, 3)}}
    (out / "heads.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
