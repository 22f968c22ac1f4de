"""What was not judged has no value anywhere: one prompt that the bundled judge does not read, and all that is told.

`JSON_OF`, `TEXT_OF`, `PAGE_OF` and `TABLE_OF` name every place where a verdict is told. A new place is added there.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest
from clips import write_clip
from reports import Report
from rich.console import Console
from web.comfyui_pack import load_pack
from web.conftest import end, say, start

from vrt_lite.records.judgement import Judgement
from vrt_lite.show.panel import draw_verdict

PROMPT = "A fox runs through snow."
VALUE = re.compile(r"(?:\bTA\b|\balignment)[^\w–-]{0,6}(?:\bTA\b[^\w–-]{0,6})?(?:\d|tie|video|undecided|leans)", re.I)
"""A value of alignment in a text, as any of these places would write one."""
QUOTED: Final = ("text", "snapshot", "thought")
"""Fields of a record that quote the judge word for word."""
WORDING: Final = (("settings", "dimensions", "TA"), ("Settings", "dimensions", "TA"))
"""What the judge was told that alignment is."""


class Walk:
    """A server that has judged both clips in each of its ways, and a folder for what is written."""

    def __init__(self, folder: Path) -> None:
        self.served, self.folder = start(folder / "served", "--allow", folder), folder
        self.clips = [str(write_clip(folder / f"{n}.mp4", frames=n, size=(126, 70))) for n in (16, 24)]
        self.answer = self.post("/v1/compare", a=self.clips[0], b=self.clips[1], both_orders=True)
        self.post("/v1/rank", clips=self.clips, name="foxes", wait=True)
        jobs = {job["kind"]: job for job in self.get("/v1/jobs")["jobs"]}
        self.comparison, self.ranking = (f"/v1/jobs/{jobs[kind]['id']}" for kind in ("compare", "rank"))
        self.compared, self.ranked = (self.get(job)["result"]["run"] for job in (self.comparison, self.ranking))

    @cached_property
    def record(self) -> Any:
        return json.loads(self.compare("--orders", "both", "--json", "--quiet"))

    @cached_property
    def judgement(self) -> Judgement:
        return Judgement.from_json(self.record)

    def post(self, path: str, **body: Any) -> Any:
        answer = self.served.post(path, prompt=PROMPT, **body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def read(self, path: str, **query: str) -> str:
        answer = self.served.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def get(self, path: str, **query: str) -> Any:
        return json.loads(self.read(path, **query))

    def events(self, job: str) -> list[Any]:
        lines = self.read(f"{job}/events").splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    def say(self, *arguments: str) -> str:
        return say(self.served, *arguments)

    def compare(self, *options: str) -> str:
        return self.say("compare", *self.clips, "--prompt", PROMPT, *options)

    def export(self, run: str, form: str) -> str:
        path = self.folder / f"run.{form}"
        self.say("export", run, "-o", str(path), "--overwrite")
        return path.read_text(encoding="utf-8")

    def report(self, run: str) -> list[Any]:
        """What a run's report holds: the overview, the list of pairs, the pairs, and the table."""
        path = self.folder / "run.html"
        self.say("report", run, "-o", str(path), "--overwrite")
        found = Report(path)
        return [found.record, found.index, found.pairs, found.table]

    def report_of_pair(self) -> list[Any]:
        path = self.folder / "pair.html"
        self.compare("--orders", "both", "--report", str(path))
        return [Report(path).record, Report(path).table]

    def view(self, run: str) -> list[Any]:
        """What the server's page of a run gets."""
        return [self.get("/view/run", run=run), self.get("/view/pair", run=run, pair="1")]

    def node(self, name: str) -> str:
        """What a ComfyUI node tells in words."""
        with load_pack() as pack:
            clips = [pack.file(clip) for clip in self.clips]
            given = {"videos": clips} if name == "VrtLiteRank" else {"video_1": clips[0], "video_2": clips[1]}
            told = pack.run(name, **given, prompt=PROMPT, server=self.served.url)
        return "\n".join(text for text in told if isinstance(text, str))

    def panel(self, width: int) -> str:
        with io.StringIO() as file:
            console = Console(file=file, width=width)
            console.print(draw_verdict(self.judgement, console))
            return " ".join(file.getvalue().replace("│", " ").split())


def parse_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


