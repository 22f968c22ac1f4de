"""What is set for all commands: which value holds, what is refused, how it is repaired, how the file is changed."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest

from vrt_lite.backends import describe_machine
from vrt_lite.cli import cli, run
from vrt_lite.cli.config_command import config
from vrt_lite.cli.options import ChosenJudge, find_sources, take_settings
from vrt_lite.diagnosis.all_checks import check_settings
from vrt_lite.disk import settings_path
from vrt_lite.errors import UsageError
from vrt_lite.models import find
from vrt_lite.profile import default_profile
from vrt_lite.settings import Remote, Settings, key_of
from vrt_lite.stored_settings import KEYS, find_stored, store_value
from vrt_lite.tuning import Tuning, save_tuning

ROOT = Path(__file__).parent.parent
CLIPS = [str(ROOT / "examples" / name) for name in ("star.mp4", "circle.mp4")]
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "model": ("vrt-tiny-0", "./judge", "vrt-tiny-2"),
    "effort": ("quick", "balanced", "full"),
    "workspace": (8, 16, 24),
    "first-frames": (2, 6, 8),
    "window": (2, 0, 3),
    "rounds": (2, 6, 7),
    "max-pixels": (100_352, 200_704, 301_056),
    "tool-max-pixels": (100_352, 200_704, 301_056),
    "ctx": (4096, 8192, "auto"),
    "gpu-layers": (1, "auto", 0),
    "kv-type": ("q8_0", "f16", "q8_0"),
    "threads": ("auto", 2, 1),
    "orders": ("auto", "both", "one"),
    "cache": (False, True, False),
    "cache-mb": (5, 0, 7),
    "backend": ("http://file:1/v1", "http://variable:1/v1", "local"),
    "served-model": ("of-the-file", "of-the-variable", "of-the-option"),
    "backend-kind": ("vllm", "sglang", "llama"),
    "jobs": (2, 3, 4),
}
"""By key: a value for the file, one for the variable and one for the option."""


def parsed(command: str, *words: str) -> click.Context:
    """The context of a command with these words, before it runs."""
    above = cli.make_context("vrt-lite", [command])
    found = cli.get_command(above, command)
    assert found
    return found.make_context(command, list(words), parent=above)


def in_force(key: str, option: Any = None) -> tuple[Any, str | None]:
    """The value of a key in a ranking, or in a comparison if a ranking has no such option; and where it comes from."""
    words: list[str] = []
    if option is not None:
        words = [f"--{'' if option else 'no-'}{key}"] if isinstance(option, bool) else [f"--{key}", str(option)]
    with parsed("compare" if key == "orders" else "rank", *CLIPS, *words) as ctx:
        name = "both_orders" if key == "orders" else key.replace("-", "_")
        return ctx.params[name], find_sources()[name]


def words_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_given(key: str, value: Any) -> Any:
    """What an option makes of a value."""
    if key == "orders":
        return {"one": False, "both": True, "auto": "auto"}[value]
    return None if value == "auto" else value


def test_every_key_has_values() -> None:
    assert VALUES.keys() == KEYS.keys()


@pytest.mark.parametrize("key", KEYS)
def test_option_then_variable_then_file_then_default(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, variable, option = VALUES[key]
    automatic, nowhere = in_force(key)
    assert nowhere is None
    assert run(["config", "set", key, words_of(file)]) == 0
    assert settings_path().read_text(encoding="utf-8").startswith(f"{key} = ")
    in_file = in_force(key)
    monkeypatch.setenv(KEYS[key].variable, words_of(variable))
    by_variable = in_force(key)
    assert in_file == (as_given(key, file), "file")
    assert by_variable == (as_given(key, variable), "environment")
    assert in_force(key, option) == (as_given(key, option), "option")
    monkeypatch.setenv(KEYS[key].variable, "")  # as if it were not set
    assert in_force(key) == in_file
    assert run(["config", "unset", key]) == 0
    assert in_force(key)[0] == automatic


@pytest.mark.parametrize("key", KEYS)
def test_the_list_says_where_each_value_comes_from(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> tuple[Any, str]:
        assert run(["config", "--json"]) == 0
        entries = {entry["key"]: entry for entry in json.loads(capsys.readouterr().out)["settings"]}
        assert [entry["from"] for name, entry in entries.items() if name != key] == ["default"] * (len(KEYS) - 1)
        return entries[key]["value"], entries[key]["from"]

    file, variable, _ = VALUES[key]
    assert shown() == (None, "default")
    store_value(key, file)
    assert shown() == (file, "file")
    monkeypatch.setenv(KEYS[key].variable, words_of(variable))
    assert shown() == (variable, "environment")


def test_a_judgement_says_where_its_settings_come_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sources(*options: str) -> dict[str, str]:
        assert run(["compare", *CLIPS, "-p", "A blue star moves up.", "--no-measures", "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)["settings"]["sources"]

    store_value("rounds", 3)
    store_value("threads", "auto")
    monkeypatch.setenv("VRT_LITE_MODEL", "vrt-tiny-2")
    by_effort = {"effort": "option", "max_pixels": "effort", "tool_max_pixels": "effort", "max_new_tokens": "effort"}
    found = sources("--kv-type", "f16", "--seed", "1", "--effort", "quick")
    # The effort is an option and the rounds are of the file: the effort decides them.
    others = {"model": "environment", "threads": "file", "rounds": "effort", "kv_type": "option", "seed": "option"}
    assert found == {**by_effort, **others}
    assert sources("--rounds", "2") == {"model": "environment", "threads": "file", "rounds": "option"}


def test_what_was_tuned_holds_before_the_default_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = find()
    save_tuning(Tuning(threads=1, projector=judge.projector.name), judge, describe_machine())

    def listed() -> tuple[Any, str]:
        assert run(["config", "--json"]) == 0
        entries = {entry["key"]: entry for entry in json.loads(capsys.readouterr().out)["settings"]}
        return entries["threads"]["value"], entries["threads"]["from"]

    assert run(["compare", *CLIPS, "-p", "A blue star moves up.", "--no-measures", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert (settings["sources"], settings["engine"]["threads"]) == ({"threads": "tuned"}, 1)
    assert listed() == (1, "tuned")
    store_value("threads", "auto")
    assert listed() == ("auto", "file")


def test_where_a_setting_comes_from_is_no_part_of_a_judgements_key() -> None:
    profile, judge = default_profile(), {"text": "0"}
    # They change only with what a judge sees or is told: what is in a store is found again.
    plain = "2b606ad28cb1aca01236b8f31eb1ad973b2a9b4b36d08d3b608a8257a60bd2b6"
    changed = "2a986c36510e8c35a5c9584fb609e4116736c1f11eed9f628f8611bd1b35735c"
    given: dict[str, Any] = {"max_pixels": 200704, "rounds": 3, "temperature": 0.5, "seed": 2, "ctx": 4096}
    for extra in ({}, {"sources": {"rounds": "file"}}, {"cache_mb": 5}):
        assert key_of(Settings(**extra), profile, judge=judge) == plain
        settings = Settings(**given, kv_type="q8_0", **extra)
        assert key_of(settings, settings.applied_to(profile), judge=judge) == changed


@pytest.mark.parametrize("key", [name for name, key in KEYS.items() if key.most >= 0])
def test_numbers_are_allowed_as_far_as_they_can_be_used(key: str) -> None:
    bounds = KEYS[key]
    assert [bounds.parse(n) for n in (bounds.least - 1, bounds.most + 1, 1.0, [1], True)] == [None] * 5
    assert [bounds.parse(n) for n in (bounds.least, str(bounds.most))] == [bounds.least, bounds.most]
    name = key.replace("-", "_")
    if name not in ("workspace", "first_frames", "window", "rounds", "max_pixels", "tool_max_pixels"):
        return
    other = {"workspace": {"first_frames": 1}, "first_frames": {"workspace": 10_000}}.get(name, {})
    for value in (bounds.least, bounds.most):
        assert getattr(Settings(**{name: value, **other}).applied_to(default_profile()), name) == value
    with pytest.raises(UsageError, match=name):
        Settings(**{name: bounds.least - 1, **other}).applied_to(default_profile())


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a command is refused with, status 2."""
    capsys.readouterr()
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    return err


