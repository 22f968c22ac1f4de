"""How large a judge sees a clip, and what an effort limits: by the checkpoint, by the user, and what is said of it."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from judgements import FINAL, call
from rich.console import Console

from vrt_lite.api import Judge
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.cli import run
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.interfaces import FrameStore, Sampling
from vrt_lite.models import find
from vrt_lite.pair_frames import PairFrames, workspace_of
from vrt_lite.profile import PIXELS_PER_TOKEN, Profile, check, default_profile, parse_profile
from vrt_lite.protocol.messages import Conversation, FrameRef, Reply
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import EFFORTS, EffortName, Settings
from vrt_lite.show.pair_words import verdict_lines
from vrt_lite.show.panel import draw_verdict
from vrt_lite.video import open_clip
from vrt_lite.viewer.run_view import prepare_pair

TOKEN = PIXELS_PER_TOKEN
PROFILE = default_profile()
SAID = "effort quick: frames of at most 200704 pixels, at most 2 rounds, replies of at most 512 tokens"
LESS = "frames of at most 20000 pixels instead of 35840"


class Listener(ScriptedBackend):
    """A script of calls up to a final answer, which keeps what each reply was limited to."""

    def __init__(self) -> None:
        super().__init__([*(call(n, n + 48) for n in (9, 10, 11, 12)), FINAL])
        self.limits: list[int] = []

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, **options: Any) -> Reply:
        self.limits.append(sampling.max_new_tokens)
        return super().reply(conversation, frames, sampling=sampling, **options)


def limits(profile: Profile) -> tuple[int, int, int, int, int]:
    """Visual tokens of a frame and of a requested one, first frames, rounds, and tokens of a reply."""
    p = profile
    return p.max_pixels // TOKEN, p.tool_max_pixels // TOKEN, p.first_frames, p.rounds, p.max_new_tokens


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sizes")
    return (
        write_clip(folder / "hd.mp4", frames=5, size=(1920, 1080)),
        write_clip(folder / "sd.mp4", frames=6, size=(848, 480)),
    )


# Sizes


@pytest.mark.parametrize(
    ("size", "shown", "tokens", "called"),
    [
        ((1920, 1080), (1008, 560), 720, (840, 448)),
        ((1280, 720), (1008, 560), 720, (840, 448)),
        ((848, 480), (840, 476), 510, (840, 476)),
        ((1080, 1920), (560, 1008), 720, (448, 840)),
        ((64, 64), (336, 336), 144, (336, 336)),
        ((320, 180), (448, 252), 144, (448, 252)),
    ],
)
def test_vr_thinker_sees_what_the_script_of_its_card_shows(
    size: tuple[int, int], shown: tuple[int, int], tokens: int, called: tuple[int, int]
) -> None:
    """And frames of a call within the limit that Pixel-Reasoner has for a video's frames."""
    assert (PROFILE.min_pixels, PROFILE.max_pixels) == (128 * TOKEN, 768 * TOKEN)
    assert (PROFILE.tool_min_pixels, PROFILE.tool_max_pixels) == (128 * TOKEN, 512 * TOKEN)
    assert PROFILE.frame_size(*size, called=False) == shown
    assert PROFILE.frame_size(*size, called=True) == called
    assert shown[0] * shown[1] == tokens * TOKEN


def test_a_picture_that_is_too_narrow_is_refused_with_its_name(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "thin.mp4", frames=2, size=(4096, 16))
    with open_clip(path) as clip, pytest.raises(VideoError, match="is 4096x16, which is too narrow") as caught:
        workspace_of(clip, PROFILE)
    assert caught.value.path == path


def test_a_tools_frames_are_decoded_at_their_own_size(clips: tuple[Path, Path]) -> None:
    profile = PROFILE.with_max_pixels(PROFILE.max_pixels, tool_pixels=200 * TOKEN)
    with open_clip(clips[0]) as a, open_clip(clips[1]) as b:
        frames = PairFrames((a, b), (workspace_of(a, profile), workspace_of(b, profile)))
        asked = [FrameRef(0, 0), FrameRef(0, 0, called=True), FrameRef(1, 9, called=True), FrameRef(1, 9)]
        shapes = [pixels.shape for pixels in frames.pixels(asked)]
    assert shapes == [(560, 1008, 3), (280, 504, 3), (280, 504, 3), (476, 840, 3)]


