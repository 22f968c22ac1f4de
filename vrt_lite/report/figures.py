"""The page of an evaluation: the figures beside the published ones, plots, and what could not be judged.

Knows the shape that `vrt_lite.evaluation.figures` draws; what is of another shape is shown as a plain table.
Refuses to know how a figure is computed.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any, cast

from vrt_lite.evaluation.wording import (
    call_set,
    tell_baselines,
    tell_other_splits,
    tell_part_baselines,
    tell_shared_prompts,
    tell_table_baselines,
)
from vrt_lite.report.gather import Material, Overview
from vrt_lite.report.nodes import Content, Element, Node, h, said

_NAMES = {"OA": "Overall", "TA": "Alignment", "VQ": "Visual quality", "MQ": "Motion quality"}
_MEASURES = (
    ("tau", "tau", "Of all pairs, labelled ties among them, those judged as labelled."),
    ("diff", "diff", "The same without the pairs that are labelled a tie."),
    ("calibrated", "tau, calibrated", "From probabilities, with the threshold for a tie that fits these pairs best."),
    ("sign", "diff, soft", "From probabilities alone: who is likelier, of pairs that are no tie."),
)
_PART = ("Pairs", "tau", "diff", "Always tie", "Commonest answer")
Json = Mapping[str, Any]


def evaluation(material: Material) -> Overview:
    """All figures of a run."""
    from vrt_lite.evaluation import figures_of  # noqa: PLC0415

    figures = figures_of(material.run)
    name = str(figures.get("title") or material.run.about.get("title") or material.run.name)
    try:
        name, content = call_set(figures), _told(material, figures)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        content = [_plain("Figures", figures)]
    lead = h("p", said(name), " · ", said(str(material.run.about.get("model", ""))), " · ", said(material.run.name))
    header = h("header", h("h1", _heading(figures), tabindex="-1"), lead, class_="verdict-of-set")
    return Overview(f"{_heading(figures)}: {name}", (header, *content))


def _heading(figures: Json) -> str:
    main: Any = figures.get("accuracy", {}).get(figures.get("main", "OA"), {}).get("tau", {}).get("value")
    return f"{100 * main:.1f}\u00a0% judged as people did" if isinstance(main, float | int) else "An evaluation"


def _told(material: Material, figures: Json) -> list[Node]:
    return [
        *_counted(figures),
        h("h2", "Beside people's labels"),
        _accuracy(figures),
        *_published(figures),
        h("h2", "By part"),
        *_parts(figures),
        *_plots(figures),
        h("h2", "What a judgement takes"),
        _cost(figures["cost"]),
        *_order(figures),
        *_failures(material, figures),
    ]


def _counted(figures: Json) -> list[Node]:
    pairs, left = figures["pairs"], figures["left_out"]
    words = f"{pairs['judged']} of {pairs['chosen']} pairs judged, {pairs['failed']} failed"
    words += f", {pairs['left']} left to judge" if pairs["left"] else ""
    words += "".join(f"; {count} rows {kind}" for kind, count in left.items() if count)
    return [h("p", f"{words}. Order: {figures['order']}. Intervals are 95 %, Wilson's.", class_="lead")]


def _accuracy(figures: Json) -> Element:
    rows: list[list[str]] = []
    notes = [h("li", h("b", title), ": ", words) for _, title, words in _MEASURES]
    words = "What saying a tie of every pair gets, and the label that most of them have; of a part as tau / diff."
    notes.append(h("li", h("b", "Always tie, commonest answer"), ": ", words))
    for key, of in cast("dict[str, dict[str, Any]]", figures["accuracy"]).items():
        name = _NAMES.get(key, key)
        rows.append([name, str(of["pairs"]), *(_share(of.get(measure)) for measure, _, _ in _MEASURES)])
        rows += [[f"{name}, {what}", "", tau, diff, "", ""] for what, tau, diff in tell_baselines(figures, key, _share)]
        if shared := tell_shared_prompts(name, of):
            notes.append(h("li", said(shared)))
    return h(
        "div",
        table("Accuracy", ["Dimension", "Pairs", *(title for _, title, _ in _MEASURES)], rows),
        h("ul", notes, class_="quiet"),
    )


def _published(figures: Json) -> list[Node]:
    known = figures.get("published")
    if not known:
        return []
    found: list[Node] = [h("h2", "Beside the published table")]
    if known["models"]:
        rows = [[name, f"{100 * tau:.1f}", f"{100 * diff:.1f}"] for name, (tau, diff) in known["models"].items()]
        if own := figures["accuracy"].get("OA"):
            rows.append(["This run", _share(own["tau"]), _share(own["diff"])])
        rows += [list(row) for row in tell_table_baselines(figures, "OA", _share)]
        found.append(table("Published", ["Model", "tau", "diff"], rows))
        found.append(h("p", "Published figures: ", said(str(known["source"])), class_="quiet"))
    if others := tell_other_splits(figures):
        found.append(h("p", said(others)))
    return found


def _part(name: str, of: Json) -> list[str]:
    """A part's row: its accuracy, and the baselines as "tau / diff"."""
    baselines = tell_part_baselines(of["baselines"], _value)
    return [name, str(of["pairs"]), _share(of["tau"]), _share(of["diff"]), *baselines]


def _parts(figures: Json) -> list[Node]:
    rows = [_part(str(of["name"]), of) for of in figures["subsets"]]
    units = {"clip": "s", "prompt": "characters"}
    for kind, bands in figures["bands"].items():
        for band in bands:
            rows.append(_part(f"{kind}: {band['low']:g} to {band['high']:g} {units.get(kind, '')}", band))
    rows += [_part(str(of["name"]), of) for of in figures["groups"]]
    return [table("By part", ["Part", *_PART], rows)]