REFUSED = {
    "rouns = 3": "'rouns', which nothing reads; the nearest key is rounds",
    "max_pixels = 784": "the nearest key is max-pixels",
    "colour = 1": "vrt-lite config lists the keys",
    "rounds = 'many'": "has 'many' for rounds, which is not allowed; give 1 to 100",
    "rounds = 0": "give 1 to 100",
    "rounds = true": "give 1 to 100",
    "rounds = 3.0": "give 1 to 100",
    "cache = 2": "give true or false",
    "kv-type = 'q4_0'": "give f16 or q8_0",
    "ctx = 'much'": "give at least 256 or auto",
    "model = ''": "give a name, folder or text GGUF",
    "jobs = 257": "give 1 to 256 or auto",
    "orders = 'maybe'": "give one, both or auto",
    "orders = []": "give one, both or auto",
    "effort = 'most'": "give quick, balanced or full",
    "backend = 'ftp://host'": "give local or http://HOST/v1",
    "[compare]\nrounds = 3": "'compare', which nothing reads",
    '"a\\u0007\\nb" = 3': "which nothing reads",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_used_names_file_key_and_values_and_the_command_helps(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings_path().write_text(f"# mine\nwindow = 2\n{text}\n", encoding="utf-8")
    line = refusal(capsys, "cache")
    assert line.startswith(f"vrt-lite: The settings file {settings_path()} ")
    assert REFUSED[text] in line
    [finding] = [finding for finding in check_settings() if finding.level == "problem"]
    assert finding.next_step in line or not finding.next_step.isprintable()
    assert run(["config"]) == 2  # it lists what can be used
    out, err = capsys.readouterr()
    assert ("window" in out, err) == (True, line)
    name, *rest = shlex.split(finding.next_step)
    assert (name, run(rest)) == ("vrt-lite", 0)
    assert "# mine\nwindow = 2\n" in settings_path().read_text(encoding="utf-8")
    assert run(["cache"]) == 0


def test_a_damaged_file_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    path = settings_path()
    for damaged in (b"rounds = 3\nmodel = \n", b"\xff\xfe", b"a = " + b"[" * 9000, b"#" * (2**20 + 1)):
        path.write_bytes(damaged)
        for command in (["estimate"], ["cache"], ["config", "set", "rounds", "3"], ["config", "unset", "rounds"]):
            line = refusal(capsys, *command)
            assert f"The settings file {path} is not valid TOML (" in line
        assert path.read_bytes() == damaged
    assert "more than 1048576 bytes" in line
    [finding] = [finding for finding in check_settings() if finding.level == "problem"]
    assert str(path) in finding.next_step
    # What needs no settings works, and so does the help.
    for command in (["models"], ["config", "path"], ["compare", "--help"]):
        assert run(command) == 0


def test_a_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    settings_path().mkdir()
    line = refusal(capsys, "cache")
    assert f"The settings file {settings_path()} cannot be read: " in line
    assert "cannot be changed" in refusal(capsys, "config", "set", "rounds", "3")
    [finding] = [finding for finding in check_settings() if finding.level == "problem"]
    assert str(settings_path()) in finding.next_step


@pytest.mark.parametrize("key", [name for name, key in KEYS.items() if not key.text])
def test_a_variable_that_cannot_be_used_is_named(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(KEYS[key].variable, "what?")
    line = refusal(capsys, "cache")
    assert f"{KEYS[key].variable} has 'what?' for {key}, which is not allowed; give {KEYS[key].allowed}" in line
    [finding] = [finding for finding in check_settings() if finding.level == "problem"]
    assert KEYS[key].variable in finding.next_step
    assert f"give {KEYS[key].allowed}" in refusal(capsys, "config", "set", key, "what?")


def test_a_servers_credentials_are_neither_kept_nor_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "http://user:secret@host/v1"
    assert "secret" not in refusal(capsys, "config", "set", "backend", address)
    settings_path().write_text(f"backend = '{address}'\n", encoding="utf-8")
    assert "secret" not in refusal(capsys, "cache")
    settings_path().unlink()
    monkeypatch.setenv("VRT_LITE_BACKEND", address)
    assert "secret" not in refusal(capsys, "cache")
    assert "secret" not in repr(list(check_settings()))


def test_the_commands_of_the_help_run_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = inspect.cleandoc(config.help or "").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("vrt-lite config")]
    assert len(commands) == 5
    assert [run(words[1:]) for words in commands] == [0] * 5
    assert capsys.readouterr().out.splitlines()[-1] == str(settings_path())
    assert settings_path().read_text(encoding="utf-8") == 'model = "vr-thinker-7b"\n'


@pytest.mark.parametrize("text", ["on", "Yes", "1", "true"])
def test_a_switch_has_the_usual_words(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opposite = {"on": "off", "Yes": "No", "1": "0", "true": "FALSE"}[text]
    for given, value in ((text, True), (opposite, False)):
        monkeypatch.setenv("VRT_LITE_CACHE", given)
        assert find_stored()["cache"].value is value


def test_an_unknown_key_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the nearest key is max-pixels" in refusal(capsys, "config", "set", "maxpixels", "784")
    assert "vrt-lite config lists the keys" in refusal(capsys, "config", "unset", "colour")
    assert not settings_path().exists()


def test_changing_the_file_keeps_what_a_user_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    settings_path().write_text("# Mine.\nmodel = 'vrt-tiny-0' # small\n\nrounds = 2\n", encoding="utf-8")
    assert run(["config", "set", "rounds", "3"]) == 0
    assert run(["config", "set", "cache", "off"]) == 0
    assert run(["config", "unset", "window"]) == 0  # it is not there
    written = settings_path().read_text(encoding="utf-8")
    assert written == "# Mine.\nmodel = 'vrt-tiny-0' # small\n\nrounds = 3\ncache = false\n"
    assert run(["config", "unset", "model"]) == 0
    assert settings_path().read_text(encoding="utf-8") == "# Mine.\n\nrounds = 3\ncache = false\n"


def test_a_table_at_the_end_takes_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    settings_path().write_text("[mine]\ncolour = 1\n", encoding="utf-8")
    store_value("rounds", 3)
    assert run(["config", "unset", "mine"]) == 0
    assert {name: kept.value for name, kept in find_stored({}).items()} == {"rounds": 3}


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_file_that_is_a_link_stays_one(tmp_path: Path) -> None:
    mine = tmp_path / "dotfiles.toml"
    mine.write_text("window = 2\n", encoding="utf-8")
    settings_path().symlink_to(mine)
    assert run(["config", "set", "rounds", "3"]) == 0
    assert settings_path().is_symlink()
    assert mine.read_text(encoding="utf-8") == "window = 2\nrounds = 3\n"


def test_changes_at_once_are_all_kept() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda item: store_value(item[0], item[1][0]), VALUES.items()))
    assert {name: kept.value for name, kept in find_stored({}).items()} == {n: v[0] for n, v in VALUES.items()}


def test_a_models_folder_is_found_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "judge").mkdir()
    (tmp_path / "vrt-tiny-0").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run(["config", "set", "model", "judge"]) == 0
    assert find_stored({})["model"].value == str(tmp_path / "judge")
    assert run(["config", "set", "model", "vrt-tiny-0"]) == 0  # a name comes before a folder
    assert find_stored({})["model"].value == "vrt-tiny-0"


