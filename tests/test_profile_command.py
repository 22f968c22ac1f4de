"""`vrt-lite profile` and `--profile`: a profile is shown, checked, written, and takes the place of a model's own."""

from __future__ import annotations

import json
from pathlib import Path

import chat_server
import pytest
from chat_server import serving
from judgements import sure

from vrt_lite.cli import run
from vrt_lite.models import bundled_names, find
from vrt_lite.models.library import recipes
from vrt_lite.profile import default_profile, load_profile, parse_profile

CLIPS = [str(Path(__file__).parent.parent / "examples" / name) for name in ("star.mp4", "circle.mp4")]
PAIR = (*CLIPS, "-p", "A blue star moves up.")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


def output(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = run(arguments)
    out, err = capfd.readouterr()
    assert status == 0, err
    return out


def test_what_is_shown_is_the_profile_in_force(mine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, recipe in recipes().items():
        own = find(name).profile if name in bundled_names() else parse_profile(recipe.profile, name)
        mine.write_text(output(capfd, "profile", "show", name), encoding="utf-8", newline="\n")
        assert load_profile(mine) == own
        assert f"{mine} can be used" in output(capfd, "profile", "check", str(mine))
        shorter = output(capfd, "profile", "show", name, "--max-pixels", "35840")
        assert parse_profile(shorter, name) == own.with_max_pixels(35_840)


def test_a_new_profile_has_a_comment_for_every_key(mine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output(capfd, "profile", "new", str(mine))
    assert load_profile(mine) == default_profile()
    assert mine.read_text(encoding="utf-8").count("\n# ") > 20
    assert "can be used" in output(capfd, "profile", "check", str(mine))
    assert run(["profile", "new", str(mine)]) == 2
    assert "is there already" in capfd.readouterr().err
    assert run(["profile", "new", str(mine.parent / "no" / "folder.toml")]) != 0
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("rounds = 0\nwindow = -1\nfoo = 3\nfirst_frames = 'x'\nmax_pixels = 35840\nmin_pixels = 35280", 4),
        ("rounds = 3\nworkspace = 64\nfirst_frames = 60", 0),
        ("workspace = 8\nfirst_frames = 9", 1),
        ("[clock]\nrule = 'sometimes'\n[evidence]\nnothing = 1", 2),
        ("user_prompt_file = '../secret'", 1),
        ("a = [", 1),
        ("dimensions = 3\nretries = true", 2),
    ],
)
def test_the_check_prints_a_line_for_each_fault(
    text: str, faults: int, mine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mine.write_text(text, encoding="utf-8")
    status = run(["profile", "check", str(mine)])
    lines = capfd.readouterr().err.splitlines()
    assert (status, len(lines), len(set(lines))) == (4 if faults else 0, faults, faults)
    assert all(str(mine) in line for line in lines)


def test_a_profile_takes_the_place_of_the_models_own(mine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shown = output(capfd, "profile", "show", "vrt-tiny-2")
    mine.write_text(shown.replace("rounds = 4", "rounds = 1").replace('name = "vrt-tiny-2"', 'name = "mine"', 1))
    told = json.loads(output(capfd, "compare", *PAIR, "--profile", str(mine), "--no-measures", "--json"))
    assert told["settings"]["rounds"] == 1
    assert all(len(order["rounds"]) == 1 for order in told["orders"])
    # What was judged by one is not found by the other.
    for own in ((), ("--profile", str(mine)), ()):
        ranked = json.loads(output(capfd, "rank", *PAIR, "--orders", "one", "--json", *own))
        assert sum(ladder["judgements"] for ladder in ranked["ladders"]) == 1
    assert [of["kind"] for of in json.loads(output(capfd, "runs", "--json"))].count("rank") == 2
    mine.write_text("rounds = 0", encoding="utf-8")
    assert run(["compare", *CLIPS, "--profile", str(mine)]) == 4
    assert "rounds = 0" in capfd.readouterr().err


def test_a_profile_is_for_a_server_too(mine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mine.write_text('system_prompt = "Only my words."\n', encoding="utf-8")
    with serving(chat_server.says(sure().text)) as server:
        output(capfd, "compare", *PAIR, "--backend", server.url, "--profile", str(mine), "--json")
        assert "Only my words." in json.dumps(server.bodies[0]["messages"])
