"""Converts a byte-level BPE tokenizer.json to GGUF `tokenizer.*` fields.

Only tokenizers of the Qwen2 family are converted: their split pattern, added tokens, padding rows, bos, eos and pad.
Another pre-tokenizer is an error, because llama.cpp would split text differently without saying so. Other kinds of
special tokens and lists of chat templates are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

from gguf import GGUFValueType, TokenType

from vrt_lite.conversion import text_tensors
from vrt_lite.conversion.checkpoint import Section, read_json, read_text
from vrt_lite.conversion.gguf_writer import GgufField
from vrt_lite.errors import ModelError

# What llama.cpp's pre-tokenizer "qwen2" implements; compared with what the checkpoint asks for.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
ID_KEYS = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}


def fields(folder: Path, text: Section, *, plain: Sequence[str] = ()) -> Iterator[GgufField]:
    """Return the tokenizer's fields. Raises ModelError for another kind of tokenizer or a broken one.

    The tokens `plain` are user-defined whatever tokenizer.json says of them; those that it lacks are added behind all.
    """
    tokenizer, rows = read_json(folder / "tokenizer.json"), text_tensors.vocabulary_size(text)
    model = tokenizer.section("model")
    model.require(type="BPE")
    if QWEN2_SPLIT not in _patterns(tokenizer.values.get("pre_tokenizer")):
        raise ModelError(f"{tokenizer.where}: the pre-tokenizer is not Qwen2's, no other can be exported")
    added = [(i, word, TokenType.USER_DEFINED if word in plain else kind) for i, word, kind in _added(tokenizer)]
    vocabulary = model.section("vocab").values
    known = {word for _, word, _ in added}
    end = 1 + max((i for i in (*vocabulary.values(), *(i for i, *_ in added)) if type(i) is int), default=-1)
    more = [word for word in plain if word not in known]
    added += [(end + i, word, TokenType.USER_DEFINED) for i, word in enumerate(more)]
    tokens, types = _table(model, added, rows)
    yield GgufField("tokenizer.ggml.model", "gpt2", GGUFValueType.STRING)
    yield GgufField("tokenizer.ggml.pre", "qwen2", GGUFValueType.STRING)
    yield GgufField("tokenizer.ggml.tokens", tokens, GGUFValueType.ARRAY)
    yield GgufField("tokenizer.ggml.token_type", types, GGUFValueType.ARRAY)
    yield GgufField("tokenizer.ggml.merges", list(_merges(model)), GGUFValueType.ARRAY)
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.is_file() else Section(f"{path}", {})
    found = _special_ids(settings.values, {word: i for i, word, _ in added}, text.values)
    if "eos" not in found:
        raise settings.value_error("eos_token", "an added token: generation would never end")
    for kind, i in found.items():
        if not 0 <= i < rows:
            raise ModelError(f"{text.where}: {kind}_token_id is {i}, needs to be below vocab_size, {rows}")
        yield GgufField(f"tokenizer.ggml.{ID_KEYS[kind]}", i, GGUFValueType.UINT32)
    for kind, value in _automatic(tokenizer.values.get("post_processor"), settings.values).items():
        yield GgufField(f"tokenizer.ggml.add_{kind}_token", value, GGUFValueType.BOOL)
    if template := _chat_template(folder, settings.values):
        yield GgufField("tokenizer.chat_template", template, GGUFValueType.STRING)


def _patterns(pre: Any) -> list[str]:
    """Return the split expressions of a pre_tokenizer, alone or in a sequence."""
    match pre:
        case {"type": "Sequence", "pretokenizers": [*parts]}:
            return [pattern for part in parts for pattern in _patterns(part)]
        case {"type": "Split", "pattern": {"Regex": str(pattern)}}:
            return [pattern]
        case _:
            return []


def _added(tokenizer: Section) -> Iterator[tuple[int, str, TokenType]]:
    """Yield id, text and type of the tokens outside the vocabulary's table."""
    for entry in tokenizer.values.get("added_tokens") or ():
        match entry:
            case {"id": int(i), "content": str(word), "special": bool(special)}:
                # As in llama.cpp's converter: tokens like <|fim_prefix|> count as special, though published otherwise.
                control = special or (word.startswith("<|") and word.endswith("|>"))
                yield i, word, TokenType.CONTROL if control else TokenType.USER_DEFINED
            case _:
                raise ModelError(f"{tokenizer.where}: an added token is {entry!r:.80}, needs id and content")


def _table(model: Section, added: list[tuple[int, str, TokenType]], rows: int) -> tuple[list[str], list[int]]:
    """Return text and type of each embedding row; rows without a token are padding."""
    tokens, types = [f"[PAD{i}]" for i in range(rows)], [int(TokenType.UNUSED)] * rows
    plain = ((i, word, TokenType.NORMAL) for word, i in model.section("vocab").values.items())
    for i, word, kind in chain(plain, added):
        if type(i) is not int or not 0 <= i < rows:
            raise ModelError(f"{model.where}: token {word!r:.40} has id {i!r:.20}, the embedding {rows} rows")
        tokens[i], types[i] = word, int(kind)
    return tokens, types


def _merges(model: Section) -> Iterator[str]:
    """Return merge rules as 'left right'; a space inside a part has its spelling of byte-level BPE."""
    merges = model.values.get("merges")
    if not isinstance(merges, list) or not merges:
        raise model.value_error("merges", "a list of pairs")
    for merge in cast("list[Any]", merges):
        match merge:
            case str(pair):
                yield pair
            case [str(left), str(right)]:
                yield f"{left.replace(' ', 'Ġ')} {right.replace(' ', 'Ġ')}"
            case _:
                raise ModelError(f"{model.where}: a merge is {merge!r:.80}, needs a pair of tokens")


def _special_ids(settings: Mapping[str, Any], by_text: Mapping[str, int], text: Mapping[str, Any]) -> dict[str, int]:
    """Return the ids of special tokens: tokenizer_config.json has priority, as in transformers and llama.cpp."""
    entries = {kind: settings.get(f"{kind}_token") for kind in ID_KEYS}
    words = {k: cast("dict[str, Any]", e).get("content") if isinstance(e, dict) else e for k, e in entries.items()}
    found = {kind: by_text[w] for kind, w in words.items() if isinstance(w, str) and w in by_text}
    ids = {kind: text.get(f"{kind}_token_id") for kind in ID_KEYS if kind not in found}
    return found | {kind: i for kind, i in ids.items() if type(i) is int}


def _automatic(post: Any, settings: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether bos and eos are always added; a byte-level post-processor adds none."""
    match post:
        case {"processors": [*parts]}:
            level = any(isinstance(part, dict) and cast("Any", part).get("type") == "ByteLevel" for part in parts)
        case {"type": "ByteLevel"}:
            level = True
        case _:
            level = False
    found: dict[str, bool] = {}
    for kind in ("bos", "eos"):
        setting = settings.get(f"add_{kind}_token")
        if level or isinstance(setting, bool):
            found[kind] = setting is True and not level
    return found


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """Return the chat template for other programs; vrt-lite writes its prompts itself."""
    template = settings.get("chat_template")
    if template is None and (jinja := folder / "chat_template.jinja").is_file():
        template = read_text(jinja)
    elif template is None and (old := folder / "chat_template.json").is_file():
        template = read_json(old).values.get("chat_template")
    return template if isinstance(template, str) else None
