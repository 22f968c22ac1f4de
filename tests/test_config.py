"""What is set for all commands: which value holds, what is refused, how it is repaired, how the file is changed."""

from __future__ import annotations

import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
from pull_commands import Commands

from vrt_lite.backends import describe_machine
from vrt_lite.cli import cli, run
from vrt_lite.cli.options import ChosenJudge, find_source, take_settings
from vrt_lite.diagnosis.all_checks import check_settings
from vrt_lite.disk import settings_path
from vrt_lite.errors import UsageError
from vrt_lite.models import find
from vrt_lite.profile import default_profile
from vrt_lite.settings import Remote, Settings, key_of
from vrt_lite.stored_settings import KEYS, Number, find_stored, parse_value, store_value
from vrt_lite.tuning import Tuning, keep, tuning_path

CLIPS = [str(Path(__file__).parent.parent / "examples" / name) for name in ("star.mp4", "circle.mp4")]
COMPARE = ("compare", *CLIPS, "-p", "A blue star moves up.", "--no-measures")
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


@pytest.fixture
def commands(capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capfd)


def listed(commands: Commands, key: str) -> tuple[Any, str]:
    """A key's value and where it comes from, by `vrt-lite config`. Nothing else may be set."""
    entries = {entry["key"]: entry for entry in commands.read("config")["settings"]}
    assert {entry["from"] for name, entry in entries.items() if name != key} <= {"default", "tuned"}
    return entries[key]["value"], entries[key]["from"]


def refusal(commands: Commands, *arguments: str) -> str:
    """The one line that a command is refused with, status 2."""
    return commands.refuse("", *arguments, status=2)


def problem_step() -> str:
    """The command that doctor prints for the only setting that cannot be used."""
    [finding] = [finding for finding in check_settings() if finding.level == "problem"]
    return finding.next_step


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
        return ctx.params[name], find_source(name)


def taken(*words: str) -> Settings:
    """The settings that a command with these words takes."""
    with parsed("estimate", *words) as ctx:
        return take_settings(dict(ctx.params))


def as_given(key: str, value: Any) -> Any:
    """What an option makes of a value."""
    if key == "orders":
        return {"one": False, "both": True, "auto": "auto"}[value]
    return None if value == "auto" else value


