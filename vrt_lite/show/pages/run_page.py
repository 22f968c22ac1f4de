"""Writes the report of a run: its results first, then every pair, packed, to be opened one at a time.

Only light columns, one whole judgement and one block of pairs are in memory at a time. Pictures are written as soon as
they are made, while there are bytes left for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from vrt_lite.decoder import Decoder
from vrt_lite.errors import UsageError
from vrt_lite.evaluation.cases import read_eval_about
from vrt_lite.evaluation.evaluate import figures_of
from vrt_lite.evaluation.figures import Figures
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import Verdict, describe
from vrt_lite.ranking.rank_run import read_rank_about
from vrt_lite.records.conditions import conditions_of
from vrt_lite.records.pairs import JudgedPair
from vrt_lite.show import evaluation_words
from vrt_lite.show.evaluation_charts import list_charts, list_confusion
from vrt_lite.show.pages.clip_copies import ClipCopies
from vrt_lite.show.pages.frame_album import FrameAlbum, find_places
from vrt_lite.show.pages.html_file import write_data, write_json, write_packed, write_page
from vrt_lite.show.pages.pair_page import Folds, PairLabel, list_common_details, make_address, prepare_pair
from vrt_lite.show.pages.render_templates import format_percent, make_visible, render, split_name
from vrt_lite.show.pages.run_material import RunMaterial, find_label, read_labels, read_shown_clips
from vrt_lite.show.words import DIMENSION_NAMES, capitalize_first, count_of, describe_warnings, shown_odds

if TYPE_CHECKING:
    from vrt_lite.records.judgement import JudgedClip
    from vrt_lite.records.labelled import EvalCase
    from vrt_lite.runs.run import Run

PICTURE_BYTES = 20 * 2**20
"""Bytes of pictures in the report of a run."""
_LARGEST_PICTURE = 24_000
_BLOCK = 16
_UNDECIDED = "undecided"
_PROMPT_LENGTH = 160
_POSTERS = 500


@dataclass(frozen=True, slots=True)
class ServedReport:
    """A report that a server sends: its first lines, and a clip's address, empty for a clip that may not be shown."""

    top: str
    make_address: Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class _RunPages:
    """What the pages of a run's pairs are made from. `shared` are details that most pairs have, shown once.

    `paths` are where the run has its clips: a judgement that was found by content names them where they were judged.
    """

    material: RunMaterial
    labels: Mapping[str, EvalCase]
    addresses: Mapping[str, str]
    paths: Mapping[str, str]
    shared: Folds
    copies: ClipCopies | None


def write_run(
    run: Run,
    path: Path,
    decoder: Decoder,
    *,
    beside: Path | None = None,
    copies: ClipCopies | None = None,
    served: ServedReport | None = None,
) -> None:
    """Write the report of a run to `path`, with `copies` of its clips if they are given, or as a server sends it.

    UsageError if there is nothing to report, or it cannot be written.
    """
    clips = read_rank_about(run).clips if run.kind == "rank" else ()
    about = read_eval_about(run) if run.kind == "eval" else None
    if next(iter(run.results()), None) is None:
        raise UsageError(f"Run {run.name!r} has no judgements yet: there is nothing to report.")
    if beside is None and about and about.folder:
        beside = Path(about.folder)
    pairs = run.pairs()
    shown = read_shown_clips(run, pairs)
    known = {clip.sha256: clip.path for clip in clips}
    places = {sha256: find_places(of.clip, beside, known=known.get(sha256, "")) for sha256, of in shown.items()}
    if served:
        places = {sha256: [place for place in at if served.make_address(place)] for sha256, at in places.items()}
    album = FrameAlbum(decoder, PICTURE_BYTES, largest=_LARGEST_PICTURE)
    for sha256 in list(shown)[:_POSTERS] if run.kind == "rank" else ():
        album.embed_in_place(shown[sha256].clip, sorted(shown[sha256].first)[:1], places[sha256])
    names = {sha256: of.clip.name for sha256, of in shown.items()}
    names |= {clip.sha256: clip.name for clip in clips if clip.name}
    material = RunMaterial(run, pairs, shown, album, names, _number_pairs(pairs))
    example = next((judgement for pair in pairs if (judgement := run.read_pair(pair))), None)
    address = served.make_address if served else partial(make_address, page=path)
    addresses = {sha256: address(at[0]) if at else "" for sha256, at in places.items()}
    pages = _RunPages(
        material, read_labels(run), addresses, known, list_common_details(example) if example else [], copies
    )
    title, overview = _render_overview(pages)
    with write_page(path, title, embedded=copies is not None, top=served.top if served else "") as file:
        file.write(overview)
        write_json(file, "about", {"pairs": len(pairs), "block": _BLOCK})
        write_packed(file, "index", [_make_index_row(pages, pair) for pair in pairs])
        # Posters that the overview did not show, then first frames, then those that the judge requested.
        for frame in [frame for frame in album.frames.values() if frame.uri]:
            write_data(file, frame.id, frame.uri)
        for of, sources in [*((of, of.first) for of in shown.values()), *((of, of.called) for of in shown.values())]:
            for frame in album.embed(of.clip, sources, places[of.clip.sha256]):
                write_data(file, frame.id, frame.uri)
        if copies:
            for sha256, of in shown.items():
                clip = replace(of.clip, path=known.get(sha256) or of.clip.path)
                if uri := copies.embed(clip, places[sha256], decoder):
                    write_data(file, copies.ids[sha256], uri)
        _write_pairs(file, (_render_page(pages, pair) for pair in pairs))


