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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from hub_server import Hub, serving
from terminals import Terminal

from vrt_lite.backends import describe_machine
from vrt_lite.cli import run
from vrt_lite.diagnosis.all_checks import (
    EngineReport,
    check_codecs,
    check_configured_model,
    check_devices,
    check_extras,
    check_folders,
    check_models,
    check_store,
    check_tunings,
    check_variables,
    install_for_gpu,
    list_back_ends,
    run_check,
)
from vrt_lite.diagnosis.finding import Finding
from vrt_lite.errors import NoVerdictError
from vrt_lite.machine import Gpu, Machine, MachineMemory
from vrt_lite.models import find, library
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store, users_store
from vrt_lite.show.findings import list_lines, show_findings
from vrt_lite.tuning import Tuning, save_tuning

ROOT = Path(__file__).parent.parent
JUDGE = find("vrt-tiny-0")
TUNING = Tuning(threads=1, projector=JUDGE.projector.name)
HERE = Machine("A processor", 8, (), "CPU : AVX2 = 1 | AMX_INT8 = 1 | REPACK = 0", "0")
MEMORY = MachineMemory(8 * 10**9, 16 * 10**9)
FOLDERS = "from vrt_lite.diagnosis.all_checks import check_folders as check"
posix = pytest.mark.skipif(sys.platform == "win32", reason="the shell's commands are those of POSIX")