def _plots(figures: Json) -> list[Node]:
    from vrt_lite.evaluation.plots import pictures  # noqa: PLC0415 - Pillow

    found: list[Node] = []
    for name, image in pictures(figures):
        written = io.BytesIO()
        image.quantize(128).save(written, "PNG", optimize=True)
        uri = f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
        alt = f"Plot: {name}. The figures are in the tables."
        picture = h("img", src=uri, alt=alt, width=image.width // 2, height=image.height // 2)
        found.append(h("figure", picture, class_="plot"))
    return [h("h2", "Plots"), h("div", found, class_="plots")] if found else []


def _cost(cost: Json) -> Element:
    rows = [
        [name, *(f"{spread[part]:.4g}" for part in ("mean", "median", "p95"))]
        for name in ("rounds", "calls", "seconds", "tokens")
        if (spread := cost[name])
    ]
    words = f"{cost['judgements']} judgements; {_share(cost['tool_rate'])} % asked for frames"
    words += f"; {_share(cost['recommended'])} % ended on a recommendation."
    return h("div", table("Cost", ["A judgement", "mean", "median", "95th percentile"], rows), h("p", words))


def _order(figures: Json) -> list[Node]:
    found: list[Node] = [h("h2", "Who is shown first")]
    of = figures["position"]
    words = f"The video shown first wins {_share(of['verdicts'])} % of the verdicts that are no tie, "
    found.append(h("p", words, f"and {_share(of['labels'])} % by the labels."))
    if figures["orders"]:
        orders = cast("dict[str, dict[str, Any]]", figures["orders"])
        named = [(name, orders[name]) for name in ("given", "swapped", "averaged") if name in orders]
        rows = [_part(name, of) for name, of in named]
        found.append(table("By order", ["Order", *_PART], rows))
        if effect := figures["orders"].get("effect"):
            points = [f"{100 * effect[part]:+.1f}".replace("-", "−") for part in ("tau", "low", "high")]
            change = f"{points[0]} points ({points[1]} to {points[2]})"
            found.append(h("p", f"Exchanging changes tau by {change}, over {effect['pairs']} pairs."))
        if undecided := orders.get("averaged", {}).get("undecided"):
            words = f"{undecided} pair(s) are undecided, as the two orders name opposite winners: never right."
            found.append(h("p", words))
        if disagree := figures["orders"].get("disagree"):
            told = "; ".join(
                f"{_NAMES[key].lower()} {_share(share)} %" for key, share in disagree.items() if key in _NAMES
            )
            found.append(h("p", f"The two orders disagree on: {told}."))
    return found


def _failures(material: Material, figures: Json) -> list[Node]:
    failures = figures["failures"]
    left_out = cast("list[str]", material.run.about.get("left_out_rows") or [])
    if not failures["first"] and not left_out:
        return []
    counts = ", ".join(f"{kind}: {count}" for kind, count in failures["counts"].items())
    rows = [
        [f"{of['name']} ({of['order']})", str(of["kind"]), str(of["why"])]
        for of in cast("list[dict[str, Any]]", failures["first"])
    ]
    found: list[Node] = [h("h2", "What could not be judged"), h("p", said(counts))]
    if rows:
        found.append(table("Failures", ["Pair", "Kind", "Why"], rows, class_="figures stacks", scrolls=False))
    total = sum(failures["counts"].values())
    if total > len(rows):
        found.append(h("p", f"And {total - len(rows)} more.", class_="quiet"))
    if left_out:
        lines = [h("li", said(line)) for line in left_out]
        summary = h("summary", f"Rows of the table that are no pair to judge ({sum(figures['left_out'].values())})")
        found.append(h("details", summary, h("ul", lines, class_="listed")))
    return found


def table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, class_: str = "figures", scrolls: bool = True
) -> Element:
    """A table whose first column names its rows; it scrolls by itself where it is wider than the page."""
    plain = "stacks" in class_
    made = h(
        "table",
        h("caption", caption, class_="unseen"),
        h("thead", h("tr", [h("th", name, scope="col", class_=_side(i, plain)) for i, name in enumerate(head)])),
        h("tbody", [_line(row, plain) for row in rows]),
        class_=class_,
    )
    return h("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption) if scrolls else made


def _line(row: Sequence[str], plain: bool) -> Element:
    cells: Content = [h("td", said(cell), class_=_side(i, plain)) for i, cell in enumerate(row[1:], start=1)]
    return h("tr", h("th", said(row[0]), scope="row"), cells)


def _side(column: int, plain: bool) -> str | None:
    return "number" if column and not plain else None


def _share(share: Any) -> str:
    """A share in per cent, with its interval if it has one."""
    if not isinstance(share, dict):
        return "–"
    of = cast("dict[str, Any]", share)
    if of.get("value") is None:
        return "–"
    return f"{_value(of)}\u00a0 ({100 * of['low']:.1f} to {100 * of['high']:.1f})"


def _value(share: Json) -> str:
    return "–" if share["value"] is None else f"{100 * share['value']:.1f}"


def _plain(title: str, values: Any) -> Element:
    """Figures of any shape, as nested tables."""
    rows = [[name, value] for name, value in _flat(values)]
    return h("div", h("h3", title), table(title, ["Figure", "Value"], rows, class_="figures stacks", scrolls=False))


def _flat(values: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(values, dict):
        items = [(str(name), value) for name, value in cast("dict[Any, Any]", values).items()]
    elif isinstance(values, list):
        items = [(str(number), value) for number, value in enumerate(cast("list[Any]", values), start=1)]
    else:
        return [(prefix, "–" if values is None else str(values))]
    return [line for name, value in items for line in _flat(value, f"{prefix}, {name}" if prefix else name)]