@pytest.mark.parametrize(
    ("settings", "sizes", "warns"),
    [
        (Settings(), [[252, 140], [224, 140]] * 2, ""),
        (Settings(max_pixels=20_000), [[168, 84]] * 4, f"{LESS}, asked-for {LESS}"),
        (Settings(tool_max_pixels=20_000), [[252, 140], [224, 140], [168, 84], [168, 84]], f"asked-for {LESS}"),
        (Settings(max_pixels=40_000), [[252, 140], [252, 140], [252, 140], [224, 140]], ""),
    ],
)
def test_both_sizes_stand_in_the_judgement_and_a_smaller_limit_warns(
    clips: tuple[Path, Path], settings: Settings, sizes: list[list[int]], warns: str
) -> None:
    with Judge(backend=ScriptedBackend([call(3, 50), FINAL]), settings=settings, measures=False) as judge:
        judgement = judge.compare(*clips, prompt="p")
        same = judge.compare(clips[0], clips[0], prompt="p")
    inputs = judgement.to_json()["inputs"]
    assert [clip[name] for name in ("shown_size", "tool_size") for clip in inputs] == sizes
    assert judgement.settings.tool_max_pixels == min(settings.tool_max_pixels or settings.max_pixels or 35_840, 35_840)
    found = [warning for warning in judgement.warnings if "detail" in warning]
    assert found == ([f"The judge sees less detail than its profile gives it: {warns}."] if warns else [])
    assert not [warning for warning in same.warnings if "detail" in warning], "one file twice is not looked at"


def test_a_limit_or_range_bounds_a_tools_frames_unless_they_have_their_own() -> None:
    both = Settings(max_pixels=50_000).applied_to(PROFILE)
    assert (both.max_pixels, both.min_pixels, both.tool_max_pixels, both.tool_min_pixels) == (50_000,) * 4
    apart = Settings(max_pixels=50_000, tool_max_pixels=300_000).applied_to(PROFILE)
    assert (apart.max_pixels, apart.tool_max_pixels, apart.tool_min_pixels) == (50_000, 300_000, 128 * 784)
    with pytest.raises(UsageError, match="tool_min_pixels = 700 and tool_max_pixels = 700"):
        Settings(tool_max_pixels=700).applied_to(PROFILE)
    one = parse_profile("min_pixels = 4000\nmax_pixels = 9000\n", "here")
    assert (one.tool_min_pixels, one.tool_max_pixels) == (4000, 9000)
    two = parse_profile("max_pixels = 300000\ntool_max_pixels = 200000\n", "here")
    assert two == replace(PROFILE, max_pixels=300_000, tool_max_pixels=200_000)


# Efforts


@pytest.mark.parametrize(
    ("effort", "expected"),
    [("quick", (256, 256, 4, 2, 512)), ("balanced", (512, 512, 4, 3, 1024)), ("full", (768, 512, 4, 5, 2048))],
)
def test_an_effort_limits_and_never_adds(effort: EffortName, expected: tuple[int, ...]) -> None:
    def used(profile: Profile) -> Profile:
        return Settings(effort=effort).applied_to(profile)

    assert limits(used(PROFILE)) == expected
    assert (used(PROFILE) == PROFILE) == (effort == "full")
    # All within the range that the checkpoint was trained on; a clip of 848x480 loses nothing but to "quick".
    assert used(PROFILE).min_pixels == PROFILE.min_pixels <= used(PROFILE).max_pixels
    same = used(PROFILE).frame_size(848, 480, called=False) == PROFILE.frame_size(848, 480, called=False)
    assert same == (effort != "quick")
    for name in ("vrt-tiny-0", "vrt-tiny-2"):
        own = find(name).profile
        sizes = own.max_pixels // TOKEN, own.tool_max_pixels // TOKEN
        assert limits(used(own))[:2] == sizes, "a judge of one size keeps it"
        assert used(own).rounds == min(expected[3], 4)
    small = used(check(Profile(user_prompt="{caption}", rounds=1, max_new_tokens=100)))
    assert (small.rounds, small.max_new_tokens) == (1, 100)