def shell(line: str, *before: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as it was printed, in a shell where `vrt-lite` and the Python of the tests are found."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(
        "&&".join((*before, line)),
        shell=True,
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def doctor(*before: str, **variables: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit status of the command, and its findings by kind; `before` are commands given in the same shell."""
    words = subprocess.list2cmdline([sys.executable, "-m", "vrt_lite", "doctor", "--json"])
    done = shell(words, *before, **{"PYTHONPATH": str(ROOT), **variables})
    assert "Traceback" not in done.stderr, done.stderr
    told = json.loads(done.stdout)
    assert told["broken"] == (done.returncode == 9) == ("after each" in done.stderr)
    return done.returncode, {finding["kind"]: finding for finding in told["findings"]}


def in_a_process(program: str, *before: str, start: str = "", **variables: str) -> dict[str, Finding]:
    """The findings that a program prints, by kind. `start` begins the command line, after the commands `before`."""
    words = subprocess.list2cmdline([sys.executable, "-c", f"{program}; print([(f.kind, f) for f in check()])"])
    done = shell(f"{start} {words}", *before, **{"PYTHONPATH": str(ROOT), **variables})
    assert done.returncode == 0, done.stderr
    return dict(eval(done.stdout, {"Finding": Finding}))


def one(findings: Iterator[Finding] | Sequence[Finding], kind: str) -> Finding:
    [found] = [finding for finding in findings if finding.kind == kind]
    return found


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe_machine()


def test_a_plain_machine_has_no_problem(capfd: pytest.CaptureFixture[str], own_home: Path) -> None:
    assert run(["doctor"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert [line for line in lines if line[0] != " "][:-1] == [
        "engine",
        "machine",
        "files",
        "models",
        "settings",
        "packages",
    ]
    assert lines[-1] == "all is well" or lines[-1].startswith("0 problems, ")
    for expected in (
        "llama-cpp-python 0.",
        "runs the bundled judge: ",
        "free of",
        str(own_home),
        "vrt-tiny-2: whole",
    ):
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


def engine_copy(folder: Path, *, library: bytes | None = None, code: str = "") -> str:
    """PYTHONPATH with a copy of the engine's package before all else: its main library replaced, or code added."""
    spec = find_spec("llama_cpp")
    assert spec
    assert spec.origin
    package = Path(spec.origin).parent
    copy = folder / "llama_cpp"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"), copy_function=link_or_copy)
    if library is not None:
        [path] = [p for p in (copy / "lib").iterdir() if p.name in ("libllama.so", "libllama.dylib", "llama.dll")]
        path.unlink()
        path.write_bytes(library)
    source = copy / "llama_cpp.py"
    text = source.read_text(encoding="utf-8")
    source.unlink()
    source.write_text(f"{text}\n{code}", encoding="utf-8")
    return os.pathsep.join((str(folder), str(ROOT)))


def test_an_engine_that_cannot_be_loaded(tmp_path: Path) -> None:
    path = engine_copy(tmp_path, library=b"no library")
    words = subprocess.list2cmdline([sys.executable, "-m", "vrt_lite", "estimate"])
    assert "See what is wrong: vrt-lite doctor" in shell(words, PYTHONPATH=path).stderr
    status, found = doctor(PYTHONPATH=path)
    assert status == 9
    broken = found["engine_unusable"]
    assert broken["level"] == "problem"
    assert broken["text"].startswith("The engine cannot be loaded: Failed to load shared library")
    assert "vrt-lite doctor" not in broken["text"]
    assert broken["next_step"].endswith("-m pip install --force-reinstall --no-cache-dir llama-cpp-python")
    # All else is looked at, and the build is told without loading it.
    assert "back ends: " in found["engine_build"]["text"]
    assert {"memory", "home", "store", "model", "decoders", "settings"} <= found.keys()
    # pip takes the command as it is printed; what it would install is not fetched here.
    assert shell(f"{broken['next_step']} --help").returncode == 0


@pytest.mark.parametrize(("where", "kind"), [("load", "engine_unusable"), ("run", "engine_fails")])
def test_an_engine_that_kills_itself(tmp_path: Path, where: str, kind: str) -> None:
    # The signal may come to another thread, a little later.
    crash = f"import os, time; os.kill(os.getpid(), {int(signal.SIGSEGV)}); time.sleep(60)"
    code = crash if where == "load" else f"def llama_model_load_from_file(*_):\n    {crash}\n"
    status, found = doctor(PYTHONPATH=engine_copy(tmp_path, code=code))
    assert status == 9
    assert ("by signal SIGSEGV" if sys.platform != "win32" else "with status 11") in found[kind]["text"]
    assert "--force-reinstall" in found[kind]["next_step"]
    assert ("processor" in found) == (where == "run")


def test_the_back_ends_are_read_from_the_librarys_files(tmp_path: Path) -> None:
    assert list_back_ends(tmp_path / "nothing") == ()
    for name in ("libggml-cpu.so", "libggml-base.so", "libggml-cuda.so", "libggml.so", "ggml-vulkan.dll"):
        (tmp_path / name).touch()
    assert list_back_ends(tmp_path) == ("cpu", "cuda", "vulkan")


def test_the_documentation_has_the_command_for_each_gpu() -> None:
    table = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    for maker in ("NVIDIA", "Apple", "AMD or Intel"):
        words = install_for_gpu([maker]).partition(" -m ")[2]
        assert f"| `{words}` |" in table


def test_gpus_that_are_used_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = EngineReport(("cpu",), HERE, MEMORY)
    assert [f.text for f in check_devices(plain, [])] == [
        "A processor, 8 usable processors: AVX2, AMX_INT8",
        "memory: 8.00 GB free of 16.00 GB with swap",
        "GPU: none",
    ]
    used = replace(plain, memory=replace(MEMORY, gpus=(Gpu("A card", 6 * 10**9),)))
    assert [f.text for f in check_devices(used, ["NVIDIA"])][2:] == ["GPU: A card, 6.00 GB free"]
    for maker, option in (("NVIDIA", "CUDA"), ("Apple", "METAL"), ("AMD or Intel", "VULKAN")):
        note = one(check_devices(plain, [maker]), "gpu_unused")
        assert (note.level, f"-DGGML_{option}=on" in note.next_step) == ("note", True)
    for_gpu = replace(plain, back_ends=("cpu", "cuda"))
    assert one(check_devices(for_gpu, ["NVIDIA"]), "gpu_not_found").next_step == "nvidia-smi"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in one(check_devices(for_gpu, ["NVIDIA"]), "gpu_not_found").next_step


@pytest.mark.parametrize("spoiled", [True, False])
def test_a_tuning_that_is_not_used_is_noted(machine: Machine, *, spoiled: bool) -> None:
    assert list(check_tunings(machine)) == []
    save_tuning(TUNING, JUDGE, machine)
    assert [f.text for f in check_tunings(machine)] == ["vrt-tiny-0: tuned for this machine and engine"]
    path = save_tuning(TUNING, JUDGE, machine if spoiled else replace(machine, engine="another", gpus=()))
    if spoiled:
        path.write_text("{}", encoding="utf-8")
    note = one(check_tunings(machine), "tuning_stale")
    assert ("another engine" in note.text) != spoiled
    assert shell(note.next_step).returncode == 0
    assert all(f.level == "ok" for f in check_tunings(machine))


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = ("VRT_LITE_API_KEY", "VRT_LITE_TOKEN", "HF_TOKEN", "VRT_LITE_CAHCE_MB")
    for name, value in {**dict.fromkeys(secret, "a-secret"), "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    found = list(check_variables())
    assert "a-secret" not in repr(found)
    assert [f.kind for f in found] == ["hub_offline", "variable_unknown"]
    assert "VRT_LITE_CACHE_MB?" in one(found, "variable_unknown").text
    assert "HF_HUB_OFFLINE" in one(found, "hub_offline").next_step


def test_a_configured_model_that_is_not_here(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(check_configured_model())
    assert run(["config", "set", "model", "vrt-tiny-0"]) == 0
    assert not list(check_configured_model())
    assert run(["config", "set", "model", "vr-thinker-7b"]) == 0
    status, found = doctor()
    problem = found["model_missing"]
    assert (status, problem["level"], problem["next_step"]) == (9, "problem", "vrt-lite pull vr-thinker-7b")
    assert problem["text"].startswith(f"model in {own_home / 'config.toml'} is vr-thinker-7b, and judging ends: ")
    # What cannot be pulled is no longer set after the command.
    assert run(["config", "set", "model", "gone"]) == 0
    name, *rest = shlex.split(one(check_configured_model(), "model_missing").next_step)
    assert (name, run(rest)) == ("vrt-lite", 0)
    assert not list(check_configured_model())
    # A variable wins over the file. With a server the model names a profile alone.
    monkeypatch.setenv("VRT_LITE_MODEL", "./nowhere")
    variable = one(check_configured_model(), "model_missing")
    assert variable.text.startswith("VRT_LITE_MODEL is ./nowhere, ")
    assert "VRT_LITE_MODEL" in variable.next_step
    monkeypatch.setenv("VRT_LITE_BACKEND", "http://host/v1")
    assert not list(check_configured_model())


def test_extras(tmp_path: Path) -> None:
    assert [f.level for f in check_extras()] == ["ok", "ok"]
    program = (
        "import importlib.metadata as m\nfrom vrt_lite.diagnosis import all_checks\n"
        "real = m.version\n"
        "def version(name):\n    if name in ('uvicorn', 'matplotlib'):\n        raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "all_checks.version = version\nfrom vrt_lite.diagnosis.all_checks import check_extras\n"
        "print([(f.level, f.text, f.next_step) for f in check_extras()])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    web, plots = eval(done.stdout)
    assert web[:2] == ("note", "the extra web is not whole: uvicorn missing, which vrt-lite serve needs")
    assert "uvicorn>=" in web[2]
    assert plots[0] == "note"
    assert "matplotlib>=" in plots[2]
    assert shell(f"{web[2]} --help").returncode == 0


def test_what_is_wrong_in_the_environment_is_gone_after_the_commands() -> None:
    wrong = {
        "VRT_LITE_CAHCE_MB": "5",
        "HF_HUB_OFFLINE": "1",
        "VRT_LITE_CACHE_MB": "much",
    }
    status, found = doctor(**wrong)
    assert status == 9
    kinds = {"hub_offline", "variable_unknown", "setting_invalid"}
    status, found = doctor(*(found[kind]["next_step"] for kind in kinds), **wrong)
    assert status == 0
    assert not kinds & found.keys()


def test_a_damaged_model_is_whole_after_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with serving(Hub({path.name: path.read_bytes() for path in (JUDGE.text, JUDGE.projector)})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert run(["pull", "-q", hub.repository]) == 0
        [model] = library.stored_models()
        assert all(finding.level == "ok" for finding in check_models())
        os.truncate(model.path("text"), 1000)
        problem = one(check_models(), "model_damaged")
        assert (problem.level, problem.next_step) == ("problem", f"vrt-lite pull {hub.repository}")
        assert "1000 bytes" in problem.text
        done = shell(problem.next_step)
        assert done.returncode == 0, done.stderr
        assert all(finding.level == "ok" for finding in check_models())
    # A manifest that is no longer one, and a pull that was interrupted.
    (model.folder / library.MANIFEST_NAME).write_text("{", encoding="utf-8")
    assert one(check_models(), "model_damaged").next_step == problem.next_step
    (library.partial_folder("someone/other-GGUF")).mkdir(parents=True)
    assert one(check_models(), "pull_unfinished").next_step == "vrt-lite pull someone/other-GGUF"


def test_a_damaged_bundled_model_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vrt_lite import models

    shutil.copytree(JUDGE.text.parents[1], tmp_path / "bundled")
    os.truncate(tmp_path / "bundled" / "vrt-tiny-0" / JUDGE.projector.name, 5000)
    monkeypatch.setattr(models, "_BUNDLE", tmp_path / "bundled")
    problem = one(check_models(), "model_damaged")
    assert "not a whole GGUF" in problem.text
    assert "-m pip install --force-reinstall " in problem.next_step


@posix
def test_a_file_that_cannot_be_read_is_a_finding(own_home: Path, machine: Machine) -> None:
    folder = own_home / "tuning" / "a.json"
    folder.mkdir(parents=True)
    problem = one(run_check(lambda: check_tunings(machine)), "file_unreadable")
    assert (problem.level, problem.text) == ("problem", f"{folder} cannot be read: Is a directory")
    assert shell(problem.next_step).returncode == 0
    assert not list(check_tunings(machine))


@posix
def test_a_home_that_cannot_be_written(own_home: Path) -> None:
    start = ""
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("this user may write anywhere")
        # Without this capability the rights of files count for this user as for any other.
        start = "setpriv --bounding-set=-dac_override,-dac_read_search"
    own_home.chmod(0o500)
    problem = in_a_process(FOLDERS, start=start)["home_unwritable"]
    assert (problem.level, problem.text) == ("problem", f"{own_home} cannot be written: Permission denied")
    assert problem.next_step == f"chmod -R u+rwX {own_home}"
    assert in_a_process(FOLDERS, problem.next_step, start=start)["home"].level == "ok"


def test_a_home_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path / "file" / "home"))
    problem = one(check_folders(), "home_unwritable")
    assert shell(problem.next_step).returncode == 0
    assert (tmp_path / "file.aside").read_text(encoding="utf-8") == "no folder"
    assert one(check_folders(), "home").level == "ok"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no folder in which nobody may write")
def test_a_home_on_a_disk_that_is_only_read(tmp_path: Path) -> None:
    variables = {"VRT_LITE_HOME": "/proc/self/vrt-lite", "HOME": str(tmp_path)}
    status, found = doctor(**variables)
    assert status == 9
    step = found["home_unwritable"]["next_step"]
    own = tmp_path / "vrt-lite-home"
    assert step == f"export VRT_LITE_HOME={own}"
    home = in_a_process(FOLDERS, step, **variables)["home"]
    assert home.text.startswith(f"{own}: not made yet")


def test_a_disk_that_is_full() -> None:
    pytest.importorskip("resource", reason="this system has no such limit")
    program = f"{FOLDERS}; import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))"
    problem = in_a_process(program)["home_unwritable"]
    assert problem.next_step == "vrt-lite cache --clear"
    assert shell(problem.next_step, PYTHONPATH=str(ROOT)).returncode == 0


def another_programs(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()


def keep_run(store: Store) -> None:
    store.begin("r", kind="rank").add_failure(Question("a", "b", "", "j"), NoVerdictError("No verdict."))


def damaged(path: Path) -> None:
    with Store(path) as store:
        keep_run(store)
    data = bytearray(path.read_bytes())
    data[200:4000] = bytes(3800)
    path.write_bytes(data)
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink()


@pytest.mark.parametrize(("spoil", "kind"), [(another_programs, "store_foreign"), (damaged, "store_unusable")])
def test_a_store_that_cannot_be_used_is_kept_aside(spoil: object, kind: str) -> None:
    path = users_store()
    with Store(path) as store:
        keep_run(store)
    assert "1 runs" in one(check_store(), "store").text
    path.unlink()
    assert callable(spoil)
    spoil(path)
    before = path.read_bytes()
    problem = one(check_store(), kind)
    assert problem.level == "problem"
    assert shell(problem.next_step).returncode == 0
    assert path.with_name(f"{path.name}.aside").read_bytes() == before
    assert one(check_store(), "store").text.endswith("not made yet")


def test_codecs(tmp_path: Path) -> None:
    assert [f.level for f in check_codecs()] == ["ok"]
    (tmp_path / "av").mkdir()
    (tmp_path / "av" / "__init__.py").write_text("import no_such_library", encoding="utf-8")
    program = "from vrt_lite.diagnosis.all_checks import check_codecs as check"
    problem = in_a_process(program, PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT))))["video_unusable"]
    assert (problem.level, "no_such_library" in problem.text) == ("problem", True)
    assert problem.next_step.endswith("-m pip install --force-reinstall --no-cache-dir --only-binary av av")


def test_a_package_that_everything_needs_is_missing(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('no msgspec')", encoding="utf-8")
    status, found = doctor(PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT))))
    assert (status, list(found)) == (9, ["package_unusable"])
    assert "no msgspec" in found["package_unusable"]["text"]
    step = found["package_unusable"]["next_step"]
    assert "-m pip install --force-reinstall " in step
    assert shell(f"{step} --help").returncode == 0