def _number_pairs(pairs: list[JudgedPair]) -> dict[tuple[str, str, str], int]:
    """Number the pairs from 1. Returns the numbers by both clips, in either order, and the prompt."""
    numbers: dict[tuple[str, str, str], int] = {}
    for number, pair in enumerate(pairs, start=1):
        numbers[pair.first, pair.second, pair.prompt] = numbers[pair.second, pair.first, pair.prompt] = number
    return numbers


def _render_overview(pages: _RunPages) -> tuple[str, str]:
    """Render what a run shows first. Returns the page's title and its HTML."""
    material = pages.material
    if material.run.kind == "rank":
        from vrt_lite.show.pages.ranking_page import prepare_ranking  # noqa: PLC0415 - numpy

        template, values = "ranking.html", prepare_ranking(material)
    elif material.run.kind == "eval":
        template, values = "evaluation.html", prepare_evaluation(material)
    else:
        template, values = "comparisons.html", _prepare_comparisons(material)
    marks = Counter(mark for pair in material.pairs for mark in _list_marks(pair, find_label(pair, pages.labels)))
    html = render(
        template,
        run=material.run,
        several_prompts=len({pair.prompt for pair in material.pairs}) > 1,
        undecided=_UNDECIDED,
        marks=marks,
        folds=pages.shared,
        **values,
    )
    return values["title"], html


def _write_pairs(file: TextIO, pages: Iterator[str]) -> None:
    """Write the pairs' pages in packed blocks."""
    number = 0
    while block := list(islice(pages, _BLOCK)):
        write_packed(file, f"b{number}", block)
        number += 1


def _render_page(pages: _RunPages, pair: JudgedPair) -> str:
    material = pages.material
    judgement = material.run.read_pair(pair)
    if judgement is None:
        names = [material.names.get(sha256, sha256[:12]) for sha256 in (pair.first, pair.second)]
        return render("no_verdict.html", pair=pair, names=names)
    first, second = (replace(clip, path=pages.paths.get(clip.sha256) or clip.path) for clip in judgement.inputs)
    judgement = replace(judgement, inputs=(first, second))
    (one, note), (two, other_note) = _find_clip(pages, first), _find_clip(pages, second)
    values = prepare_pair(
        judgement,
        material.album,
        (one, two),
        notes=(note, other_note),
        label=find_label(pair, pages.labels),
        elsewhere=pages.shared,
        warnings=[f"The other order: {error}" for error in pair.errors],
    )
    return render("pair_article.html", **values)


