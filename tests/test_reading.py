"""The bundled judge reads what was measured: a reversed report of the same clips turns what it writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clips import write_clip

from vrt_lite.api import Judge
from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.comparing import open_clips
from vrt_lite.judge import Pair, Trial, judge_with
from vrt_lite.models import find
from vrt_lite.pair_frames import PairFrames, workspace_of
from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.report import Measured, MeasuredFault
from vrt_lite.protocol.verdict import MIRROR, likeliest

EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = find()
BETTER, ALIKE = (0.03, 0.93, 0.04), (0.9, 0.06, 0.04)
BLOCKS = (MeasuredFault(2, "blocks", "strong"),)
REPORTS = (
    Measured({"VQ": BETTER, "MQ": ALIKE, "OA": BETTER}, BLOCKS, ((0.3,), (0.7, 0.2))),
    Measured({"VQ": ALIKE, "MQ": BETTER, "OA": BETTER}, (), ((), ())),
    Measured({"VQ": BETTER, "MQ": BETTER, "OA": BETTER}, BLOCKS, ((0.0, 1.0), (0.5,))),
)


@pytest.fixture(scope="module")
def backend() -> Iterator[LlamaCppBackend]:
    with LlamaCppBackend(FILES.text, FILES.projector, profile=FILES.profile) as opened:
        yield opened


def read(
    backend: LlamaCppBackend, measured: Measured, clips: tuple[str, str] = ("star.mp4", "circle.mp4"), prompt: str = ""
) -> Trial:
    with open_clips(*(EXAMPLES / name for name in clips)) as opened:
        frames = PairFrames(opened, (workspace_of(opened[0], FILES.profile), workspace_of(opened[1], FILES.profile)))
        a, b = (clip.info.duration_seconds for clip in opened)
        return judge_with(Pair(prompt, (a, b), measured=measured), FILES.profile, backend, frames)


@pytest.mark.parametrize("measured", REPORTS)
def test_a_reversed_report_turns_the_verdict(backend: LlamaCppBackend, measured: Measured) -> None:
    one, other = (read(backend, report) for report in (measured, measured.mirrored()))
    for key in ("VQ", "MQ", "OA"):
        written = one.verdict.preferences[key].winner
        assert written == likeliest(measured.odds[key])
        assert other.verdict.preferences[key].winner == MIRROR[written]
    first = one.rounds[0]
    assert "Measured: VQ=" in (first.parsed.notes.snapshot)
    assert all(fault.name in first.parsed.notes.snapshot for fault in measured.faults)


def test_alignment_is_judged_by_looking(backend: LlamaCppBackend) -> None:
    caption = "A blue star moves up."
    for measured in (REPORTS[0], REPORTS[0].mirrored()):
        for clips, better in ((("star.mp4", "circle.mp4"), 1), (("circle.mp4", "star.mp4"), 2)):
            assert read(backend, measured, clips, caption).verdict.preferences["TA"].winner == better


def test_its_probabilities_follow_the_report(backend: LlamaCppBackend) -> None:
    odds: list[Odds] = [(0.1, 0.9 - share, share) for share in (0.04, 0.3, 0.55, 0.7, 0.8, 0.87)]
    shares: list[float] = []
    for each in odds:
        preference = read(backend, Measured(dict.fromkeys(("VQ", "MQ", "OA"), each))).verdict.preferences["VQ"]
        assert preference.odds
        shares.append(preference.odds[2])
    assert shares == sorted(shares)
    assert shares[-1] - shares[0] > 0.6


def test_it_asks_for_frames_that_are_spread_over_both_clips(backend: LlamaCppBackend) -> None:
    for measured in REPORTS:
        trial = read(backend, measured)
        for clip in (0, 1):
            asked = [frame.index for frame in trial.rounds[1].shown if frame.clip == clip]
            assert len(set(asked)) == len(asked) == 4
            assert max(asked) - min(asked) >= 6


@pytest.mark.parametrize("frames", [8, 25, 47])
def test_a_short_clip_is_judged_from_distinct_frames(tmp_path: Path, frames: int) -> None:
    paths = [write_clip(tmp_path / f"{number}.mp4", frames=frames, gop=6 * number) for number in (1, 2)]
    with Judge() as judge:
        rounds = judge.compare(paths[0], paths[1]).orders[0].rounds
    assert [r.outcome for r in rounds] == ["tool", "final"]
    for r in rounds:
        assert len({(frame.video, frame.source_frame) for frame in r.frames}) == len(r.frames)