def test_what_is_given_wins_over_the_effort() -> None:
    given = Settings(effort="quick", rounds=7, first_frames=6, tool_max_pixels=400 * TOKEN)
    assert limits(given.applied_to(PROFILE)) == (256, 400, 6, 7, 512)
    given = Settings(effort="quick", max_pixels=700 * TOKEN)
    assert limits(given.applied_to(PROFILE)) == (700, 512, 4, 2, 512)


def test_an_unknown_effort_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    wrong: Any = "most"
    with pytest.raises(UsageError, match="choose one of quick, balanced, full"):
        Settings(effort=wrong).applied_to(PROFILE)
    assert run(["compare", "a.mp4", "b.mp4", "--effort", "most"]) == 2
    assert "'most' is not one of 'quick', 'balanced', 'full'." in capsys.readouterr().err


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with VR-Thinker's profile: the bundled judge's files without its own."""
    folder = tmp_path / "judge"
    folder.mkdir()
    for file in (find().text, find().projector):
        shutil.copy(file, folder)
    return folder


def test_a_verdict_says_what_it_was_judged_with(model: Path, clips: tuple[Path, Path]) -> None:
    def judged(**settings: Any) -> tuple[Judgement, Listener, str]:
        backend = Listener()
        with Judge(model, settings=Settings(**settings), backend=backend, measures=False) as judge:
            return judge.compare(*clips, prompt="A fox runs."), backend, judge.key()

    quick, backend, key = judged(effort="quick")
    assert backend.limits == [512, 512]
    assert quick.verdict.source == "recommended"
    assert (quick.settings.effort, quick.settings.rounds, quick.settings.max_new_tokens) == ("quick", 2, 512)
    assert quick.inputs[0].shown_size == (588, 336)
    assert "fewer_pixels" in quick.warning_kinds
    assert Judgement.from_json(quick.to_json()) == quick

    assert SAID in verdict_lines(quick)
    shown = io.StringIO()
    console = Console(file=shown, width=80)
    console.print(draw_verdict(quick, console))
    assert f"E{SAID[1:]}." in " ".join(shown.getvalue().replace("│", " ").split())
    assert SAID in prepare_pair(quick)["words"]["lines"]

    full, backend, other_key = judged()
    assert backend.limits == [2048] * 5
    assert (full.verdict.source, full.settings.effort) == ("final", "full")
    assert "fewer_pixels" not in full.warning_kinds
    assert not [line for line in verdict_lines(full) if "effort" in line]
    with Judge(model, settings=Settings(effort="full"), backend=Listener()) as judge:
        assert key != other_key == judge.key()


def test_estimate_shows_the_memory_and_seconds_of_each_effort(capsys: pytest.CaptureFixture[str]) -> None:
    def estimated(*options: str) -> dict[str, Any]:
        assert run(["estimate", "vr-thinker-7b:q4_k_m", "--gpu-layers", "0", "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)

    said = estimated("--memory", "16")
    assert said["seconds"] is None, "the time on a machine that is only assumed is not known"
    efforts = {effort.pop("effort"): effort for effort in said["efforts"]}
    assert list(efforts) == list(EFFORTS)
    assert [effort["max_pixels"] // TOKEN for effort in efforts.values()] == [256, 512, 768]
    assert efforts["quick"]["bytes"] < efforts["balanced"]["bytes"] < efforts["full"]["bytes"] == said["bytes"]
    assert estimated("--memory", "16", "--effort", "quick")["bytes"] == efforts["quick"]["bytes"]
    said = estimated()
    seconds = {effort["effort"]: effort["seconds"] for effort in said["efforts"]}
    assert seconds["full"] == said["seconds"]
    for bound in ("least", "most"):
        assert 0 < seconds["quick"][bound] < seconds["balanced"][bound] < seconds["full"][bound]
