"""A run as a table for a spreadsheet (CSV) or as lines of JSON, one judgement at a time."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final, cast

import msgspec

from vrt_lite.protocol.messages import KEYS, Choice
from vrt_lite.protocol.verdict import MIRROR, Preference, describe
from vrt_lite.records.judgement import Judgement, PlainData
from vrt_lite.records.pairs import JudgedPair
from vrt_lite.runs.store import Run

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
    *("warnings", "max_pixels", "tool_max_pixels", "kv_type"),
)
"""What a line of JSON has of a result."""


def csv_lines(run: Run) -> Iterator[str]:
    """Yield the heading and a line for each judgement, in the order made.

    A text that a spreadsheet would take for a formula gets an apostrophe before it. A cell is empty without a verdict,
    a probability, or the other order.
    """
    yield csv_line(COLUMNS)
    for of, _, both in _describe_results(run):
        cells: PlainData = {
            **{name.replace("_", " "): value for name, value in of.items()},
            **of["winners"],
            **{f"{key} label": label for key, label in of["labels"].items()},
            "warnings": " ".join(warning.text for warning in of["warnings"]),
            "orders disagree on": " ".join(of["disagreements"] or ()),
            "own dimensions": ", ".join(f"{name}: {_choice(choice)}" for name, choice in of["own"].items()),
            "rows": " ".join(map(str, of["rows"])),
        }
        for place in ("first", "second"):
            cells |= {place: of[place]["name"], f"{place} sha256": of[place]["sha256"]}
        for key, odds in of["odds"].items():
            cells |= {f"{key} {chance}": share for chance, share in zip(_CHANCES, odds or (), strict=False)}
        if both:
            cells |= {f"{key} both orders": _choice(preference) for key, preference in both.preferences.items()}
        yield harmless_line(cells.get(column) for column in COLUMNS)


def json_lines(run: Run) -> Iterator[str]:
    """Yield a line for each judgement, in the order made: its light columns, and the whole `judgement`. ASCII only.

    `both_orders` has the preferences joined with those of the other order, and `disagreements` the keys on which both
    choose differently; null without a verdict of that order. `rows` and `labels` are those of an evaluation's table.
    """
    for of, judgement, both in _describe_results(run):
        if of["source"]:  # null is what was not judged, also beside other keys
            of |= {name: dict.fromkeys(KEYS) | of[name] for name in ("winners", "odds")}
        joined = both and dict.fromkeys(KEYS) | {key: _plain(of) for key, of in both.preferences.items()}
        whole = judgement and judgement.to_json()
        yield json.dumps(msgspec.to_builtins({**of, "both_orders": joined, "judgement": whole})) + "\n"


def _describe_results(run: Run) -> Iterator[tuple[PlainData, Judgement | None, JudgedPair | None]]:
    """Yield what both forms tell of each judgement, the judgement, and its pair if each order has a verdict.

    The pair is about the clips as shown. A judgement that does not count, as a later one of its order does, has none.
    """
    names = {clip["sha256"]: clip["name"] for group in run.about.get("groups") or () for clip in group["clips"]}
    labelled = _read_labels(run)
    both = (pair for pair in run.pairs() if pair.of_both or all(pair.verdicts))
    paired = {of.key: pair if of is pair.given else pair.mirrored() for pair in both for of in pair.results}
    for number, result in enumerate(run.results(), start=1):
        judgement, pair = run.judgement(result.key), paired.get(result.key)
        paths = [clip.path for clip in judgement.inputs] if judgement else ["", ""]
        digests = zip((result.first, result.second), paths, strict=True)
        one, two = ({"name": names.get(of) or path, "sha256": of} for of, path in digests)
        rows, labels = labelled.get(result.key, ([], {}))
        light = {name: getattr(result, name) for name in (*_LIGHT, *(["scores"] if result.scores else []))}
        told = {
            "leans": {key: of.leans for key, of in result.preferences.items() if of.leans is not None},
            "own": result.verdict.own if result.verdict else {},
            "disagreements": pair and list(pair.disagreements),
            "rows": rows,
            "labels": labels,
        }
        yield {"number": number, "first": one, "second": two, **light, **told}, judgement, pair


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


def _choice(preference: Preference) -> str:
    """Return 1, 2, "tie", or "undecided" and which clip it leans to."""
    return describe(preference, ("1", "2")) if preference.undecided else ("tie", "1", "2")[preference.winner]


def _plain(preference: Preference) -> PlainData:
    odds = preference.odds and dict(zip(_CHANCES, (round(share, 9) for share in preference.odds), strict=True))
    return {**msgspec.to_builtins(preference), "probabilities": odds}


def csv_line(cells: Iterable[object]) -> str:
    """Write cells as a line of CSV."""
    text = io.StringIO()
    # With this end of a line, the writer of every Python quotes a cell that holds either of the two characters.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def harmless_line(cells: Iterable[object]) -> str:
    """Write cells as a line of CSV that no spreadsheet takes for formulas."""
    return csv_line(_make_harmless(cell) if isinstance(cell, str) else cell for cell in cells)


def _make_harmless(text: str) -> str:
    """Return the text with an apostrophe before it if a spreadsheet could take it for a formula.

    Spreadsheets skip blanks and invisible characters, and take a full-width character for the usual one.
    """
    visible = (
        c for c in unicodedata.normalize("NFKC", text) if not c.isspace() and unicodedata.category(c)[0] not in "CZM"
    )
    begins = next(visible, "")
    return f"'{text}" if begins in _FORMULA or text[:1] in ("\t", "\r", "\n") else text
