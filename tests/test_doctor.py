"""`vrt-lite doctor` on machines where something is wrong: what it finds, and that the command that it prints helps."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from hub_server import Hub, serving
from pull_commands import isolate_client
from terminals import Terminal

from vrt_lite import models
from vrt_lite.advice import install_engine
from vrt_lite.backends import describe_machine
from vrt_lite.cli import run
from vrt_lite.diagnosis import all_checks, diagnose
from vrt_lite.diagnosis.finding import Finding
from vrt_lite.errors import NoVerdictError
from vrt_lite.machine import Gpu, Machine, MachineMemory
from vrt_lite.models import find, library
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store, users_store
from vrt_lite.show.findings import show_findings

ROOT = Path(__file__).parent.parent
JUDGE = find("vrt-tiny-0")
HERE = Machine("A processor", 8, (), "CPU : AVX2 = 1 | AMX_INT8 = 1 | REPACK = 0", "0")
posix = pytest.mark.skipif(sys.platform == "win32", reason="the shell's commands are those of POSIX")


def shell(*lines: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run commands as they were printed, in a shell where `vrt-lite` and the Python of the tests are found."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {"PYTHONPATH": str(ROOT), **os.environ, "PATH": path, **variables}
    line = "&&".join(lines)
    return subprocess.run(line, shell=True, env=environment, capture_output=True, text=True, check=False, timeout=300)


def doctor(*before: str, **variables: str) -> tuple[int, dict[str, Finding]]:
    """The exit status of the command, and its findings by kind; `before` are commands given in the same shell."""
    words = subprocess.list2cmdline([sys.executable, "-m", "vrt_lite", "doctor", "--json"])
    done = shell(*before, words, **variables)
    assert "Traceback" not in done.stderr, done.stderr
    told = json.loads(done.stdout)
    assert told["broken"] == (done.returncode == 9) == ("after each" in done.stderr)
    groups = [finding.pop("group") for finding in told["findings"]]
    assert groups == sorted(groups, key=groups.index)
    return done.returncode, {finding["kind"]: Finding(**finding) for finding in told["findings"]}


def print_findings(check: str) -> str:
    """The command line of a process that prints what a check finds."""
    program = f"from vrt_lite.diagnosis.all_checks import {check} as check; print([*check()])"
    return subprocess.list2cmdline([sys.executable, "-c", program])


def one(findings: Iterable[Finding], kind: str) -> Finding:
    [found] = [finding for finding in findings if finding.kind == kind]
    return found


def levels(findings: Iterable[Finding]) -> set[str]:
    return {finding.level for finding in findings}


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe_machine()


def test_a_plain_machine_has_no_problem(capfd: pytest.CaptureFixture[str], own_home: Path) -> None:
    assert run(["doctor"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    lines = out.splitlines()
    groups = ["engine", "machine", "files", "models", "settings", "packages"]
    assert [line for line in lines if line[0] != " "][:-1] == groups
    assert lines[-1] == "all is well" or lines[-1].startswith("0 problems, ")
    for expected in ("llama-cpp-python 0.", "runs the bundled judge: ", "free of", str(own_home), "vrt-tiny-2: whole"):
        assert expected in out
    # A note always has the next command, what is right has none.
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(("  ok", "  note")):
            assert ("next: " in after) == line.startswith("  note"), line
    assert not list(own_home.iterdir())


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copy2(source, target)


def copy_engine(folder: Path) -> Path:
    """Copy the engine's package into the folder; returns the copy, whose files are links."""
    spec = find_spec("llama_cpp")
    assert spec
    [package] = spec.submodule_search_locations or ()
    ignore = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(package, folder / "llama_cpp", ignore=ignore, copy_function=link_or_copy))


