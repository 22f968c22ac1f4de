"""The judges that are evaluated: a checkpoint, many cases at once; the same as a GGUF pair; both by the same loop."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gguf")

from taught_judge import PROFILE, case

from train.assessment.assess import OUTCOMES, agree, evaluate, judge_one, open_checkpoint, open_gguf, open_judge
from train.assessment.outcomes import read_outcomes
from train.policy.rollout import open_policy
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.errors import ModelError, UsageError

pytestmark = pytest.mark.filterwarnings("default")

CASES = [case(seed) for seed in range(9)]


def test_many_at_once_and_one_at_a_time_are_the_same(taught: Path, tmp_path: Path) -> None:
    with open_checkpoint(taught, batch=4) as judging:
        together = evaluate(judging, CASES, folder=tmp_path)
    assert together is not None
    with open_policy(taught, PROFILE) as policy:
        alone = {one.key: judge_one(one, PROFILE, policy) for one in CASES}
    assert list(together) == list(alone)
    for key, made in together.items():
        assert (made.winners, made.rounds, made.calls) == (alone[key].winners, alone[key].rounds, alone[key].calls)
        assert made.odds["OA"] == pytest.approx(alone[key].odds["OA"], abs=1e-4)
        assert made.well_formed and not made.seconds


def test_views_of_a_checkpoint(taught: Path, tmp_path: Path) -> None:
    with open_checkpoint(taught) as judging:
        none = evaluate(judging, CASES[:4], folder=tmp_path, view="none")
        random = evaluate(judging, CASES[:4], folder=tmp_path, view="random")
    assert none is not None and random is not None
    assert {made.rounds for made in none.values()} == {1}
    assert {view for _, view in read_outcomes(tmp_path / OUTCOMES)} == {"none", "random"}


def test_a_checkpoint_and_its_gguf_agree(taught: Path, tmp_path: Path) -> None:
    export_pair(taught, tmp_path / "gguf", text_type="f32", projector_type="f32")
    own = tmp_path / "gguf" / "profile.toml"
    own.rename(tmp_path / "profile.toml")
    with open_judge(taught) as one, open_judge(tmp_path / "gguf") as other, pytest.raises(UsageError, match="profile"):
        agree(one, other, CASES, folder=tmp_path / "agree")
    (tmp_path / "profile.toml").rename(own)
    with open_judge(taught) as one, open_judge(tmp_path / "gguf") as other:
        assert one.digest != other.digest
        assert one.profile == other.profile
        made = agree(one, other, CASES, folder=tmp_path / "agree")
    assert made is not None
    assert (made["same"]["right"], made["same"]["of"], made["differ"]) == (9, 9, [])


def test_a_judge_is_known_by_its_weights_and_its_profile(taught: Path, tmp_path: Path) -> None:
    shutil.copytree(taught, tmp_path / "same")
    shutil.copytree(taught, tmp_path / "other")
    profile = tmp_path / "other" / "profile.toml"
    profile.write_text(profile.read_text("utf-8").replace("rounds = 4", "rounds = 3"), "utf-8")
    digests = []
    for folder in (taught, tmp_path / "same", tmp_path / "other"):
        with open_checkpoint(folder) as judging:
            digests.append(judging.digest)
    assert digests[0] == digests[1] != digests[2]


def test_what_is_no_judge_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"profile\.toml"), open_judge(tmp_path):
        pass
    with pytest.raises(ModelError), open_gguf(tmp_path / "nothing.gguf"):
        pass
