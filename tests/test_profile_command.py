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
    gone = mine.parent / "gone" / "mine.toml"
    assert run(["profile", "new", str(gone)]) == 2
    assert capfd.readouterr().err == f"vrt-lite: {gone} cannot be written: No such file or directory.\n"


@pytest.mark.parametrize(
    ("toml", "faults"),
    [
        ("windw = 2", ["windw is unknown; known are"]),
        ("window = -1", ["window = -1 is negative"]),
        ('window = "2"', ["window = '2' is not a int"]),
        ("rounds = true", ["rounds = True is not a int"]),
        ("rounds = 3\nworkspace = 64\nfirst_frames = 60", []),
        ("workspace = 8\nfirst_frames = 9", ["first_frames = 9"]),
        ("first_frames = 99", ["first_frames = 99 is not within 1 to 48"]),
        ("min_pixels = 99999999", ["min_pixels"]),
        ('tool_form = "gif"', ["tool_form = 'gif' is not image or video"]),
        ("[clock]\nrule = 'sundial'\n[evidence]\nnothing = 1", ["clock.rule = 'sundial'", "nothing"]),
        ("clock = 3", ["clock = 3 is not a table"]),
        ("dimensions = ['TA']\nretries = true", ["dimensions = ['TA'] is not a table", "retries"]),
        ("[clock]\ntokens_per_second = 0", ["clock.tokens_per_second"]),
        ('user_prompt = "no place for it"', ["has no {caption}"]),
        ('user_prompt_file = "../../etc/passwd"', ["not a plain file name"]),
        ('preset = "nobody"', ["is unknown; choose one of"]),
        ("[dimensions.XX]\nname = 'a'\nexplain = 'b'", ["not TA, VQ, MQ"]),
        ("[dimensions.VQ]\nname = 'a'", ["explain"]),
        ("window = [", ["not valid TOML"]),
        ("rounds = 0\nwindow = -1\nfoo = 3\nfirst_frames = 'x'", ["rounds", "window", "foo", "first_frames"]),
    ],
)
def test_a_line_for_each_fault(toml: str, faults: list[str], mine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mine.write_text(toml, encoding="utf-8")
    assert run(["profile", "check", str(mine)]) == (4 if faults else 0)
    lines = capfd.readouterr().err.splitlines()
    assert (len(lines), len(set(lines))) == (len(faults), len(faults))
    assert all(str(mine) in line for line in lines)
    assert all(any(fault in line for line in lines) for fault in faults), lines


def test_a_profile_overrides_what_it_names(mine: Path) -> None:
    (mine.parent / "own.txt").write_bytes(b"Judge {caption}\r\n{dim_name_1}")
    mine.write_text(
        'name = "own"\nuser_prompt_file = "own.txt"\nwindow = 2\npreset = "mj-bench-video"\n'
        '[clock]\nrule = "exact"\n[dimensions.VQ]\nname = "Sharpness"\nexplain = "how crisp"\n'
    )
    profile = load_profile(mine)
    assert profile.user_prompt == "Judge {caption}\r\n{dim_name_1}"
    assert (profile.window, profile.clock.rule, profile.rounds) == (2, "exact", default_profile().rounds)
    assert [profile.dimensions[key].name for key in ("TA", "VQ")] == ["Alignment (TA)", "Sharpness"]


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
