"""Ranks a folder with the judge of the ladder's world, to be killed at any moment: a line in a file a judgement.

python killed_worker.py STORE FOLDER PROMPT LINES
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from vrt_lite.api import Judge
from vrt_lite.ranking.entries import read_entries
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.show.run_views import RankingView
from vrt_lite.show.screen import Screen


class Traced(Judge):
    """Says which pair it judges, before it does."""

    lines: Path

    def compare(self, a: str | Path, b: str | Path, **options: Any) -> Judgement:
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(f"{Path(a).name} {Path(b).name}\n")
        return super().compare(a, b, **options)


def main(store: str, folder: str, prompt: str, lines: str) -> None:
    Traced.lines = Path(lines)
    with Store(Path(store)) as opened, Traced("vrt-tiny-2") as judge:
        groups = read_entries([folder], prompt=prompt)
        ranking = rank_clips(groups, store=opened, judge=judge, watcher=RankingView(Screen(io.StringIO(), quiet=True)))
    [ladder] = ranking.ladders
    print(*(ladder.clips[standing.clip].name for standing in ladder.standings))


if __name__ == "__main__":
    main(*sys.argv[1:])
