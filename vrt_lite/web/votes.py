"""What a person saw: blind votes on the pairs of a run, kept with the run, and how far each judge agrees with them."""

from __future__ import annotations

import json
import secrets
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from vrt_lite.evaluation.metrics import share
from vrt_lite.ranking.rank_run import read_rank_about
from vrt_lite.records.judgement import PlainData
from vrt_lite.records.pairs import JudgedPair
from vrt_lite.runs.export import csv_line
from vrt_lite.runs.store import Run, Store
from vrt_lite.web.requests import RefusedRequestError

_ITEM: Final = "vote"
_MOST_TICKETS = 10_000
_LETTERS = ("same", "A", "B")


class PersonVote(msgspec.Struct, frozen=True):
    """A vote on a pair, by its clips' sha256: `first` was on the left side."""

    first: str
    second: str
    prompt: str
    winner: int = 0
    made: float = 0.0


class VoteBox:
    """Hands out pairs of runs, each side at random, and takes the votes. Nobody is told which side is which clip."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._tickets: OrderedDict[str, tuple[str, PersonVote]] = OrderedDict()

    def next_pair(self, run: Run, make_address: Callable[[Path], str]) -> PlainData:
        """Return the next pair without a vote whose clips can be played, as plain data: where, and its ticket.

        The ticket is None if there is none. Also tells how many pairs there are, and votes.
        """
        voted = {key for key, _ in run.items(_ITEM)}
        pairs = [pair for pair in run.pairs() if pair.first != pair.second]
        places = {sha256: make_address(path) for sha256, path in _find_clips(run).items()}
        told: PlainData = {"pairs": len(pairs), "votes": len(voted), "ticket": None}
        for pair in pairs:
            if _key(pair) not in voted and places.get(pair.first) and places.get(pair.second):
                left, right = secrets.SystemRandom().sample((pair.first, pair.second), 2)
                ticket = secrets.token_urlsafe(12)
                with self._lock:
                    self._tickets[ticket] = run.name, PersonVote(left, right, pair.prompt)
                    if len(self._tickets) > _MOST_TICKETS:
                        self._tickets.popitem(last=False)
                sides = {"left": places[left], "right": places[right]}
                return told | {"ticket": ticket, "prompt": pair.prompt, **sides}
        return told

    def vote(self, ticket: str, choice: int) -> None:
        """Keep a vote: 1 for the left clip, 2 for the right one, 0 for no difference. A ticket counts once.

        The vote is on the disk on return. After an error the ticket counts again.
        """
        with self._lock:
            if ticket not in self._tickets:
                message = "This pair was voted on, or asked for long ago. Ask for the next."
                raise RefusedRequestError(409, "ticket", message)
            name, pair = self._tickets[ticket]
            vote = replace(pair, winner=choice, made=time.time())
            self._store.run(name).put(_ITEM, _key(vote), asdict(vote), lasting=True)
            del self._tickets[ticket]


def write_table(run: Run) -> Iterator[str]:
    """Yield the lines of the table that `vrt-lite eval` reads: a, b, prompt, overall, id."""
    paths = _find_clips(run)
    yield csv_line(("a", "b", "prompt", "overall", "id"))
    for number, (_, vote) in enumerate(run.items(_ITEM, PersonVote), start=1):
        a, b = (str(paths.get(sha256, f"{sha256}.missing")) for sha256 in (vote.first, vote.second))
        yield csv_line((a, b, vote.prompt, _LETTERS[vote.winner], number))


def measure_agreement(run: Run, store: Store) -> list[PlainData]:
    """Compare the votes of a run with each judge that judged the same clips, in any run of the store.

    Returns for each judge the share of the pairs that it agrees on, with Wilson's 95 % interval. A tie
    agrees with a tie; an undecided pair agrees with none.
    """
    votes = dict(run.items(_ITEM, PersonVote))
    clips = {sha256 for vote in votes.values() for sha256 in (vote.first, vote.second)}
    agreed = defaultdict[str, dict[str, bool]](dict)
    for other in (run, *_runs_with(clips, store, run)):
        for pair in other.pairs():
            key = _key(pair)
            if key in votes and pair.overall:
                said = pair.overall if pair.first == votes[key].first else pair.overall.mirrored()
                agrees = not said.undecided and said.winner == votes[key].winner
                agreed[other.about.get("model", "unknown")].setdefault(key, agrees)
    shares = {judge: share(sum(by_pair.values()), len(by_pair)) for judge, by_pair in agreed.items()}
    return [{"judge": judge, **asdict(of)} for judge, of in shares.items()]


def _find_clips(run: Run) -> dict[str, Path]:
    """Find where the clips of a run lay when they were judged, by their sha256."""
    if run.kind == "rank":
        return {clip.sha256: Path(clip.path) for clip in read_rank_about(run).clips}
    found: dict[str, Path] = {}
    for pair in run.pairs():
        if not {pair.first, pair.second} <= found.keys() and (judgement := run.read_pair(pair)):
            found |= {clip.sha256: Path(clip.path) for clip in judgement.inputs}
    return found


def _runs_with(clips: set[str], store: Store, this: Run) -> Iterator[Run]:
    """Yield the other rankings in which some of these clips take part, and all comparisons."""
    for info in store.runs():
        groups: Any = info.about.get("groups") or ()
        takes_part = info.kind == "rank" and any(clip["sha256"] in clips for group in groups for clip in group["clips"])
        if info.name != this.name and (takes_part or info.kind == "compare"):
            yield store.run(info.name)


def _key(pair: PersonVote | JudgedPair) -> str:
    """Return what a vote is kept by: both clips, in either order, and the prompt."""
    return json.dumps([*sorted((pair.first, pair.second)), pair.prompt])
