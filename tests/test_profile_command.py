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

ROOT = Path(__file__).parent.parent
CLIPS = [str(ROOT / "examples" / name) for name in ("star.mp4", "circle.mp4")]
PROMPT = "A blue star moves up."


def output(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = run(arguments)
    out, err = capfd.readouterr()
    assert status == 0, err
    return out


@pytest.mark.parametrize("name", recipes())
def test_what_is_shown_is_the_profile_in_force_and_can_be_used(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shown.toml"
    path.write_text(output(capfd, "profile", "show", name), encoding="utf-8", newline="\n")
    own = find(name).profile if name in bundled_names() else parse_profile(recipes()[name].profile, name)
    assert load_profile(path) == own
    shorter = output(capfd, "profile", "show", name, "--max-pixels", "35840")
    assert parse_profile(shorter, name) == own.with_max_pixels(35_840)
    assert f"{path} can be used" in output(capfd, "profile", "check", str(path))


def test_a_new_profile_has_a_comment_for_every_key_and_passes_the_check(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    output(capfd, "profile", "new", str(path))
    assert load_profile(path) == default_profile()
    assert path.read_text(encoding="utf-8").count("\n# ") > 20
    assert "can be used" in output(capfd, "profile", "check", str(path))
    assert run(["profile", "new", str(path)]) == 2
    assert "is there already" in capfd.readouterr().err
    assert run(["profile", "new", str(tmp_path / "no" / "folder.toml")]) != 0
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "says"),
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
    text: str, says: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    status = run(["profile", "check", str(path)])
    lines = capfd.readouterr().err.splitlines()
    assert (status, len(lines)) == (4 if says else 0, says)
    assert all(str(path) in line for line in lines)
    assert len(set(lines)) == says


def test_a_profile_takes_the_place_of_the_models_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    shown = output(capfd, "profile", "show", "vrt-tiny-2")
    path.write_text(shown.replace("rounds = 4", "rounds = 1").replace('name = "vrt-tiny-2"', 'name = "mine"', 1))
    options = ("-p", PROMPT, "--profile", str(path), "--no-measures", "--json")
    told = json.loads(output(capfd, "compare", *CLIPS, *options))
    assert told["settings"]["rounds"] == 1
    assert all(len(order["rounds"]) == 1 for order in told["orders"])
    plain = json.loads(output(capfd, "compare", *CLIPS, *options[:2], *options[4:]))
    assert plain["settings"]["rounds"] == 4
    # What was judged by one is not found by the other.
    for own, judged in ((), 1), (("--profile", str(path)), 1), ((), 0):
        ranked = output(capfd, "rank", *CLIPS, "-p", PROMPT, "--orders", "one", "--json", *own)
        assert sum(ladder["judgements"] for ladder in json.loads(ranked)["ladders"]) == 1, judged
    assert [of["kind"] for of in json.loads(output(capfd, "runs", "--json"))].count("rank") == 2
    path.write_text("rounds = 0", encoding="utf-8")
    assert run(["compare", *CLIPS, "--profile", str(path)]) == 4
    assert "rounds = 0" in capfd.readouterr().err


def test_a_profile_is_for_a_server_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('system_prompt = "Only my words."\n', encoding="utf-8")
    with serving(chat_server.says(sure().text)) as server:
        output(capfd, "compare", *CLIPS, "-p", PROMPT, "--backend", server.url, "--profile", str(path), "--json")
        assert "Only my words." in json.dumps(server.bodies[0]["messages"])
