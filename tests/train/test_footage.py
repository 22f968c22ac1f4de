"""Pairs of real footage, on clips synthesised here: what is drawn, what is shown, and that labels follow the faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from clips import write_clip
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("torch")

from train.tiny.footage import photographs
from train.tiny.footage.footage_frames import FootageOpener
from train.tiny.footage.footage_pairs import draw, load_clips
from train.tiny.footage.packages import Split
from train.tiny.footage.survey import SURVEY, load_survey, survey
from train.tiny.world.defects import MOTION, VISUAL
from train.tiny.world.labels import labels_of
from train.tiny.world.values import WINDOWS, Scene
from vrt_lite.errors import UsageError
from vrt_lite.profile import Profile, default_profile
from vrt_lite.protocol.messages import FrameRef, shown_first

pytestmark = pytest.mark.filterwarnings("default")

FIRST = [frame for clip in (0, 1) for frame in shown_first(48, 4, clip)]


def panned(seed: int, frames: int = 90, size: tuple[int, int] = (192, 108), pace: int = 3) -> list[NDArray[np.uint8]]:
    """A window that moves over a blotchy picture: motion and detail."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (60, 200, 3), dtype=np.uint8)
    picture = coarse.repeat(4, axis=0).repeat(4, axis=1)
    width, height = size
    return [np.ascontiguousarray(picture[20 : 20 + height, pace * i : pace * i + width]) for i in range(frames)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("footage")
    for split, package, seed, fps in (("train", "toy", 1, 24), ("train", "play", 2, 12), ("test", "other", 3, 25)):
        (made / split / package).mkdir(parents=True)
        write_clip(made / split / package / f"{seed}.mp4", frames=90, fps=fps, size=(192, 108), pictures=panned(seed))
    survey(made)
    return made


@pytest.fixture
def profile() -> Profile:
    return default_profile()


@dataclass(frozen=True)
class FilmedCase:
    """A pair of footage with what is known of it."""

    scene: Scene
    open: FootageOpener

    @property
    def labels(self) -> dict[str, int]:
        return dict(labels_of(self.scene))

    @property
    def defects(self) -> set[str]:
        return {defect.kind for clip in self.scene.clips for defect in clip.defects}

    @property
    def evidence(self) -> list[FrameRef]:
        """The windows of the gaps in which faults are, clip by clip."""
        return [FrameRef(n, t) for n, c in enumerate(self.scene.clips) for gap in c.gaps for t in WINDOWS[gap]]


def cases(folder: Path, split: Split, *, first: int = 0, count: int = 1) -> list[FilmedCase]:
    clips = load_clips(folder, split)
    drawn = (draw(clips, seed, varied=split == "train") for seed in range(first, first + count))
    return [FilmedCase(scene, FootageOpener(folder, spans)) for scene, spans in drawn]


def shown(case: FilmedCase, profile: Profile, frames: list[FrameRef]) -> list[NDArray[np.uint8]]:
    with case.open(profile) as store:
        return store.pixels(frames)


def test_clips_are_measured_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clips = load_survey(folder, "train")
    assert [clip.path for clip in clips] == ["train/play/2.mp4", "train/toy/1.mp4"]
    assert (clips[1].width, clips[1].height, clips[1].frames, clips[1].group) == (192, 108, 90, "train/toy")
    assert clips[1].fps == pytest.approx(24)
    assert clips[1].motion[0] == 0 and min(clips[1].motion[1:]) > 1
    assert min(clips[1].detail) > 2
    before = (folder / SURVEY).read_bytes()
    survey(folder)
    assert (folder / SURVEY).read_bytes() == before


def test_a_broken_clip_is_named(tmp_path: Path) -> None:
    (tmp_path / "train" / "toy").mkdir(parents=True)
    (tmp_path / "train" / "toy" / "a.mp4").write_bytes(b"no clip")
    with pytest.raises(UsageError, match=r"a\.mp4"):
        survey(tmp_path)


def test_training_and_test_footage_are_apart(folder: Path) -> None:
    drawn = {
        split: {draw(load_survey(folder, split), seed)[1][0].clip.path for seed in range(20)}
        for split in ("train", "test")
    }
    assert drawn == {"train": {"train/play/2.mp4", "train/toy/1.mp4"}, "test": {"test/other/3.mp4"}}


def test_the_same_seed_gives_the_same_case(folder: Path, profile: Profile) -> None:
    one, other = cases(folder, "test", first=5, count=3), cases(folder, "test", first=6, count=2)
    a, b = one[1], other[0]
    assert a == b
    frames = [FrameRef(0, 3), FrameRef(1, 40), FrameRef(0, 47)]
    together = shown(a, profile, frames)
    alone = [shown(b, profile, [frame])[0] for frame in reversed(frames)][::-1]
    assert all(np.array_equal(x, y) for x, y in zip(together, alone, strict=True))
    assert len({case.open for case in cases(folder, "test", count=12)}) == 12


def test_labels_follow_the_faults(folder: Path) -> None:
    clips = load_survey(folder, "train")
    seen: set[str] = set()
    labels: list[tuple[int, ...]] = []
    for seed, case in enumerate(cases(folder, "train", count=150)):
        _, (a, b) = draw(clips, seed, varied=True)
        own = a.spec.defects, b.spec.defects
        seen |= case.defects
        labels.append(tuple(case.labels.values()))
        assert case.labels["TA"] == 0
        if not own[0] and not own[1]:
            assert set(case.labels.values()) == {0}
        if len(own[0]) + len(own[1]) == 1:
            better = 2 if own[0] else 1
            key = "MQ" if {*MOTION} & case.defects else "VQ"
            assert (case.labels[key], case.labels["OA"]) == (better, better)
    assert seen == {*VISUAL, *MOTION}
    assert all({0, 1, 2} == set(column) for column in list(zip(*labels, strict=True))[1:])


def test_cuts_are_found(tmp_path: Path) -> None:
    (tmp_path / "test" / "toy").mkdir(parents=True)
    still = [np.full((108, 192, 3), level, np.uint8) for level in (40, 200)]
    write_clip(
        tmp_path / "test" / "toy" / "a.mp4", frames=60, size=(192, 108), pictures=[still[i >= 23] for i in range(60)]
    )
    clips = survey(tmp_path)
    found = {shot.start for seed in range(20) for shot in draw(clips, seed)[1][0].spec.shots}
    assert max(found) > 0
    whole = [s for s in (draw(clips, seed)[1][0] for seed in range(60)) if s.spec.frames == 60]
    assert whole and all([shot.start for shot in span.spec.shots] == [0, 19] for span in whole)


def test_hidden_faults_are_in_the_evidence_and_not_before(folder: Path, profile: Profile) -> None:
    checked = 0
    for seed in range(80):
        case = cases(folder, "test", first=seed, count=1)[0]
        _, (a, b) = draw(load_survey(folder, "test"), seed)
        if not case.scene.hidden or not all(d.hidden for d in (*a.spec.defects, *b.spec.defects)):
            continue
        first = shown(case, profile, FIRST)
        assert all(np.array_equal(x, y) for x, y in zip(first[:4], first[4:], strict=True))
        evidence = shown(case, profile, case.evidence)
        half = len(evidence) // 2
        assert any(not np.array_equal(x, y) for x, y in zip(evidence[:half], evidence[half:], strict=True)), (
            case.defects
        )
        checked += 1
    assert checked >= 10


def test_a_clip_is_decoded_once_for_a_size(folder: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases(folder, "train", first=3, count=1)[0]
    before = shown(case, profile, FIRST)

    def refuse(path: Path, *args: object) -> None:
        raise AssertionError(f"{path} is decoded again")

    monkeypatch.setattr("train.tiny.footage.decoded_frames.decode", refuse)
    assert all(np.array_equal(a, b) for a, b in zip(before, shown(case, profile, FIRST), strict=True))


@pytest.mark.parametrize("kind", ["jitter", "warping", "ghosting", "freeze", "reversal"])
def test_faults_of_motion_are_put_into_footage(folder: Path, profile: Profile, kind: str) -> None:
    clips = load_survey(folder, "train")
    middle = [FrameRef(n, i) for n in (0, 1) for i in range(22, 26)]
    found = 0
    for seed in range(400):
        _, (a, b) = draw(clips, seed, varied=True)
        if a.start != b.start or [(d.kind, d.level) for own in (a, b) for d in own.spec.defects] not in (
            [(kind, 2)],
            [(kind, 3)],
        ):
            continue
        case = cases(folder, "train", first=seed, count=1)[0]
        pictures = np.stack(shown(case, profile, middle)).astype(int)
        there = [d.at(i) for own in (a, b) for d in own.spec.defects for i in range(22, 26)]
        differs = [int(np.abs(x - y).max()) > 0 for x, y in zip(pictures[:4], pictures[4:], strict=True)]
        if all(there):
            found += 1
            assert sum(differs) >= 3, (seed, differs)  # one frame of a reversal or freeze may be where it was
    assert found


def test_a_photograph_is_a_clip_of_a_moving_camera(tmp_path: Path, profile: Profile) -> None:
    place = tmp_path / "train" / "photos" / "wall.JPG"
    place.parent.mkdir(parents=True)
    Image.fromarray(panned(7, frames=1, size=(800, 200))[0]).resize((1600, 900)).save(place)
    [clip] = survey(tmp_path)
    assert (clip.path, clip.width, clip.height, clip.frames) == ("train/photos/wall.JPG", 1280, 720, photographs.FRAMES)
    assert min(clip.motion[1:]) > 0 and max(clip.motion) < 18  # no cut
    one, other = (photographs.film(place, [n], (64, 36))[0] for n in (0, 119))
    assert one.shape == (36, 64, 3)
    assert not np.array_equal(one, other)
    assert np.array_equal(photographs.film(place, [5, 119], (64, 36))[1], other)
    case = cases(tmp_path, "train")[0]
    assert len(shown(case, profile, FIRST)) == len(FIRST)
    place.write_bytes(b"no picture")
    with pytest.raises(UsageError, match=r"wall\.JPG cannot be used"):
        survey(tmp_path)
