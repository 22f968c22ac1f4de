"""The pairs of a run: both orders of each pair joined.

There may be tens of thousands of pairs: only light columns are kept, and one whole judgement is in memory at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vrt_lite.joining import exchange_clips, join_judgements
from vrt_lite.judgement import Judgement
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import BothOrders, Preference, Verdict, join_orders
from vrt_lite.runs.both_orders import select_counted
from vrt_lite.runs.question import Result
from vrt_lite.runs.run import Run


@dataclass(slots=True)
class PairOfRun:
    """Two clips and a prompt, in the order first judged, and the judgement that counts for each order.

    For each judgement there are its key, whether it showed the clips exchanged, and its error or its source.
    `verdicts` are about the clips in this order: the first one for each order shown.
    """

    first: str
    second: str
    prompt: str
    keys: list[str] = field(default_factory=list[str])
    exchanged: list[bool] = field(default_factory=list[bool])
    verdicts: dict[bool, Verdict] = field(default_factory=dict[bool, Verdict])
    errors: list[str] = field(default_factory=list[str])
    sources: list[str] = field(default_factory=list[str])

    def add(self, result: Result) -> None:
        """Add a judgement."""
        exchanged = result.first != self.first
        self.keys.append(result.key)
        self.exchanged.append(exchanged)
        self.sources.append(result.source)
        if result.verdict is None:
            self.errors.append(result.error)
        else:
            self.verdicts.setdefault(exchanged, result.verdict.mirrored() if exchanged else result.verdict)

    @property
    def orders_disagree(self) -> bool:
        """Whether the two orders choose differently overall."""
        return bool(self.joined and OVERALL in self.joined.disagreements)

    @property
    def overall(self) -> Preference | None:
        """The overall result of both orders; None without any verdict."""
        return self.joined.verdict.overall if self.joined else None

    @property
    def joined(self) -> BothOrders | None:
        """Both orders joined; None without any verdict."""
        return join_orders(self.verdicts.get(False), self.verdicts.get(True))


def read_pairs(run: Run) -> list[PairOfRun]:
    """Read the pairs of a run, in the order first judged."""
    found: dict[tuple[str, str, str], PairOfRun] = {}
    for result in select_counted(run.results()).values():
        low, high = sorted((result.first, result.second))
        pair = found.setdefault((low, high, result.prompt), PairOfRun(result.first, result.second, result.prompt))
        pair.add(result)
    return list(found.values())


def read_pair(run: Run, pair: PairOfRun) -> Judgement | None:
    """Read the judgements of a pair and join them, its clips in the pair's order; None if there is no verdict."""
    joined: Judgement | None = None
    for key, exchanged in zip(pair.keys, pair.exchanged, strict=True):
        stored = run.judgement(key)
        if stored is None:
            continue
        read = exchange_clips(stored) if exchanged else stored
        if joined is None:
            joined = read
        elif {order.first for order in joined.orders}.isdisjoint(order.first for order in read.orders):
            joined = join_judgements(joined, read)
    return joined
