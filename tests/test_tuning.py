"""What `tune` finds is kept for one model on one machine, used by compare, and never in a user's way."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import psutil
import pytest
from failing_engine import fail_or_measure

from vrt_lite.backends import describe_machine
from vrt_lite.cli import run
from vrt_lite.cli.options import ChosenJudge
from vrt_lite.errors import ModelError, WorkerEndedError
from vrt_lite.machine import Machine
from vrt_lite.models import ModelFiles, find
from vrt_lite.settings import Remote, Settings
from vrt_lite.tuning import Tuning, choose_projector, keep, load_tuning, plan_engine, tuning_path
from vrt_lite.tuning.tune import TAKEN, ModelSpeed, Tried, check_same, measure_model, tune
from vrt_lite.worker import Worker

ROOT = Path(__file__).parent.parent
JUDGE = find("vrt-tiny-0")
HERE = Machine("A processor", 8, (), "engine 1: AVX2 = 1", "0123")
FOUND = Tuning(threads=4, repack=True, projector="x.gguf")
EXAMPLES = [str(ROOT / "examples" / name) for name in ("a.mp4", "b.mp4")]
PAIR = (*EXAMPLES, "--prompt", "A red square moving right.", "--model", JUDGE.name)


def save_tuning(tuning: Tuning, files: ModelFiles, machine: Machine) -> Path:
    path = tuning_path(files, machine)
    keep(path, tuning)
    return path


def test_what_is_kept_comes_back_and_what_the_user_chose_stays() -> None:
    here = describe_machine()
    assert load_tuning(JUDGE, here) is None
    path = save_tuning(replace(FOUND, threads=1), JUDGE, here)
    assert load_tuning(JUDGE, here) == replace(FOUND, threads=1)
    plan = plan_engine(JUDGE, Settings())
    assert (plan.settings.threads, plan.settings.repack, plan.tuned) == (1, True, True)
    mine = plan_engine(JUDGE, Settings(threads=here.cpus, kv_type="q8_0")).settings
    assert (mine.threads, mine.repack, mine.kv_type) == (here.cpus, True, "q8_0")
    path.unlink()
    plan = plan_engine(JUDGE, Settings())
    assert (plan.settings.threads, plan.settings.repack, plan.tuned) == (None, False, False)


def test_another_machine_with_the_same_home_measures_for_itself() -> None:
    save_tuning(FOUND, JUDGE, HERE)
    for other in (
        replace(HERE, processor="Another"),
        replace(HERE, cpus=4),
        replace(HERE, gpus=("A GPU",)),
        replace(HERE, engine="engine 2: AVX2 = 1"),
        replace(HERE, build="4567"),
    ):
        assert load_tuning(JUDGE, other) is None


def test_the_same_model_elsewhere_has_the_same_tuning_and_one_of_another_size_has_none(tmp_path: Path) -> None:
    text = tmp_path / JUDGE.text.name
    shutil.copy2(JUDGE.text, text)
    there = replace(JUDGE, text=text)
    save_tuning(FOUND, there, HERE)
    assert load_tuning(JUDGE, HERE) == FOUND
    with text.open("ab") as file:
        file.write(bytes(32))
    assert load_tuning(there, HERE) is None


def test_a_file_that_is_not_right_counts_as_absent() -> None:
    path = save_tuning(FOUND, JUDGE, HERE)
    whole, table = path.read_bytes(), json.loads(path.read_bytes())
    values: dict[str, tuple[object, ...]] = {
        "threads": (0, True, "8"),
        "repack": ("yes",),
        "projector": (None,),
        "jobs": (0, 17, None),
    }
    wrong = [[], None, 3, {"threads": 4}]
    wrong += [{**table, key: of} for key, many in values.items() for of in many]
    broken = (b"", whole[: len(whole) // 2], b"\xff\xfe", b"[" * 60_000, whole.replace(b"4", b"NaN"), bytes(10**6))
    for data in (*broken, *(json.dumps(content).encode() for content in wrong)):
        path.write_bytes(data)
        assert load_tuning(JUDGE, HERE) is None, data[:200]
    path.write_bytes(whole)
    assert load_tuning(JUDGE, HERE) == FOUND
    path.unlink()
    path.mkdir()
    assert load_tuning(JUDGE, HERE) is None


@pytest.fixture
def several(tmp_path: Path) -> ModelFiles:
    """A judge with its projector in three types; for these tests all are the same file."""
    folder = tmp_path / "judge"
    shutil.copytree(JUDGE.text.parent, folder)
    f16 = folder / JUDGE.projector.name
    for kind in ("BF16", "Q8_0"):
        shutil.copy(f16, f16.with_name(f16.name.replace("F16", kind)))
    return find(folder)


def test_of_several_types_of_projector_the_measured_one_is_taken(several: ModelFiles) -> None:
    names = [path.name.removeprefix("mmproj-vrt-tiny-0-") for path in several.projectors]
    assert names == ["F16.gguf", "Q8_0.gguf", "BF16.gguf"]
    assert choose_projector(several, lambda: HERE).projector.name.endswith("-F16.gguf")
    save_tuning(FOUND, several, HERE)
    assert choose_projector(several, lambda: HERE) == several, "the measured one is gone"
    save_tuning(replace(FOUND, projector=several.projectors[1].name), several, HERE)
    assert choose_projector(several, lambda: HERE).projector == several.projectors[1]
    # One that is named stays, and the machine is not even asked.
    named = find(several.text, projector=several.projectors[0])
    assert choose_projector(named, lambda: pytest.fail("asked")) == named
    # One of another name is no type of the same.
    shutil.copy(several.projector, several.projector.with_name("mmproj-another-F16.gguf"))
    with pytest.raises(ModelError, match="needs one projector"):
        find(several.text)


def searched(
    factors: dict[tuple[str, object], float], *, noise: float = 0.0, budget: float = 1e9
) -> tuple[Tuning, list[Tried]]:
    """A search on a machine whose speed is given by a table: the factor on the seconds of a judgement, by a value."""
    draw, same = np.random.default_rng(0), np.arange(4, dtype=np.float32)

    def measure(tuning: Tuning) -> ModelSpeed:
        seconds = 10.0 * (1 + noise * draw.uniform(-1, 1))
        for name in ("threads", "repack", "jobs", "projector"):
            seconds *= factors.get((name, getattr(tuning, name)), 1.0)
        return ModelSpeed(seconds, same, same)

    tried = list(tune(JUDGE, measure, budget_seconds=budget))
    return [each.tuning for each in tried if each.outcome == TAKEN][-1], tried


def test_what_wins_clearly_is_taken_and_the_rest_stays() -> None:
    unchanged = Tuning(projector=JUDGE.projector.name)
    best, tried = searched({("repack", True): 1.1, ("jobs", 2): 0.8, ("jobs", 4): 0.78})
    assert best == replace(unchanged, jobs=2)
    outcomes = {each.change: each.outcome for each in tried}
    assert (tried[0].change, outcomes["default"], outcomes["repack True"]) == ("default", TAKEN, "not faster")
    assert (outcomes["jobs 2"], outcomes["jobs 4"]) == ("taken", "not faster")  # 2 % more is not enough
    assert searched({("repack", True): 0.6})[0].repack
    # Noise takes nothing.
    best, tried = searched({}, noise=0.04)
    assert best == unchanged
    assert TAKEN not in {each.outcome for each in tried[1:]}
    # What the budget does not reach is not measured.
    best, tried = searched({("repack", True): 0.1}, budget=-1)
    assert (best, len(tried)) == (unchanged, 1)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as running:
        yield running


def test_another_models_projector_is_not_taken_for_a_type_of_this_one(several: ModelFiles) -> None:
    """Other weights under the name of another type: as quick, and refused for what they compute."""
    from gguf import GGUFReader

    *_, path = several.projectors
    data = bytearray(path.read_bytes())
    for tensor in GGUFReader(path).tensors:
        if tensor.name.startswith("mm.") and tensor.name.endswith("weight"):
            start, size = int(tensor.data_offset), int(tensor.n_bytes)
            values = np.frombuffer(data, np.float16, size // 2, start).copy()
            np.random.default_rng(1).shuffle(values)
            data[start : start + size] = values.tobytes()
    path.write_bytes(data)
    first, same, other = (measure_model(several, (1, 1, 1), Tuning(projector=path.name)) for path in several.projectors)
    check_same(first, same)
    with pytest.raises(ModelError, match="other embeddings"):
        check_same(first, other)
    with pytest.raises(ModelError, match="other logits"):
        check_same(first, replace(first, logits=first.logits * np.nan))


def test_the_search_goes_on_when_an_engine_ends_or_hangs(worker: Worker, several: ModelFiles) -> None:
    _, q8_0, _ = several.projectors

    def measure(tuning: Tuning) -> ModelSpeed:
        fails = "crash" if tuning.repack else "hang" if tuning.jobs == 2 else "stop" * (tuning.projector == q8_0.name)
        if fails == "hang":
            worker.call(time.sleep, 0)  # it is started
        return worker.call(fail_or_measure, fails, several, tuning, seconds=1.0 if fails == "hang" else 30.0)

    tried = tune(several, measure, budget_seconds=100)
    reasons = {each.change: each.outcome for each in tried if "refused" in each.outcome}
    crash = "ended by signal SIGSEGV" if sys.platform != "win32" else "ended with status 11"
    expected = {f"projector {q8_0.name}": "no such kernel", "repack True": crash, "jobs 2": "gave no answer in time"}
    assert reasons.keys() == expected.keys()
    assert all(says in reasons[value] for value, says in expected.items()), reasons


def test_an_engine_that_does_not_run_at_all_is_an_error(worker: Worker) -> None:
    def measure(tuning: Tuning) -> ModelSpeed:
        return worker.call(fail_or_measure, "crash", JUDGE, tuning)

    with pytest.raises(WorkerEndedError, match="See what is wrong: vrt-lite doctor"):
        next(tune(JUDGE, measure, budget_seconds=5))


def output(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = run(arguments)
    out, err = capfd.readouterr()
    assert status == 0, err
    return out


def test_compare_uses_what_tune_found(capfd: pytest.CaptureFixture[str], own_home: Path) -> None:
    schema = json.loads((ROOT / "vrt_lite" / "schema" / "judgement.schema.json").read_text(encoding="utf-8"))

    def judged(*options: str) -> tuple[dict[str, object], object]:
        judgement = json.loads(output(capfd, "compare", *PAIR, "--again", "--json", *options))
        jsonschema.validate(judgement, schema)
        return judgement["settings"]["engine"], judgement["verdict"]

    told = json.loads(output(capfd, "tune", JUDGE.name, "--budget", "1", "--json"))
    assert told["tuning"]["projector"] == JUDGE.projector.name
    assert Path(told["file"]).is_relative_to(own_home)
    # Compilers before GCC 13.3 build kernels for AMX that crash.
    refused = {tried["change"] for tried in told["tried"] if "refused" in tried["outcome"]}
    assert refused <= ({"repack True"} if "AMX_INT8 = 1" in describe_machine().engine else set())
    first, second = judged(), judged()
    assert first == second  # settings and verdict, to the last bit
    used = {name: told["tuning"][name] for name in ("threads", "repack")}
    assert first[0] == first[0] | used | {"tuned": True}
    # What is found on another day may differ, what the user says does not.
    found = load_tuning(JUDGE, describe_machine())
    assert found
    save_tuning(replace(found, threads=describe_machine().cpus), JUDGE, describe_machine())
    alone = judged("--threads", "1")[0]
    assert alone == alone | used | {"threads": 1, "tuned": True}
    shown = output(capfd, "tune", JUDGE.name, "--budget", "1").splitlines()
    assert [line.split()[0] for line in shown[:2]] == ["SETTING", "default"]
    assert "times as fast as the defaults" in shown[-1]
    assert "deleted" in output(capfd, "tune", JUDGE.name, "--forget")
    assert judged()[0]["tuned"] is False
    assert "nothing was kept" in output(capfd, "tune", JUDGE.name, "--forget")


def test_a_ranking_judges_as_many_pairs_at_once_as_tune_found() -> None:
    def jobs(given: int | None, model: str = JUDGE.name, backend: Remote | None = None) -> int:
        return ChosenJudge(model, None, backend, Settings(), given).choose_jobs()

    assert jobs(None) == 1
    save_tuning(Tuning(projector="x.gguf", jobs=2), JUDGE, describe_machine())
    assert (jobs(None), jobs(3), jobs(None, "vrt-tiny-2"), jobs(None, "missing")) == (2, 3, 1, 1)
    assert jobs(None, backend=Remote("http://host:8000/v1")) == 1


def test_an_interrupt_keeps_nothing(own_home: Path) -> None:
    code = (
        "import signal, sys, threading, psutil\n"
        "from vrt_lite.cli import run\n"
        "threading.Timer(0.8, lambda: signal.raise_signal(signal.SIGINT)).start()\n"
        "status = run(['tune', '--budget', '600'])\n"
        "_, left = psutil.wait_procs(psutil.Process().children(), timeout=60)\n"
        "sys.exit(99 if left else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "vrt-lite: Interrupted."
    assert not done.stdout
    assert not list(itertools.chain(own_home.rglob("*.json"), own_home.rglob(".*")))


def processor_seconds(process: psutil.Process) -> float:
    try:
        return float(process.cpu_times().user)
    except psutil.NoSuchProcess:
        return 0.0


def test_a_killed_run_leaves_no_process_behind() -> None:
    command = [sys.executable, "-m", "vrt_lite", "tune", "--budget", "600"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        started: list[psutil.Process] = []
        while not any(processor_seconds(each) > 0.3 for each in started):  # until one measures
            assert parent.poll() is None
            time.sleep(0.01)
            started = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
