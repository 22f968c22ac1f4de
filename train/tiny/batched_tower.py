"""A faster vision tower for a small model: all frames of one size run as one batch.

transformers runs window attention one window at a time. For frames of one size, windows and rotary tables are
constants. So here every temporal patch is a row of a batch, and a mask separates the windows. On a CPU a temporal patch
that a batch has twice, as in the two orders of a pair, is embedded once. The result equals that of transformers' tower
up to rounding.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.vision_utils import get_vision_position_ids

_PATCHES_A_CELL = 4
Tables = tuple[Tensor, Tensor, Tensor]


def batch_frames(visual: Any) -> None:
    """Make a tower that takes bytes (`train.model.take_bytes`) run all frames of one size at once."""
    visual.tables = {}
    visual.forward = types.MethodType(_forward, visual)
    for block in visual.blocks:
        block.forward = types.MethodType(_block, block)


def _forward(self: Any, hidden_states: Tensor, grid_thw: Tensor, **_: Any) -> BaseModelOutputWithPooling:
    """Replace the tower's forward: patches (count, 1176) and grids (pictures, 3) to embeddings (count / 4, width)."""
    weight = self.patch_embed.proj.weight
    grids = [(t, h, w) for t, h, w in grid_thw.tolist()]
    if hidden_states.device.type == "cpu" and (same := _find_repeated(hidden_states, grids)):
        return _embed_once(self, hidden_states, grids, same)
    with torch.autocast(weight.device.type, enabled=False):  # bfloat16 would round away a change by one grey level
        x = functional.linear(self.normalised(hidden_states).to(weight.dtype), weight.flatten(1))
    sizes = list(dict.fromkeys((h, w) for _, h, w in grids))
    if len(sizes) == 1:
        return _output(x, _embed(self, x, *sizes[0]))
    owner = torch.tensor([sizes.index((h, w)) for t, h, w in grids for _ in range(t * h * w)])
    rows = [(owner == number).nonzero()[:, 0].to(x.device) for number in range(len(sizes))]
    embeddings = torch.cat([_embed(self, x[mine], *size) for mine, size in zip(rows, sizes, strict=True)])
    return _output(x, embeddings[torch.cat(rows)[::_PATCHES_A_CELL].argsort()])


Grids = Sequence[tuple[int, int, int]]


def _find_repeated(patches: Tensor, grids: Grids) -> list[int]:
    """Return for each temporal patch the first one with the same size and pixels; [] if all are different."""
    sizes = [(h, w) for t, h, w in grids for _ in range(t)]
    first: dict[tuple[tuple[int, int], bytes], int] = {}
    parts = patches.detach().contiguous().view(torch.uint8).numpy()
    same: list[int] = []
    start = 0
    for number, (h, w) in enumerate(sizes):
        digest = hashlib.blake2b(parts[start : start + h * w].data, digest_size=16).digest()
        same.append(first.setdefault(((h, w), digest), number))
        start += h * w
    return same if len(first) < len(sizes) else []


def _embed_once(visual: Any, patches: Tensor, grids: Grids, same: Sequence[int]) -> BaseModelOutputWithPooling:
    """Embed each different temporal patch once, and repeat its embeddings where it occurs again."""
    sizes = [(h, w) for t, h, w in grids for _ in range(t)]
    kept = sorted(set(same))
    ends = torch.tensor([h * w for h, w in sizes]).cumsum(0).tolist()
    rows = torch.cat([torch.arange(ends[n] - sizes[n][0] * sizes[n][1], ends[n]) for n in kept])
    once = visual.forward(patches[rows], grid_thw=torch.tensor([(1, *sizes[n]) for n in kept]))
    lengths = [sizes[n][0] * sizes[n][1] // _PATCHES_A_CELL for n in kept]
    parts = dict(zip(kept, once.pooler_output.split(lengths), strict=True))
    return _output(once.last_hidden_state, torch.cat([parts[n] for n in same]))


def _output(x: Tensor, merged: Tensor) -> BaseModelOutputWithPooling:
    return BaseModelOutputWithPooling(last_hidden_state=x, pooler_output=merged)


def _embed(visual: Any, x: Tensor, rows: int, columns: int) -> Tensor:
    """Compute embeddings (count / 4, width) from embedded patches (count, width) of frames of one size."""
    return visual.merger(_blocks(visual, x.view(-1, rows * columns, x.shape[-1]), rows, columns).flatten(0, 1))


def _blocks(visual: Any, x: Tensor, rows: int, columns: int) -> Tensor:
    """Run all blocks on temporal patches of one size: (units, rows·columns, width)."""
    cos, sin, windows = _tables(visual, rows, columns, x.device)
    for number, block in enumerate(visual.blocks):
        x = block(x, cos, sin, None if number in visual.fullatt_block_indexes else windows)
    return x


def _block(self: Any, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
    """Replace a block's forward. The block is still called as a module, so that hooks still work."""
    x = x + _attention(self.attn, self.norm1(x), cos, sin, mask)
    return x + self.mlp(self.norm2(x))


def _attention(attention: Any, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
    units, count, width = x.shape
    q, k, v = attention.qkv(x).view(units, count, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    q, k = (_rotate(part, cos, sin).to(v.dtype) for part in (q, k))
    if v.device.type == "cpu" and v.dtype == torch.bfloat16:
        # The backward pass of torch's attention takes four times as long on a CPU in bfloat16.
        scores = q * attention.scaling @ k.transpose(-1, -2)
        out = (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(-1).to(v.dtype) @ v
    else:
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=attention.scaling)
    return attention.proj(out.transpose(1, 2).reshape(units, count, width))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions, in float32 as in transformers' tower."""
    half = x.shape[-1] // 2
    x = x.float()
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _tables(visual: Any, rows: int, columns: int, device: torch.device) -> Tables:
    """Return tables for a frame size: cosines and sines (patches, head width), and which patches share a window."""
    key = (rows, columns, device)
    if key not in visual.tables:
        grid = torch.tensor([[1, rows, columns]])
        place = get_vision_position_ids(grid, visual.spatial_merge_size).to(device)
        cos, sin = visual.rotary_pos_emb(torch.empty(0, device=device), place)
        side = visual.window_size // visual.patch_size
        window = (place // side * torch.tensor([columns, 1], device=device)).sum(1)
        visual.tables[key] = (cos.float(), sin.float(), window[:, None] == window[None, :])
    return visual.tables[key]