def test_an_engine_that_no_installation_knows(tmp_path: Path) -> None:
    """A package that was copied: it can be imported, but its version is not known."""
    program = (
        "import importlib.metadata as m, sys, vrt_lite.diagnosis as d\n"
        "m.MetadataPathFinder.find_distributions = classmethod(lambda *_: [])\n"
        "print(d.diagnose())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "package_unusable" in done.stdout
    assert "llama-cpp-python" in done.stdout
    assert "--force-reinstall vrt-lite" in done.stdout


FOUND: Mapping[str, Sequence[Finding]] = {
    "engine": [
        Finding("a", "ok", "quick " * 20 + "and \x1b[31mred"),
        Finding("b", "problem", "it fails", "mend " * 30),
    ],
    "machine": [],
    "files": [Finding("c", "note", "slow", "vrt-lite tune")],
}


def test_findings_are_wrapped_at_the_terminals_width_and_commands_are_not() -> None:
    lines = [line for _, line in list_lines(FOUND, width=60)]
    assert lines[0] == "engine"
    assert "machine" not in lines
    assert [line for line in lines if len(line) > 60] == [f"           next: {'mend ' * 30}"]
    assert lines[-3:] == ["  note     slow", "           next: vrt-lite tune", "1 problem, 1 note"]
    assert len(list(list_lines(FOUND))) == 8  # in a pipe nothing is wrapped


@pytest.mark.parametrize("kind", ["dumb", "xterm-256color"])
def test_findings_on_a_terminal_of_60_columns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", "60")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    stream = Terminal("ascii")
    show_findings(FOUND, stream=stream)
    text = stream.getvalue()
    assert text.isascii()
    assert ("\x1b[" in text) == (kind != "dumb")
    assert ("\x1b[1mengine\x1b[0m\n" in text) == (kind != "dumb")
    assert "quick quick quick quick quick quick quick quick\n           quick" in text.replace("\x1b[0m", "")
    assert "\\x1b[31mred" in text
    assert f"next: {'mend ' * 30}".rstrip() in text