@pytest.mark.parametrize("key", KEYS)
def test_option_variable_file_default(key: str, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    file, variable, option = VALUES[key]
    default = in_force(key)
    assert default[1] is None
    assert listed(commands, key) == (None, "default")
    assert run(["config", "set", key, str(file).lower()]) == 0
    assert settings_path().read_text(encoding="utf-8").startswith(f"{key} = ")
    assert in_force(key) == (as_given(key, file), "file")
    assert listed(commands, key) == (file, "file")
    monkeypatch.setenv(KEYS[key].variable, str(variable).lower())
    assert in_force(key) == (as_given(key, variable), "environment")
    assert listed(commands, key) == (variable, "environment")
    assert in_force(key, option) == (as_given(key, option), "option")
    monkeypatch.setenv(KEYS[key].variable, "")  # as if it were not set
    assert in_force(key) == (as_given(key, file), "file")
    assert run(["config", "unset", key]) == 0
    assert in_force(key)[0] == default[0]


def test_a_judgement_says_where_its_settings_come_from(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    store_value("rounds", 3)
    store_value("threads", "auto")
    monkeypatch.setenv("VRT_LITE_MODEL", "vrt-tiny-2")
    # The effort is an option and the rounds are of the file: the effort decides them.
    found = commands.read(*COMPARE, "--kv-type", "f16", "--seed", "1", "--effort", "quick")["settings"]["sources"]
    others = {"model": "environment", "threads": "file", "kv_type": "option", "seed": "option", "effort": "option"}
    by_effort = dict.fromkeys(("rounds", "max_pixels", "tool_max_pixels", "max_new_tokens"), "effort")
    assert found == {**by_effort, **others}
    assert taken("--rounds", "2").sources == {"model": "environment", "rounds": "option"}


def test_what_was_tuned_holds_before_the_default_alone(commands: Commands) -> None:
    judge = find()
    keep(tuning_path(judge, describe_machine()), Tuning(threads=1, projector=judge.projector.name))
    settings = commands.read(*COMPARE)["settings"]
    assert (settings["sources"], settings["engine"]["threads"]) == ({"threads": "tuned"}, 1)
    assert listed(commands, "threads") == (1, "tuned")
    store_value("threads", "auto")
    assert listed(commands, "threads") == ("auto", "file")


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


def test_numbers_are_allowed_as_far_as_they_can_be_used() -> None:
    for name, key in KEYS.items():
        if not isinstance(key.type, Number):
            continue
        least, most = key.type.numbers[0], key.type.numbers[-1]
        for wrong in (least - 1, most + 1, 1.0, [1], True, "9" * 5000):
            with pytest.raises(UsageError, match="is not allowed; give"):
                parse_value(name, wrong)
        assert [parse_value(name, n) for n in (least, str(most))] == [least, most]
        field = name.replace("-", "_")
        other = {"workspace": {"first_frames": 1}, "first_frames": {"workspace": 10_000}}.get(field, {})
        if hasattr(default_profile(), field):
            for value in (least, most):
                assert getattr(Settings(**{field: value, **other}).applied_to(default_profile()), field) == value
            with pytest.raises(UsageError, match=field):
                Settings(**{field: least - 1, **other}).applied_to(default_profile())


REFUSED = {
    "rouns = 3": "nothing reads the key 'rouns'; the nearest key is rounds",
    "max_pixels = 784": "the nearest key is max-pixels",
    "colour = 1": "vrt-lite config lists the keys",
    "rounds = 'many'": "rounds: 'many' is not allowed; give 1..100. Correct it, or: vrt-lite config unset rounds",
    "cache = 2": "cache: '2' is not a valid boolean",
    "kv-type = 'q4_0'": "'q4_0' is not one of 'f16', 'q8_0'",
    "ctx = 'much'": "give 256..|auto",
    "orders = 'maybe'": "is not one of 'one', 'both', 'auto'",
    "orders = []": "is not one of 'one', 'both', 'auto'",
    "effort = 'most'": "is not one of 'quick', 'balanced', 'full'",
    "backend = 'ftp://host'": "give one like http://127.0.0.1:8000/v1",
    "[compare]\nrounds = 3": "nothing reads the key 'compare'",
    '"a\\u0007\\nb" = 3': "nothing reads the key",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_used_is_named_and_the_command_helps(text: str, commands: Commands) -> None:
    settings_path().write_text(f"# mine\nwindow = 2\n{text}\n", encoding="utf-8")
    line = refusal(commands, "cache")
    assert line.startswith(f"vrt-lite: The settings file {settings_path()}: ")
    assert REFUSED[text] in line
    step = problem_step()
    assert step in line or not step.isprintable()
    status, out, err = commands.run("config")  # it lists what can be used
    assert (status, "window" in out, err) == (2, True, f"{line}\n")
    name, *rest = shlex.split(step)
    assert (name, run(rest)) == ("vrt-lite", 0)
    assert "# mine\nwindow = 2\n" in settings_path().read_text(encoding="utf-8")
    assert run(["cache"]) == 0


def test_a_damaged_file_is_left_alone(commands: Commands) -> None:
    path = settings_path()
    for damaged in (b"rounds = 3\nmodel = \n", b"\xff\xfe", b"a = " + b"[" * 9000):
        path.write_bytes(damaged)
        for command in (["cache"], ["config", "set", "rounds", "3"], ["config", "unset", "rounds"]):
            line = refusal(commands, *command)
            assert f"The settings file {path} cannot be " in line
        assert path.read_bytes() == damaged
    assert str(path) in problem_step()
    # What needs no settings works, and so does the help.
    for command in (["runs"], ["config", "path"], ["compare", "--help"]):
        assert run(command) == 0
    path.unlink()
    path.mkdir()
    assert f"The settings file {path} cannot be read: " in refusal(commands, "cache")
    assert "cannot be changed" in refusal(commands, "config", "set", "rounds", "3")
    assert str(path) in problem_step()


@pytest.mark.parametrize("key", [name for name, key in KEYS.items() if key.type != click.STRING])
def test_a_variable_that_cannot_be_used_is_named(key: str, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = KEYS[key].variable
    monkeypatch.setenv(variable, "what?")
    for command in (["cache"], ["rank", *CLIPS], ["serve"], ["estimate"]):
        line = refusal(commands, *command)
        assert f"The variable {variable}: {key}: " in line
        assert problem_step() in line
    assert f"vrt-lite: {key}: " in refusal(commands, "config", "set", key, "what?")
    assert f"the nearest key is {key}" in refusal(commands, "config", "set", f"{key}s", "what?")
    assert "vrt-lite config lists the keys" in refusal(commands, "config", "set", "colour", "what?")
    assert not settings_path().exists()


def test_a_servers_credentials_are_neither_kept_nor_shown(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://user:secret@host/v1"
    assert "secret" not in refusal(commands, "config", "set", "backend", address)
    settings_path().write_text(f"backend = '{address}'\n", encoding="utf-8")
    assert "secret" not in refusal(commands, "cache")
    settings_path().unlink()
    monkeypatch.setenv("VRT_LITE_BACKEND", address)
    assert "secret" not in refusal(commands, "cache")
    assert "secret" not in repr(list(check_settings()))


@pytest.mark.parametrize("text", ["", "rounds = 3"])
def test_the_file_is_read_once_a_command(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr("vrt_lite.stored_settings._read_text", lambda: read.append(text) or text)
    assert run(["compare", "no-clip.mp4", "no-clip.mp4"]) == 3
    assert read == [text]


def test_a_switch_has_the_usual_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, value in ((("on", "Yes", "1", "true"), True), (("off", "No", "0", "FALSE"), False)):
        for word in words:
            monkeypatch.setenv("VRT_LITE_CACHE", word)
            assert find_stored()["cache"].value is value


@pytest.mark.parametrize("linked", [False, pytest.param(True, marks=pytest.mark.skipif("sys.platform == 'win32'"))])
def test_changing_the_file_keeps_what_a_user_wrote(tmp_path: Path, *, linked: bool) -> None:
    path = settings_path()
    if linked:  # links need rights on Windows
        path.symlink_to(tmp_path / "dotfiles.toml")
    path.write_text("# Mine.\nmodel = 'vrt-tiny-0' # small\n\nrounds = 2\n", encoding="utf-8")
    assert run(["config", "set", "rounds", "3"]) == 0
    assert run(["config", "set", "cache", "off"]) == 0
    assert run(["config", "unset", "window"]) == 0  # it is not there
    written = path.read_text(encoding="utf-8")
    assert written == "# Mine.\nmodel = 'vrt-tiny-0' # small\n\nrounds = 3\ncache = false\n"
    assert run(["config", "unset", "model"]) == 0
    assert path.read_text(encoding="utf-8") == "# Mine.\n\nrounds = 3\ncache = false\n"
    assert path.is_symlink() == linked
    # A table at the end takes no key.
    path.write_text("[mine]\ncolour = 1\n", encoding="utf-8")
    store_value("rounds", 3)
    assert run(["config", "unset", "mine"]) == 0
    assert {name: kept.value for name, kept in find_stored().items()} == {"rounds": 3}


def test_changes_at_once_are_all_kept() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda item: store_value(item[0], item[1][0]), VALUES.items()))
    assert {name: kept.value for name, kept in find_stored().items()} == {n: v[0] for n, v in VALUES.items()}


def test_a_model_that_is_set(tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is found from everywhere; one that is not here is traced to the setting."""
    (tmp_path / "judge").mkdir()
    (tmp_path / "vrt-tiny-0").mkdir()
    monkeypatch.chdir(tmp_path)
    for given, kept in (("judge", str(tmp_path / "judge")), ("vrt-tiny-0", "vrt-tiny-0")):
        assert run(["config", "set", "model", given]) == 0
        assert find_stored()["model"].value == kept  # a name comes before a folder
    store_value("model", "gone")
    commands.refuse("Without --model, 'gone' is set. See: vrt-lite config", "compare", *CLIPS)
    store_value("first-frames", 60)
    line = refusal(commands, "estimate", "vrt-tiny-2")
    assert "first_frames" in line
    assert line.endswith("What is set for all commands: vrt-lite config")


def test_the_file_lies_where_this_system_keeps_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert settings_path() == Path(os.environ["VRT_LITE_HOME"]) / "config.toml"
    monkeypatch.delenv("VRT_LITE_HOME")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        assert settings_path() == tmp_path / "vrt-lite" / "config.toml"
    assert settings_path().parts[-2:] == ("vrt-lite", "config.toml")


def test_settings_of_the_engine_here_are_not_for_a_server() -> None:
    for key, value in (("threads", 1), ("rounds", 3), ("jobs", 4)):
        store_value(key, value)
    remote = Remote("http://host:8000/v1")
    for words, threads in (([], None), (["--threads", "2"], 2)):
        with parsed("rank", *CLIPS, *words) as ctx:
            settings = take_settings(dict(ctx.params), remote)
            judges = [ChosenJudge(None, None, backend, settings, ctx.params["jobs"]) for backend in (remote, None)]
            assert [judge.choose_jobs() for judge in judges] == [4, 4]
        assert (settings.threads, settings.rounds) == (threads, 3)


def test_an_effort_outdoes_what_comes_from_further_away(monkeypatch: pytest.MonkeyPatch) -> None:
    store_value("max-pixels", 200_704)
    store_value("first-frames", 6)
    assert (taken().max_pixels, taken().first_frames) == (200_704, 6)
    own = taken("--effort", "full")
    assert (own.max_pixels, own.first_frames, own.sources) == (None, None, {"effort": "option"})
    both = taken("--effort", "quick", "--max-pixels", "100352")
    assert (both.effort, both.max_pixels) == ("quick", 100_352)
    monkeypatch.setenv("VRT_LITE_MAX_PIXELS", "301056")
    store_value("effort", "quick")
    assert (taken().effort, taken().max_pixels) == ("quick", 301_056)