def test_an_engine_that_cannot_be_loaded(tmp_path: Path) -> None:
    libraries = (copy_engine(tmp_path) / "lib").iterdir()
    [path] = [path for path in libraries if path.name in ("libllama.so", "libllama.dylib", "llama.dll")]
    path.unlink()
    path.write_bytes(b"no library")
    places = os.pathsep.join((str(tmp_path), str(ROOT)))
    words = subprocess.list2cmdline([sys.executable, "-m", "vrt_lite", "estimate"])
    assert "See what is wrong: vrt-lite doctor" in shell(words, PYTHONPATH=places).stderr
    status, found = doctor(PYTHONPATH=places)
    broken = found["engine_unusable"]
    assert (status, broken.level) == (9, "problem")
    assert broken.text.startswith("The engine cannot be loaded: Failed to load shared library")
    assert "vrt-lite doctor" not in broken.text
    assert broken.next_step.endswith("-m pip install --force-reinstall --no-cache-dir llama-cpp-python")
    # All else is looked at, and the build is told without loading it.
    assert "back ends: " in found["engine_build"].text
    assert {"home", "store", "model", "decoders", "settings"} <= found.keys()
    # pip takes the command as it is printed; what it would install is not fetched here.
    assert shell(f"{broken.next_step} --help").returncode == 0