def test_a_model_that_is_not_here_is_traced_to_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    store_value("model", "gone")
    assert run(["compare", *CLIPS]) == 4
    assert "Without --model, 'gone' is set. See: vrt-lite config" in capsys.readouterr().err
    store_value("first-frames", 60)
    assert "not given with this command: first-frames" in refusal(capsys, "estimate", "vrt-tiny-2").lower()


def test_the_file_lies_where_this_system_keeps_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert settings_path() == Path(os.environ["VRT_LITE_HOME"]) / "config.toml"
    monkeypatch.delenv("VRT_LITE_HOME")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        assert settings_path() == tmp_path / "vrt-lite" / "config.toml"
    assert settings_path().parts[-2:] == ("vrt-lite", "config.toml")


def test_settings_of_the_engine_here_are_not_for_a_server() -> None:
    store_value("threads", 1)
    store_value("rounds", 3)
    store_value("jobs", 4)
    remote = Remote("http://host:8000/v1")
    for words, threads in (([], None), (["--threads", "2"], 2)):
        with parsed("rank", *CLIPS, *words) as ctx:
            settings = take_settings(dict(ctx.params), remote)
            judges = [ChosenJudge(None, None, backend, settings) for backend in (remote, None)]
            jobs = [judge.choose_jobs(ctx.params["jobs"]) for judge in judges]
        assert (settings.threads, settings.rounds) == (threads, 3)
        assert jobs == [4, 4]


def test_an_effort_outdoes_what_comes_from_further_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(*words: str) -> Settings:
        with parsed("estimate", *words) as ctx:
            return take_settings(dict(ctx.params))

    store_value("max-pixels", 200_704)
    store_value("first-frames", 6)
    assert (settings().max_pixels, settings().first_frames) == (200_704, 6)
    own = settings("--effort", "full")
    assert (own.max_pixels, own.first_frames, own.sources) == (None, None, {"effort": "option"})
    both = settings("--effort", "quick", "--max-pixels", "100352")
    assert (both.effort, both.max_pixels) == ("quick", 100_352)
    monkeypatch.setenv("VRT_LITE_MAX_PIXELS", "301056")
    store_value("effort", "quick")
    assert (settings().effort, settings().max_pixels) == ("quick", 301_056)
