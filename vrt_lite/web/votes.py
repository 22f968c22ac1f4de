"""What a person saw: blind votes on the pairs of a run, kept with the run, and how far each judge agrees with them."""

from __future__ import annotations

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgspec

from vrt_lite.clip_files import is_clip_there
from vrt_lite.evaluation.metrics import share
from vrt_lite.ranking.rank_run import read_rank_about
from vrt_lite.records.pairs import JudgedPair
from vrt_lite.runs.export import csv_line
from vrt_lite.runs.run import Run
from vrt_lite.runs.store import Store
from vrt_lite.web.refusals import RefusedRequestError

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

    def next_pair(self, run: Run, make_address: Callable[[Path], str]) -> dict[str, Any]:
        """Return the next pair without a vote whose clips can be played, as plain data: where, and its ticket.

        The ticket is None if there is none. Also tells how many pairs there are, and votes.
        """
        voted = {key for key, _ in run.items(_ITEM)}
        pairs = [pair for pair in run.pairs() if pair.first != pair.second]
        places = {sha256: make_address(path) for sha256, path in _find_clips(run).items() if is_clip_there(path)}
        told: dict[str, Any] = {"pairs": len(pairs), "votes": len(voted), "ticket": None}
        for pair in pairs:
            if _key(pair) not in voted and places.get(pair.first) and places.get(pair.second):
                left, right = secrets.SystemRandom().sample((pair.first, pair.second), 2)
                ticket = secrets.token_urlsafe(12)
                self._keep_ticket(ticket, (run.name, PersonVote(left, right, pair.prompt)))
                sides = {"left": places[left], "right": places[right]}
                return told | {"ticket": ticket, "prompt": pair.prompt, **sides}
        return told

    def vote(self, ticket: str, choice: int) -> None:
        """Keep a vote: 1 for the left clip, 2 for the right one, 0 for no difference. A ticket counts once.

        The vote is on the disk on return. After an error the ticket counts again.
        """
        with self._lock:
            given = self._tickets.pop(ticket, None)
        if given is None:
            raise RefusedRequestError(409, "ticket", "This pair was voted on, or asked for long ago. Ask for the next.")
        name, pair = given
        kept = msgspec.structs.asdict(pair) | {"winner": choice, "made": time.time()}
        try:
            self._store.run(name).put(_ITEM, _key(pair), kept, lasting=True)
        except BaseException:
            self._keep_ticket(ticket, given)
            raise

    def _keep_ticket(self, ticket: str, given: tuple[str, PersonVote]) -> None:
        with self._lock:
            self._tickets[ticket] = given
            if len(self._tickets) > _MOST_TICKETS:
                self._tickets.popitem(last=False)


def read_votes(run: Run) -> list[PersonVote]:
    """Read the votes of a run, in the order in which they were made."""
    return [msgspec.convert(value, PersonVote) for _, value in run.items(_ITEM)]


def write_table(run: Run) -> Iterator[str]:
    """Yield the lines of the table that `vrt-lite eval` reads: a, b, prompt, overall, id."""
    paths = _find_clips(run)
    yield csv_line(("a", "b", "prompt", "overall", "id"))
    for number, vote in enumerate(read_votes(run), start=1):
        a, b = (str(paths.get(sha256, f"{sha256}.missing")) for sha256 in (vote.first, vote.second))
        yield csv_line((a, b, vote.prompt, _LETTERS[vote.winner], number))


def measure_agreement(run: Run, store: Store) -> list[dict[str, Any]]:
    """Compare the votes of a run with each judge that judged the same clips, in any run of the store.

    Returns for each judge the share of the pairs that it agrees on, with Wilson's 95 % interval. A tie
    agrees with a tie; an undecided pair agrees with none.
    """
    votes = {_key(vote): vote for vote in read_votes(run)}
    clips = {sha256 for vote in votes.values() for sha256 in (vote.first, vote.second)}
    agreed: dict[str, dict[str, bool]] = {}
    for other in (run, *_runs_with(clips, store, run)):
        for pair in other.pairs():
            vote = votes.get(_key(pair))
            if vote and pair.overall:
                said = pair.overall if pair.first == vote.first else pair.overall.mirrored()
                agrees = not said.undecided and said.winner == vote.winner
                agreed.setdefault(other.about.get("model", "unknown"), {}).setdefault(_key(pair), agrees)
    shares = {judge: share(sum(by_pair.values()), len(by_pair)) for judge, by_pair in agreed.items()}
    return [{"judge": judge, **msgspec.structs.asdict(of)} for judge, of in shares.items()]


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