JSON_OF: dict[str, Callable[[Walk], Any]] = {
    "compare --json": lambda w: w.record,
    "a record that is read": lambda w: w.judgement.to_json(),
    "/v1/compare": lambda w: w.answer,
    "/v1/rewards": lambda w: w.post("/v1/rewards", clips=w.clips),
    "/v1/jobs": lambda w: w.get("/v1/jobs"),
    "a job that compares": lambda w: w.get(w.comparison),
    "a job that ranks": lambda w: w.get(w.ranking),
    "the events of a comparison": lambda w: w.events(w.comparison),
    "the events of a ranking": lambda w: w.events(w.ranking),
    "show --json of a ranking": lambda w: json.loads(w.say("show", w.ranked, "--json")),
    "show --json of comparisons": lambda w: json.loads(w.say("show", w.compared, "--json")),
    "JSON lines": lambda w: parse_lines(w.export(w.ranked, "jsonl")),
    "/v1/run/export": lambda w: parse_lines(w.read("/v1/run/export", run=w.compared, format="jsonl")),
    "/v1/votes/next": lambda w: w.get("/v1/votes/next", run=w.compared),
}
TEXT_OF: dict[str, Callable[[Walk], str]] = {
    "plain lines": lambda w: w.compare(),
    "plain lines, verbose": lambda w: w.compare("--orders", "both", "--verbose"),
    "the panel": lambda w: w.panel(88),
    "the narrow panel": lambda w: w.panel(40),
    "rank": lambda w: w.say("rank", *w.clips, "--prompt", PROMPT),
    "show of a ranking": lambda w: w.say("show", w.ranked),
    "the node": lambda w: w.node("VrtLiteCompare"),
    "the node that ranks": lambda w: w.node("VrtLiteRank"),
    "the words of a job": lambda w: "\n".join(w.get(w.comparison)["result"]["lines"]),
    "the live leaderboard": lambda w: json.dumps(w.events(w.ranking)),
}
PAGE_OF: dict[str, Callable[[Walk], list[Any]]] = {
    "the report of a pair": lambda w: w.report_of_pair(),
    "the report of comparisons": lambda w: w.report(w.compared),
    "the report of a ranking": lambda w: w.report(w.ranked),
    "the page of comparisons": lambda w: w.view(w.compared),
    "the page of a ranking": lambda w: w.view(w.ranked),
    "the verdict of a job": lambda w: [w.get(w.comparison.replace("/v1/", "/view/"))],
}
TABLE_OF: dict[str, Callable[[Walk], str]] = {
    "export of a ranking": lambda w: w.export(w.ranked, "csv"),
    "export of comparisons": lambda w: w.export(w.compared, "csv"),
    "/v1/run/export": lambda w: w.read("/v1/run/export", run=w.ranked, format="csv"),
}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    found = Walk(tmp_path_factory.mktemp("walk"))
    yield found
    end(found.served)


def find_values(
    data: Any, path: tuple[str, ...] = (), *, quoted: bool = False
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what is said of alignment in plain data, and where: by its key, in a list of keys, or in a text.

    What is `quoted` of the judge is looked at if that is wanted.
    """
    if isinstance(data, dict):
        for name, value in data.items():
            if name.startswith("TA") and (*path, name)[-3:] not in WORDING:
                yield (*path, name), value
            yield from find_values(value, (*path, name), quoted=quoted)
    elif isinstance(data, list):
        for value in data:
            yield from find_values(value, path, quoted=quoted)
    elif isinstance(data, str) and (quoted or path[-1] not in QUOTED) and (data == "TA" or VALUE.search(data)):
        yield path, data


@pytest.mark.parametrize("place", JSON_OF)
def test_in_plain_data_it_is_null(walk: Walk, place: str) -> None:
    data = JSON_OF[place](walk)
    assert data
    assert [found for found in find_values(data) if found[1] is not None] == []


@pytest.mark.parametrize("place", TEXT_OF)
def test_in_words_it_is_not_judged(walk: Walk, place: str) -> None:
    text = TEXT_OF[place](walk)
    assert "not judged" in text
    assert VALUE.findall(text) == []


@pytest.mark.parametrize("place", PAGE_OF)
def test_a_page_gets_no_value_of_it_not_even_quoted(walk: Walk, place: str) -> None:
    data = PAGE_OF[place](walk)
    found = [(path, value) for path, value in find_values(data, quoted=True) if "names" not in path]
    assert [of for of in found if of[1] not in (None, "not judged")] == []
    assert "not judged" in json.dumps(data).lower()


@pytest.mark.parametrize("place", TABLE_OF)
def test_in_a_table_it_is_empty(walk: Walk, place: str) -> None:
    rows = list(csv.DictReader(io.StringIO(TABLE_OF[place](walk))))
    assert rows
    assert {name: value for row in rows for name, value in row.items() if name.startswith("TA") and value} == {}
    assert not any("TA" in row["orders disagree on"] for row in rows)
    assert all("alignment (TA) is not judged" in row["warnings"] for row in rows)


def test_the_other_dimensions_are_there(walk: Walk) -> None:
    """What is looked for is found where it was judged: the walk is not blind."""
    quality = {path for path, _ in find_values(json.loads(json.dumps(walk.answer).replace('"VQ"', '"TA"')))}
    assert {("verdict", "dimensions", "TA"), ("orders", "rounds", "answer", "TA")} <= quality
    assert re.search(VALUE.pattern.replace("TA", "VQ"), walk.node("VrtLiteCompare"), re.IGNORECASE)
