"""What an effort limits, what it leaves to the user and to the checkpoint, and where it is said."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from judgements import FINAL, call
from reports import Report
from rich.console import Console

from vrt_lite.api import Judge
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.cli import run
from vrt_lite.errors import UsageError
from vrt_lite.interfaces import FrameStore, Sampling
from vrt_lite.models import find
from vrt_lite.profile import Profile, check, default_profile
from vrt_lite.protocol.messages import Conversation, Reply
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import EFFORTS, EffortName, Settings
from vrt_lite.show import verdict_lines
from vrt_lite.show.panel import VerdictPanel
from vrt_lite.viewer import write_report

TOKEN = 784
CALLS = [call(9, 57), call(10, 58), call(11, 59), call(12, 60), FINAL]
SAID = "effort quick: frames of at most 200704 pixels, at most 2 rounds, replies of at most 512 tokens"


class Listener(ScriptedBackend):
    """A script that keeps what each reply was limited to."""

    def __init__(self) -> None:
        super().__init__(CALLS)
        self.limits: list[int] = []

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, **options: Any) -> Reply:
        self.limits.append(sampling.max_new_tokens)
        return super().reply(conversation, frames, sampling=sampling, **options)


def limits(profile: Profile) -> tuple[int, int, int, int, int]:
    """Visual tokens of a frame and of a requested one, first frames, rounds, and tokens of a reply."""
    p = profile
    return p.max_pixels // TOKEN, p.tool_max_pixels // TOKEN, p.first_frames, p.rounds, p.max_new_tokens


@pytest.mark.parametrize(
    ("effort", "expected"),
    [("quick", (256, 256, 4, 2, 512)), ("balanced", (512, 512, 4, 3, 1024)), ("full", (768, 512, 4, 5, 2048))],
)
def test_efforts_of_vr_thinker(effort: EffortName, expected: tuple[int, ...]) -> None:
    own = default_profile()
    used = Settings(effort=effort).applied_to(own)
    assert limits(used) == expected
    assert (used == own) == (effort == "full")
    # All within the range that the checkpoint was trained on; a clip of 848x480 loses nothing but to "quick".
    assert used.min_pixels == own.min_pixels <= used.max_pixels
    same = used.frame_size(848, 480, called=False) == own.frame_size(848, 480, called=False)
    assert same == (effort != "quick")


@pytest.mark.parametrize("name", ["vrt-tiny-0", "vrt-tiny-2"])
def test_a_judge_of_one_size_keeps_it(name: str) -> None:
    own = find(name).profile
    for effort, rounds in (("quick", 2), ("balanced", 3), ("full", 4)):
        used = Settings(effort=effort).applied_to(own)
        assert (used.max_pixels, used.tool_max_pixels, used.rounds) == (own.max_pixels, own.tool_max_pixels, rounds)


def test_an_effort_never_adds() -> None:
    small = check(Profile(user_prompt="{caption}", rounds=1, max_new_tokens=100))
    for effort in EFFORTS:
        used = Settings(effort=effort).applied_to(small)
        assert (used.rounds, used.max_new_tokens) == (1, 100)


def test_what_is_given_wins_over_the_effort() -> None:
    given = Settings(effort="quick", rounds=7, first_frames=6, tool_max_pixels=400 * TOKEN)
    assert limits(given.applied_to(default_profile())) == (256, 400, 6, 7, 512)
    given = Settings(effort="quick", max_pixels=700 * TOKEN)
    assert limits(given.applied_to(default_profile())) == (700, 512, 4, 2, 512)


def test_an_unknown_effort_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    wrong: Any = "most"
    with pytest.raises(UsageError, match="choose one of quick, balanced, full"):
        Settings(effort=wrong).applied_to(default_profile())
    assert run(["compare", "a.mp4", "b.mp4", "--effort", "most"]) == 2
    assert "give quick, balanced or full" in capsys.readouterr().err


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("clips")
    return [write_clip(folder / name, frames=frames, size=(640, 480)) for name, frames in (("a.mp4", 8), ("b.mp4", 9))]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with VR-Thinker's profile: the bundled judge's files without its own."""
    judge = find()
    folder = tmp_path / "judge"
    folder.mkdir()
    for file in (judge.text, judge.projector):
        shutil.copy(file, folder)
    return folder


def judged(model: Path, clips: list[Path], **settings: Any) -> tuple[Judgement, Listener, str]:
    backend = Listener()
    with Judge(model, settings=Settings(**settings), backend=backend, measures=False) as judge:
        return judge.compare(*clips, prompt="A fox runs."), backend, judge.key()


def test_a_verdict_says_what_it_was_judged_with(model: Path, clips: list[Path], tmp_path: Path) -> None:
    quick, backend, key = judged(model, clips, effort="quick")
    assert backend.limits == [512, 512]
    assert quick.verdict.source == "recommended"
    assert (quick.settings.effort, quick.settings.rounds, quick.settings.max_new_tokens) == ("quick", 2, 512)
    assert quick.inputs[0].shown_size == (504, 364)
    assert "fewer_pixels" in quick.warning_kinds
    assert Judgement.from_json(quick.to_json()) == quick

    assert SAID in verdict_lines(quick)
    console = Console(file=io.StringIO(), width=80)
    console.print(VerdictPanel(quick))
    assert isinstance(console.file, io.StringIO)
    words = " ".join(console.file.getvalue().replace("│", " ").split())
    assert f"E{SAID[1:]}." in words
    write_report(quick.to_json(), tmp_path / "report.html")
    assert SAID in Report(tmp_path / "report.html").record["words"]["lines"]

    full, backend, other_key = judged(model, clips)
    assert backend.limits == [2048] * 5
    assert (full.verdict.source, full.settings.effort) == ("final", "full")
    assert "fewer_pixels" not in full.warning_kinds
    assert not [line for line in verdict_lines(full) if "effort" in line]
    assert key != other_key == judged(model, clips, effort="full")[2]


def test_estimate_shows_each_effort(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "vr-thinker-7b:q4_k_m", "--memory", "16", "--gpu-layers", "0", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    efforts = {effort.pop("effort"): effort for effort in said["efforts"]}
    assert list(efforts) == list(EFFORTS)
    assert efforts["full"]["bytes"] == said["bytes"]
    assert efforts["quick"]["bytes"] < efforts["balanced"]["bytes"] < efforts["full"]["bytes"]
    assert [effort["max_pixels"] // TOKEN for effort in efforts.values()] == [256, 512, 768]
    arguments = ["estimate", "vr-thinker-7b:q4_k_m", "--memory", "16", "--gpu-layers", "0", "--effort", "quick"]
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == efforts["quick"]["bytes"]


def test_estimate_shows_the_seconds_of_each_effort(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "vr-thinker-7b:q4_k_m", "--gpu-layers", "0", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    seconds = {effort["effort"]: effort["seconds"] for effort in said["efforts"]}
    assert seconds["full"] == said["seconds"]
    for bound in ("least", "most"):
        assert 0 < seconds["quick"][bound] < seconds["balanced"][bound] < seconds["full"][bound]