def _find_clip(pages: _RunPages, clip: JudgedClip) -> tuple[str, str]:
    """Find where a clip is played from, and what there is to say of that."""
    if pages.copies:
        return pages.copies.address(clip), pages.copies.notes.get(clip.sha256, "")
    missing = pages.material.album.absent.get(clip.sha256, "")
    return "" if missing else pages.addresses.get(clip.sha256, ""), missing


def _make_index_row(pages: _RunPages, pair: JudgedPair) -> list[Any]:
    """Make a line of the list of pairs, which the script shows and searches."""
    own = pair.overall
    names = pages.material.names
    one, two = (make_visible(names.get(clip, clip[:12])) for clip in (pair.first, pair.second))
    prompt = pair.prompt if len(pair.prompt) <= _PROMPT_LENGTH else f"{pair.prompt[:_PROMPT_LENGTH]}…"
    return [
        split_name(one),
        split_name(two),
        make_visible(prompt),
        _UNDECIDED if own and own.undecided else own.winner if own else None,
        *_describe_better(pair.joined.verdict if pair.joined else None, (one, two)),
        _list_marks(pair, find_label(pair, pages.labels)),
    ]


def _describe_better(verdict: Verdict | None, names: tuple[str, str]) -> tuple[list[str | tuple[str, str]], str]:
    """Say which is better, a clip's name in its two parts, and the probability where the words do not give it."""
    if verdict is None:
        return ["No verdict"], ""
    preference = verdict.overall
    words, odds = describe(preference, names), None if preference.undecided else shown_odds(verdict, OVERALL)
    share = format_percent(odds[preference.winner]) if odds else ""
    named = preference.winner or preference.leans
    if not named:
        return [capitalize_first(words)], share
    before, name, after = words.partition(names[named - 1])
    return [capitalize_first(before), split_name(name), after], share


def _list_marks(pair: JudgedPair, label: PairLabel | None) -> list[str]:
    """List what is notable about a pair; the list of pairs can be filtered by it."""
    marks: list[str] = []
    own = pair.overall
    if OVERALL in pair.disagreements:
        marks.append("orders disagree")
    if pair.errors:
        marks.append("one order only" if own else "no verdict")
    if any(result.source == "recommended" for result in pair.results):
        marks.append("only recommended")
    if label and OVERALL in label.winners and own and not own.undecided:
        marks.append("as labelled" if label.winners[OVERALL] == own.winner else "not as labelled")
    return marks


def _prepare_comparisons(material: RunMaterial) -> dict[str, Any]:
    """Prepare what the template shows of comparisons beside the list of pairs."""
    count, failed = len(material.pairs), sum(pair.overall is None for pair in material.pairs)
    model = str(material.run.about.get("model", ""))
    warnings = describe_warnings(conditions_of(material.run.results()))
    title = f"{count} comparison{'s' if count != 1 else ''}"
    return {"title": title, "model": model, "failed": failed, "warnings": warnings}


def prepare_evaluation(material: RunMaterial) -> dict[str, Any]:
    """Prepare everything that the template shows of an evaluation."""
    figures = figures_of(material.run)
    heading = _write_heading(figures)
    return {
        "title": f"{heading}: {evaluation_words.name_set(figures) or material.run.name}",
        "heading": heading,
        "about": read_eval_about(material.run),
        "figures": figures,
        "words": evaluation_words,
        "accuracy": _list_accuracy(figures),
        "charts": list_charts(figures),
        "confusion": list_confusion(figures),
    }


def _write_heading(figures: Figures) -> str:
    """Say how often the judge agrees with people, in which dimension, and on how many of the pairs if not on all."""
    of = figures.accuracy.get(figures.main)
    if not of or of.tau.value is None:
        return "An evaluation"
    of_pairs = f" ({of.pairs} of {count_of(of.labelled, 'pair')})" if of.pairs < of.labelled else ""
    return f"{format_percent(of.tau.value)} judged as people did{evaluation_words.name_main(figures)}{of_pairs}"


def _list_accuracy(figures: Figures) -> list[list[str]]:
    rows: list[list[str]] = []
    for key in figures.accuracy:
        own = DIMENSION_NAMES[key]
        for name, *cells in evaluation_words.list_accuracy(figures, key):
            rows.append([f"{own}, {name}" if name else own, *cells])
    return rows