@pytest.mark.parametrize(("where", "kind"), [("load", "engine_unusable"), ("run", "engine_fails")])
def test_an_engine_that_kills_itself(tmp_path: Path, where: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The signal may come to another thread, a little later.
    crash = f"import os, time; os.kill(os.getpid(), {int(signal.SIGSEGV)}); time.sleep(60)"
    code = crash if where == "load" else f"def llama_model_load_from_file(*_):\n    {crash}\n"
    source = copy_engine(tmp_path) / "llama_cpp.py"
    text = source.read_text(encoding="utf-8")
    source.unlink()
    source.write_text(f"{text}\n{code}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    report, found = all_checks.check_engine()
    assert (report is not None) == (where == "run")
    killed = one(found, kind)
    assert ("by signal SIGSEGV" if sys.platform != "win32" else "with status 11") in killed.text
    assert "--force-reinstall" in killed.next_step


def test_gpus_that_are_used_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = all_checks.EngineReport(("cpu",), HERE, MachineMemory(8 * 10**9, 16 * 10**9))
    assert [f.text for f in all_checks.check_devices(plain, [])] == [
        "A processor, 8 usable processors: AVX2, AMX_INT8",
        "memory: 8.00 GB free of 16.00 GB with swap",
        "GPU: none",
    ]
    used = replace(plain, memory=replace(plain.memory, gpu=Gpu("A card", 6 * 10**9)))
    assert [f.text for f in all_checks.check_devices(used, ["NVIDIA"])][2:] == ["GPU: A card, 6.00 GB free"]
    table = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    for maker, option in (("NVIDIA", "CUDA"), ("Apple", "METAL"), ("AMD or Intel", "VULKAN")):
        note = one(all_checks.check_devices(plain, [maker]), "gpu_unused")
        assert (note.level, f"-DGGML_{option}=on" in note.next_step) == ("note", True)
        assert f"| `{install_engine(all_checks.BY_MAKER[maker]).partition(' -m ')[2]}` |" in table
    for_gpu = replace(plain, back_ends=("cpu", "cuda"))
    assert one(all_checks.check_devices(for_gpu, ["NVIDIA"]), "gpu_not_found").next_step == "nvidia-smi"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in one(all_checks.check_devices(for_gpu, ["NVIDIA"]), "gpu_not_found").next_step
    # The back ends are read from the names of the library's files.
    assert all_checks.list_back_ends(tmp_path / "nothing") == ()
    for name in ("libggml-cpu.so", "libggml-base.so", "libggml-cuda.so", "libggml.so", "ggml-vulkan.dll"):
        (tmp_path / name).touch()
    assert all_checks.list_back_ends(tmp_path) == ("cpu", "cuda", "vulkan")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no folder in which nobody may write")
def test_what_is_wrong_in_the_environment_is_gone_after_the_commands(tmp_path: Path) -> None:
    wrong = {
        "HF_HUB_OFFLINE": "1",
        "VRT_LITE_CACHE_MB": "much",
        "VRT_LITE_HOME": "/proc/self/vrt-lite",
        "HOME": str(tmp_path),
    }
    secrets = dict.fromkeys(("VRT_LITE_API_KEY", "VRT_LITE_TOKEN", "HF_TOKEN", "VRT_LITE_CAHCE_MB"), "a-secret")
    status, found = doctor(**wrong, **secrets)
    assert "a-secret" not in repr(found)
    assert "VRT_LITE_CACHE_MB?" in found["variable_unknown"].text
    kinds = ("hub_offline", "variable_unknown", "setting_invalid", "home_unwritable")
    steps = [found[kind].next_step for kind in kinds]
    assert (status, steps[-1]) == (9, f"export VRT_LITE_HOME={tmp_path / 'vrt-lite-home'}")
    status, found = doctor(*steps, **wrong, **secrets)
    assert (status, found.keys() & kinds) == (0, set())
    assert found["home"].text.startswith(f"{tmp_path / 'vrt-lite-home'}: not made yet")


def test_a_configured_model_that_is_not_here(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(all_checks.check_configured_model())
    assert run(["config", "set", "model", "vrt-tiny-0"]) == 0
    assert not list(all_checks.check_configured_model())
    assert run(["config", "set", "model", "vr-thinker-7b"]) == 0
    problem = one(all_checks.check_configured_model(), "model_missing")
    assert (problem.level, problem.next_step) == ("problem", "vrt-lite pull vr-thinker-7b")
    assert problem.text.startswith(f"model in {own_home / 'config.toml'} is vr-thinker-7b, and judging ends: ")
    # What cannot be pulled is no longer set after the command.
    assert run(["config", "set", "model", "gone"]) == 0
    name, *rest = shlex.split(one(all_checks.check_configured_model(), "model_missing").next_step)
    assert (name, run(rest)) == ("vrt-lite", 0)
    assert not list(all_checks.check_configured_model())
    # A variable wins over the file. With a server the model names a profile alone.
    monkeypatch.setenv("VRT_LITE_MODEL", "./nowhere")
    variable = one(all_checks.check_configured_model(), "model_missing")
    assert variable.text.startswith("VRT_LITE_MODEL is ./nowhere, ")
    assert "VRT_LITE_MODEL" in variable.next_step
    monkeypatch.setenv("VRT_LITE_BACKEND", "http://host/v1")
    assert not list(all_checks.check_configured_model())


def test_a_damaged_model_is_whole_after_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate_client(tmp_path / "hf", monkeypatch)
    with serving(Hub({path.name: path.read_bytes() for path in (JUDGE.text, JUDGE.projector)})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert run(["pull", "-q", hub.repository]) == 0
        [model] = library.stored_models()
        assert levels(all_checks.check_models()) == {"ok"}
        os.truncate(model.path("text"), 1000)
        problem = one(all_checks.check_models(), "model_damaged")
        assert (problem.level, problem.next_step) == ("problem", f"vrt-lite pull {hub.repository}")
        assert "another size" in problem.text
        assert run(shlex.split(problem.next_step)[1:]) == 0
        assert levels(all_checks.check_models()) == {"ok"}
    # A pull that was interrupted.
    library.partial_folder("someone/other-GGUF").mkdir(parents=True)
    assert one(all_checks.check_models(), "pull_unfinished").next_step == "vrt-lite pull someone/other-GGUF"
    # A bundled model.
    shutil.rmtree(model.folder)
    shutil.copytree(JUDGE.text.parents[1], tmp_path / "bundled")
    os.truncate(tmp_path / "bundled" / "vrt-tiny-0" / JUDGE.projector.name, 5000)
    monkeypatch.setattr(models, "_BUNDLE", tmp_path / "bundled")
    problem = one(all_checks.check_models(), "model_damaged")
    assert "not a whole GGUF" in problem.text
    assert "-m pip install --force-reinstall " in problem.next_step


@posix
def test_a_home_that_cannot_be_written(own_home: Path) -> None:
    start = ""
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("this user may write anywhere")
        # Without this capability the rights of files count for this user as for any other.
        start = "setpriv --bounding-set=-dac_override,-dac_read_search "
    words = start + print_findings("check_folders")
    own_home.chmod(0o500)
    step = f"chmod -R u+rwX {own_home}"
    text = f"{own_home} cannot be written: Permission denied"
    before, after = shell(words).stdout, shell(step, words).stdout
    assert repr(Finding("home_unwritable", "problem", text, step)) in before
    assert "_unwritable" not in after
    assert f"{own_home}: writable" in after


@posix
def test_files_where_folders_must_be(own_home: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the other way round."""
    folder = own_home / "judges" / "a.json"
    folder.mkdir(parents=True)
    problem = one(all_checks.run_check(folder.open("rb") for _ in range(1)), "file_unreadable")
    assert (problem.level, problem.text) == ("problem", f"{folder} cannot be read: Is a directory")
    assert shell(problem.next_step).returncode == 0
    assert not folder.exists()
    (own_home / "file").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("VRT_LITE_HOME", str(own_home / "file" / "home"))
    problem = one(all_checks.check_folders(), "home_unwritable")
    assert shell(problem.next_step).returncode == 0
    assert (own_home / "file.aside").read_text(encoding="utf-8") == "no folder"
    assert one(all_checks.check_folders(), "home").level == "ok"


def test_a_disk_that_is_full() -> None:
    resource = pytest.importorskip("resource", reason="this system has no such limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        problem = one(all_checks.check_folders(), "home_unwritable")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert problem.next_step == "vrt-lite cache --clear"
    assert run(["cache", "--clear"]) == 0


def keep_run(store: Store) -> None:
    store.begin("r", kind="rank").add(Question("a", "b", "", "j"), NoVerdictError("No verdict."))


def write_other_program(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[200:4000] = bytes(3800)
    path.write_bytes(data)


@pytest.mark.parametrize(("spoil", "kind"), [(write_other_program, "store_foreign"), (damage, "store_unusable")])
def test_a_store_that_cannot_be_used_is_kept_aside(spoil: Callable[[Path], None], kind: str) -> None:
    path = users_store()
    with Store(path) as store:
        keep_run(store)
    assert "1 runs" in one(all_checks.check_store(), "store").text
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink()
    spoil(path)
    before = path.read_bytes()
    problem = one(all_checks.check_store(), kind)
    assert problem.level == "problem"
    assert shell(problem.next_step).returncode == 0
    assert path.with_name(f"{path.name}.aside").read_bytes() == before
    assert one(all_checks.check_store(), "store").text.endswith("not made yet")


def test_a_package_that_everything_needs_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('no msgspec')", encoding="utf-8")
    status, found = doctor(PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT))))
    assert (status, list(found)) == (9, ["package_unusable"])
    assert "no msgspec" in found["package_unusable"].text
    assert "-m pip install --force-reinstall " in found["package_unusable"].next_step
    # An engine that was copied: it can be imported, but no installation knows it.
    monkeypatch.setattr(metadata.MetadataPathFinder, "find_distributions", lambda *_: [])
    unknown = one(diagnose()["packages"], "package_unusable")
    assert "llama-cpp-python" in unknown.text
    assert unknown.next_step.endswith("--force-reinstall vrt-lite")


def test_codecs_and_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in ("uvicorn", "matplotlib"):
            raise metadata.PackageNotFoundError(name)
        return metadata.version(name)

    assert levels([*all_checks.check_extras(), *all_checks.check_codecs()]) == {"ok"}
    monkeypatch.setattr(all_checks, "version", version)
    web, plots = all_checks.check_extras()
    assert web.text == "the extra web is not whole: uvicorn missing, which vrt-lite serve needs"
    assert (web.level, "uvicorn>=" in web.next_step) == ("note", True)
    assert (plots.level, "matplotlib>=" in plots.next_step) == ("note", True)
    assert shell(f"{web.next_step} --help").returncode == 0
    (tmp_path / "av").mkdir()
    (tmp_path / "av" / "__init__.py").write_text("import no_such_library", encoding="utf-8")
    words = print_findings("check_codecs")
    [video] = eval(shell(words, PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT)))).stdout, {"Finding": Finding})
    assert (video.kind, video.level, "no_such_library" in video.text) == ("video_unusable", "problem", True)
    assert video.next_step.endswith("-m pip install --force-reinstall --no-cache-dir --only-binary av av")


@pytest.mark.parametrize("kind", ["dumb", "xterm-256color"])
def test_a_finding_cannot_command_a_terminal(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal("ascii")
    with redirect_stdout(stream):
        show_findings({"engine": [Finding("a", "problem", "it is \x1b[31mred", "mend " * 30)]})
    text = stream.getvalue()
    assert text.isascii()
    assert "\\x1b[31mred" in text
    assert f"next: {'mend ' * 30}".rstrip() in text  # a command is never wrapped
