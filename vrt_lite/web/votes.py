"""What a person saw: blind votes on the pairs of a run, kept with the run, and how far each judge agrees with them."""

from __future__ import annotations

import csv
import io
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

from vrt_lite.errors import UsageError
from vrt_lite.evaluation.metrics import share
from vrt_lite.protocol.verdict import MIRROR
from vrt_lite.ranking.rank_run import read_rank_about
from vrt_lite.records.pairs import JudgedPair
from vrt_lite.runs.run import Run
from vrt_lite.runs.store import Store
from vrt_lite.web.refusals import RefusedRequestError

_ITEM: Final = "vote"
_MOST_TICKETS = 10_000
_LETTERS = {0: "same", 1: "A", 2: "B"}


@dataclass(frozen=True, slots=True)
class BlindPair:
    """A pair to vote on. `exchanged`: the left side shows the pair's second clip."""

    run: str
    first: str
    second: str
    prompt: str
    exchanged: bool


class VoteBox:
    """Hands out pairs of runs, each side at random, and takes the votes. Nobody is told which side is which clip."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._tickets: OrderedDict[str, BlindPair] = OrderedDict()

    def next_pair(self, run: Run, playable: Any) -> tuple[str, BlindPair] | None:
        """Return the next pair without a vote whose clips are `playable`, and its ticket; None if there is none."""
        voted = {key for key, _ in run.items(_ITEM)}
        for pair in run.pairs():
            if _key(pair) in voted or not (playable(pair.first) and playable(pair.second)):
                continue
            if pair.first != pair.second:
                given = BlindPair(run.name, pair.first, pair.second, pair.prompt, bool(secrets.randbelow(2)))
                ticket = secrets.token_urlsafe(12)
                with self._lock:
                    self._tickets[ticket] = given
                    while len(self._tickets) > _MOST_TICKETS:
                        self._tickets.popitem(last=False)
                return ticket, given
        return None

    def vote(self, ticket: str, choice: int) -> None:
        """Keep a vote: 1 for the left clip, 2 for the right one, 0 for no difference. A ticket counts once.

        The vote is on the disk on return. After an error the ticket counts again.
        """
        with self._lock:
            pair = self._tickets.pop(ticket, None)
        if pair is None:
            raise RefusedRequestError(409, "ticket", "This pair was voted on, or asked for long ago. Ask for the next.")
        winner = MIRROR[choice] if pair.exchanged else choice  # type: ignore[index]
        kept = {"first": pair.first, "second": pair.second, "prompt": pair.prompt, "winner": winner}
        about = {"exchanged": pair.exchanged, "made": time.time()}
        try:
            self._store.run(pair.run).put(_ITEM, _key(pair), kept | about, lasting=True)
        except BaseException:
            with self._lock:
                self._tickets[ticket] = pair
            raise


def read_votes(run: Run) -> list[dict[str, Any]]:
    """Read the votes of a run, in the order in which they were made."""
    return [value for _, value in run.items(_ITEM)]


def count_pairs(run: Run) -> int:
    """Count the pairs of a run that can be voted on."""
    return sum(pair.first != pair.second for pair in run.pairs())


def write_table(run: Run) -> Iterator[str]:
    """Yield the lines of the table that `vrt-lite eval` reads: a, b, prompt, overall, id."""
    paths = find_clips(run)
    yield _line(("a", "b", "prompt", "overall", "id"))
    for number, vote in enumerate(read_votes(run), start=1):
        a, b = (paths.get(vote[side], Path(f"{vote[side]}.missing")) for side in ("first", "second"))
        yield _line((str(a), str(b), vote["prompt"], _LETTERS[vote["winner"]], str(number)))


def find_clips(run: Run) -> dict[str, Path]:
    """Find where the clips of a run lay when they were judged, by their sha256."""
    found: dict[str, Path] = {}
    if run.kind == "rank":
        found = {clip.sha256: Path(clip.path) for clip in read_rank_about(run).clips}
    for pair in run.pairs():
        if pair.first in found and pair.second in found:
            continue
        for result in pair.results:
            if judgement := run.judgement(result.key):
                for clip in judgement.inputs:
                    found.setdefault(clip.sha256, Path(clip.path))
    return found


def measure_agreement(run: Run, store: Store) -> list[dict[str, Any]]:
    """Compare the votes of a run with each judge that judged the same clips, in any run of the store.

    Returns for each judge the pairs that it agrees on, of how many, and the share with Wilson's 95 % interval. A tie
    agrees with a tie; an undecided pair agrees with none.
    """
    votes = {_key(vote): vote for vote in map(_as_pair, read_votes(run))}
    agreed: dict[str, dict[str, bool]] = {}
    clips = {vote.first for vote in votes.values()} | {vote.second for vote in votes.values()}
    winners = {_key(_as_pair(vote)): vote["winner"] for vote in read_votes(run)}
    for other in (run, *_runs_with(clips, store, run)):
        for pair in other.pairs():
            key = _key(pair)
            if key not in votes or pair.overall is None:
                continue
            judge = _name_judge(other, pair)
            said = pair.overall if pair.first == votes[key].first else pair.overall.mirrored()
            agreed.setdefault(judge, {}).setdefault(key, not said.undecided and said.winner == winners[key])
    told: list[dict[str, Any]] = []
    for judge, by_pair in agreed.items():
        of = share(sum(by_pair.values()), len(by_pair))
        told.append(
            {"judge": judge, "agrees": of.right, "of": of.of, "share": of.value, "low": of.low, "high": of.high}
        )
    return told


def _runs_with(clips: set[str], store: Store, this: Run) -> Iterator[Run]:
    """Yield the other rankings in which some of these clips take part, and all comparisons."""
    for info in store.runs():
        listed: Any = info.about.get("clips") or ()
        takes_part = info.kind == "rank" and any(clip.get("sha256") in clips for clip in listed)
        if info.name != this.name and (takes_part or info.kind == "compare"):
            yield store.run(info.name)


def _name_judge(run: Run, pair: JudgedPair) -> str:
    found = next((judgement for of in pair.results if (judgement := run.judgement(of.key))), None)
    return found.model.name if found else "unknown"


def _as_pair(vote: dict[str, Any]) -> BlindPair:
    try:
        return BlindPair("", vote["first"], vote["second"], vote["prompt"], bool(vote["exchanged"]))
    except KeyError as error:
        raise UsageError(f"A vote in the store lacks {error}.") from error


def _key(pair: BlindPair | JudgedPair) -> str:
    """Return what a vote is kept by: both clips, in either order, and the prompt."""
    return json.dumps([*sorted((pair.first, pair.second)), pair.prompt])


def _line(cells: tuple[str, ...]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(cells)
    return written.getvalue()
