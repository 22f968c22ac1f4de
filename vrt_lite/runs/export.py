"""A run as a table for a spreadsheet (CSV) or as lines of JSON, one judgement at a time."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from vrt_lite.protocol.messages import KEYS, Choice
from vrt_lite.protocol.verdict import MIRROR, Preference, describe
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import JudgedPair, Result
from vrt_lite.runs.run import Run

Format = Literal["csv", "jsonl"]
_CHANCES = ("tie", "1", "2")
COLUMNS: Final = (
    *("number", "first", "second", "prompt"),
    *KEYS,
    *(f"{key} {chance}" for key in KEYS for chance in _CHANCES),
    *(f"{key} both orders" for key in KEYS),
    *("source", "rounds", "calls", "tokens", "seconds", "error"),
    *("first sha256", "second sha256", "key"),
    *("failure", "warnings", "max pixels", "tool max pixels", "kv type", "orders disagree on", "own dimensions"),
    *("rows", *(f"{key} label" for key in KEYS)),
)
"""`first` was shown as video 1. TA, VQ, MQ, OA: 1, 2, or 0 for a tie; "OA 1" is the probability of that winner.

A cell of a dimension that was not judged is empty. "OA both orders" joins this judgement and that of the other order,
about the same first and second: 1, 2, tie, or undecided and which one it leans to. The last columns are the kind of
failure, the warnings, what was chosen for the memory, the keys on which both orders choose differently, and what this
judgement chose in dimensions of the judge's own ("Coherence: 1, Style: tie"). Of an evaluation there are also the rows
of the table that list the pair, and the labels of the first of these rows, about first and second: 1, 2, or 0.
"""
_FORMULA = frozenset("=+-@")
_LIGHT: Final = (
    *("key", "prompt", "winners", "odds", "source", "rounds", "calls", "tokens", "seconds", "error", "failure"),
    *("warnings", "max_pixels", "tool_max_pixels", "kv_type", "leans", "scores", "own"),
)
"""What a line of JSON has of a result."""


def csv_lines(run: Run, *, shown: Callable[[str], str] = str) -> Iterator[str]:
    """Yield the heading and a line for each judgement, in the order made. `shown` is applied to every text.

    A text that a spreadsheet would take for a formula gets an apostrophe before it. A cell is empty without a verdict,
    a probability, or the other order.
    """
    yield csv_line(COLUMNS)
    paired, labelled = _pair_results(run), _read_labels(run)
    for number, result, (first, second), _ in _judged(run, whole=False):
        pair = paired.get(result.key)
        joined: Mapping[str, Preference] = pair.preferences if pair else {}
        differing = pair.disagreements if pair else ()
        chances = [result.odds.get(key) or ("", "", "") for key in KEYS]
        rows, labels = labelled.get(result.key, ([], {}))
        texts = [make_harmless(shown(text)) for text in (first, second, result.prompt, result.error)]
        yield csv_line(
            (
                *(number, *texts[:3]),
                *(result.winners.get(key, "") for key in KEYS),
                *(chance for odds in chances for chance in odds),
                *(_choice(joined[key]) if key in joined else "" for key in KEYS),
                *(result.source, result.rounds, result.calls, result.tokens, result.seconds, texts[3]),
                *(result.first, result.second, result.key, result.failure),
                make_harmless(shown(" ".join(warning.text for warning in result.warnings))),
                *(result.max_pixels, result.tool_max_pixels, result.kv_type, " ".join(differing)),
                make_harmless(shown(", ".join(f"{name}: {_choice(of)}" for name, of in result.own.items()))),
                *(" ".join(map(str, rows)), *(labels.get(key, "") for key in KEYS)),
            )
        )


def json_lines(run: Run) -> Iterator[str]:
    """Yield a line for each judgement, in the order made: its light columns, and the whole `judgement`. ASCII only.

    `both_orders` has the preferences joined with those of the other order, and `disagreements` the keys on which both
    choose differently; null without a verdict of that order. `rows` and `labels` are those of an evaluation's table.
    """
    paired, labelled = _pair_results(run), _read_labels(run)
    for number, result, names, judgement in _judged(run, whole=True):
        clips = {place: {"name": name} for place, name in zip(("first", "second"), names, strict=True)}
        light = {name: getattr(result, name) for name in _LIGHT if name != "scores" or result.scores}
        for place, clip in clips.items():
            clip["sha256"] = getattr(result, place)
        pair = paired.get(result.key)
        if result.verdict:  # null is what was not judged, also beside other keys
            light |= {name: dict.fromkeys(KEYS) | light[name] for name in ("winners", "odds")}
        light["disagreements"] = pair and list(pair.disagreements)
        joined = pair and {key: _plain(preference) for key, preference in pair.preferences.items()}
        light["both_orders"] = joined and dict.fromkeys(KEYS) | joined
        light["rows"], light["labels"] = labelled.get(result.key, ([], {}))
        whole = judgement and judgement.to_json()
        line = msgspec.to_builtins({"number": number, **clips, **light, "judgement": whole})
        yield json.dumps(line) + "\n"


def names_of(run: Run) -> dict[str, str]:
    """Return the names that a run gives its clips, by sha256, as far as it lists them."""
    clips = run.about.get("clips")
    listed = cast("list[Any]", clips) if isinstance(clips, list) else []
    known = [cast("dict[str, Any]", clip) for clip in listed if isinstance(clip, dict) and "sha256" in clip]
    return {str(clip["sha256"]): str(clip.get("name") or clip.get("path") or "") for clip in known}


def _read_labels(run: Run) -> dict[str, tuple[list[int], dict[str, int]]]:
    """Return the rows of an evaluation's table, and the labels of the first of them, by the key of their judgement.

    The labels are about the clips as that judgement showed them. A ranking has none.
    """
    found: dict[str, tuple[list[int], dict[str, int]]] = {}
    for case in run.cases():
        labels = {
            key: MIRROR[cast("Choice", label)] if case.order == "swapped" else label
            for key, label in case.labels.items()
        }
        found.setdefault(case.key, ([], labels))[0].append(case.row)
    return found


def _pair_results(run: Run) -> dict[str, JudgedPair]:
    """Return the pairs with a verdict of each order, by the key of each of their judgements, about its clips as shown.

    A judgement that does not count, as a later one of its order does, has none.
    """
    both = (pair for pair in run.pairs() if pair.of_both or all(pair.verdicts))
    return {of.key: pair if of is pair.given else pair.mirrored() for pair in both for of in pair.results}


def _judged(run: Run, *, whole: bool) -> Iterator[tuple[int, Result, tuple[str, str], Judgement | None]]:
    """Yield the number from 1, the light columns, the clips' names, and the judgement.

    The judgement is read if `whole` is set, or if a clip has no other name.
    """
    names = names_of(run)
    for number, result in enumerate(run.results(), start=1):
        named = names.get(result.first) and names.get(result.second)
        judgement = run.judgement(result.key) if whole or not named else None
        paths = [clip.path for clip in judgement.inputs] if judgement else ["", ""]
        first, second = (
            names.get(sha256) or path for sha256, path in zip((result.first, result.second), paths, strict=True)
        )
        yield number, result, (first, second), judgement


def _choice(preference: Preference) -> str:
    """Return 1, 2, "tie", or "undecided" and which clip it leans to."""
    return describe(preference, ("1", "2")) if preference.undecided else ("tie", "1", "2")[preference.winner]


def _plain(preference: Preference) -> dict[str, Any]:
    odds = preference.odds and dict(zip(_CHANCES, (round(share, 9) for share in preference.odds), strict=True))
    return {**msgspec.to_builtins(preference), "probabilities": odds}


def csv_line(cells: Iterable[object]) -> str:
    """Write cells as a line of CSV."""
    text = io.StringIO()
    # With this end of a line, the writer of every Python quotes a cell that holds either of the two characters.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def make_harmless(text: str) -> str:
    """Return the text with an apostrophe before it if a spreadsheet could take it for a formula.

    Spreadsheets skip blanks and invisible characters, and take a full-width character for the usual one.
    """
    begins = next((c for c in unicodedata.normalize("NFKC", text) if not _is_skipped(c)), "")
    return f"'{text}" if begins in _FORMULA or text[:1] in ("\t", "\r", "\n") else text


def _is_skipped(character: str) -> bool:
    return character.isspace() or unicodedata.category(character)[0] in "CZM"
