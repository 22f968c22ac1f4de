"""What `tune` finds is kept for one model on one machine, used by compare, and never in a user's way."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import jsonschema
import numpy as np
import psutil
import pytest
from failing_engine import fail_or_measure

from vrt_lite.backends import describe_machine
from vrt_lite.cli import run
from vrt_lite.cli.run_options import choose_jobs
from vrt_lite.errors import EngineEndedError, ModelError
from vrt_lite.machine import EngineSettings, Machine
from vrt_lite.models import ModelFiles, find
from vrt_lite.settings import Remote
from vrt_lite.tuning import (
    Speed,
    Tuning,
    apply_tuning,
    choose_projector,
    delete_tuning,
    load_tuning,
    save_tuning,
    tuning_path,
)
from vrt_lite.tuning.search import STAGES, SearchResult, Seconds, Setup, Stage, list_changes, search
from vrt_lite.tuning.tune import Measurer, tune

JUDGE = find("vrt-tiny-0")
HERE = Machine("A processor", 8, (), "engine 1: AVX2 = 1", "0123")
SLOW, QUICK = Speed(2.0, 50.0, 8.0), Speed(1.0, 90.0, 9.0)
FOUND = Tuning(
    threads=4,
    repack=True,
    flash_attention=None,
    ubatch=1024,
    kv_type="f16",
    projector="x.gguf",
    speed=QUICK,
    default_speed=SLOW,
)
EXAMPLES = [str(Path(__file__).parent.parent / "examples" / name) for name in ("a.mp4", "b.mp4")]
SCHEMA = Path(__file__).parent.parent / "vrt_lite" / "schema" / "judgement.schema.json"


def test_what_is_kept_comes_back() -> None:
    assert load_tuning(JUDGE, HERE) is None
    path = save_tuning(FOUND, JUDGE, HERE)
    assert load_tuning(JUDGE, HERE) == FOUND
    assert apply_tuning(JUDGE, EngineSettings(), HERE) == (EngineSettings(threads=4, repack=True, ubatch=1024), True)
    assert path.is_file()
    assert delete_tuning(JUDGE, HERE)
    assert not delete_tuning(JUDGE, HERE)
    assert apply_tuning(JUDGE, EngineSettings(), HERE) == (EngineSettings(), False)


@pytest.mark.parametrize(
    "other",
    [
        replace(HERE, processor="Another"),
        replace(HERE, cpus=4),
        replace(HERE, gpus=("A GPU",)),
        replace(HERE, engine="engine 2: AVX2 = 1"),
        replace(HERE, build="4567"),
    ],
)
def test_another_machine_with_the_same_home_measures_for_itself(other: Machine) -> None:
    path = save_tuning(FOUND, JUDGE, HERE)
    assert load_tuning(JUDGE, other) is None
    # Nor does a file count that was copied to the other's name.
    shutil.copy(path, tuning_path(JUDGE, other))
    assert load_tuning(JUDGE, other) is None


def test_another_model_of_the_same_name_size_and_time_is_not_taken_for_this_one(tmp_path: Path) -> None:
    text = tmp_path / JUDGE.text.name
    shutil.copy2(JUDGE.text, text)
    there = replace(JUDGE, text=text)
    save_tuning(FOUND, there, HERE)
    assert load_tuning(JUDGE, HERE) == FOUND  # the same file elsewhere is the same model
    status, data = text.stat(), bytearray(text.read_bytes())
    data[200] ^= 1
    text.write_bytes(data)
    assert text.stat().st_size == status.st_size
    assert load_tuning(there, HERE) is None


def test_a_file_of_an_earlier_version_says_nothing_of_jobs() -> None:
    path = save_tuning(replace(FOUND, jobs=4), JUDGE, HERE)
    table = json.loads(path.read_bytes())
    assert load_tuning(JUDGE, HERE) == replace(FOUND, jobs=4)
    del table["tuning"]["jobs"]
    path.write_text(json.dumps(table), encoding="utf-8")
    assert load_tuning(JUDGE, HERE) == FOUND
    assert FOUND.jobs == 1


def changed(**values: object) -> Callable[[dict[str, object]], object]:
    def change(table: dict[str, object]) -> object:
        inner = table["tuning"]
        assert isinstance(inner, dict)
        return {**table, "tuning": {**inner, **values}}

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda _: [],
        lambda _: None,
        lambda table: {**table, "format": 0},
        lambda table: {**table, "tuning": 3},
        lambda table: {"format": table["format"]},
        changed(threads=0),
        changed(threads=9),  # HERE has eight processors
        changed(threads=True),
        changed(threads="8"),
        changed(repack="yes"),
        changed(flash_attention=1),
        changed(ubatch=10**9),
        changed(kv_type="q4_0"),
        changed(kv_type="q8_0", flash_attention=False),
        changed(projector=None),
        changed(speed={}),
        changed(speed={"pair_seconds": 1.0, "prefill": 0.0, "decode": 1.0}),
        changed(jobs=0),
        changed(jobs=17),
        changed(jobs=None),
        changed(unknown=1),
    ],
)
def test_a_file_that_is_not_right_counts_as_absent(change: Callable[[dict[str, object]], object]) -> None:
    path = save_tuning(FOUND, JUDGE, HERE)
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))), encoding="utf-8")
    assert load_tuning(JUDGE, HERE) is None


def test_a_broken_file_counts_as_absent() -> None:
    path = save_tuning(FOUND, JUDGE, HERE)
    whole = path.read_bytes()
    for data in (
        b"",
        whole[: len(whole) // 2],
        b"\xff\xfe",
        b"[" * 60_000,
        whole.replace(b"1.0", b"NaN"),
        bytes(10**6),
    ):
        path.write_bytes(data)
        assert load_tuning(JUDGE, HERE) is None
    path.unlink()
    path.mkdir()
    assert load_tuning(JUDGE, HERE) is None


def test_what_the_user_chose_stays() -> None:
    assert FOUND.apply_to(EngineSettings(threads=2)) == EngineSettings(threads=2, repack=True, ubatch=1024)
    assert FOUND.apply_to(EngineSettings(kv_type="q8_0", ubatch=128)) == EngineSettings(
        threads=4, repack=True, ubatch=128, kv_type="q8_0"
    )
    # Together with what the user chose the engine could not run: nothing is taken.
    off = replace(FOUND, flash_attention=False)
    assert off.apply_to(EngineSettings(kv_type="q8_0")) == EngineSettings(kv_type="q8_0")


def test_layers_that_the_user_put_on_a_gpu_were_not_measured() -> None:
    with_gpu = replace(HERE, gpus=("A GPU",))
    save_tuning(FOUND, JUDGE, with_gpu)
    save_tuning(FOUND, JUDGE, HERE)
    assert not apply_tuning(JUDGE, EngineSettings(gpu_layers=3), with_gpu)[1]
    assert apply_tuning(JUDGE, EngineSettings(), with_gpu)[1]
    assert apply_tuning(JUDGE, EngineSettings(gpu_layers=0), HERE)[1]
    assert not apply_tuning(JUDGE, EngineSettings(exact=True), HERE)[1]


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
    bf16 = replace(HERE, engine="engine: AVX512_BF16 = 1")
    names = [path.name.removeprefix("mmproj-vrt-tiny-0-") for path in several.projectors]
    assert names == ["F16.gguf", "Q8_0.gguf", "BF16.gguf"]
    assert choose_projector(several, lambda: HERE).projector.name.endswith("-F16.gguf")
    assert choose_projector(several, lambda: bf16).projector.name.endswith("BF16.gguf")
    save_tuning(replace(FOUND, projector=several.projectors[1].name), several, bf16)
    assert choose_projector(several, lambda: bf16).projector == several.projectors[1]
    # One that is named stays, and the machine is not even asked.
    named = find(several.text, projector=several.projectors[0])
    assert choose_projector(named, lambda: pytest.fail("asked")) == named


def test_projectors_of_other_names_are_not_exchanged(several: ModelFiles) -> None:
    shutil.copy(several.projector, several.projector.with_name("mmproj-another-F16.gguf"))
    with pytest.raises(ModelError, match="must hold one projector"):
        find(several.text)


Table = dict[str, dict[Stage, float]]
"""By a setup's name: the factor on each stage's seconds."""


def searched(
    factors: Table, *, noise: float = 0.0, budget: float = 1e9, costs: float = 1.0, most_jobs: int = 1
) -> tuple[SearchResult, list[str]]:
    """A search on a machine whose speed is given by a table; a measurement takes `costs` seconds of its clock."""
    start = Setup(EngineSettings(), Path("F16.gguf"))
    usual: dict[Stage, float] = {"vision": 4.0, "prefill": 1 / 60, "decode": 1 / 7, "together": 1 / 7}
    measured: list[str] = []
    draw = np.random.default_rng(0)

    def named(setup: Setup) -> list[str]:
        s = setup.settings
        flash = {None: "", False: "flash off", True: "flash on"}[s.flash_attention]
        names = [f"threads {s.threads}", "repack" if s.repack else "", flash, f"ubatch {s.ubatch}", s.kv_type]
        return [*names, setup.projector.name, f"jobs {setup.jobs}"]

    def measure(setup: Setup, stages: tuple[Stage, ...]) -> Seconds:
        measured.extend(f"{stage} {' '.join(named(setup))}" for stage in stages)
        seconds: Seconds = {}
        for stage in stages:
            factor = np.prod([factors.get(name, {}).get(stage, 1.0) for name in named(setup)])
            seconds[stage] = float(usual[stage] * factor * (1 + noise * draw.uniform(-1, 1)))
        return seconds

    found = search(
        start,
        list_changes(
            start,
            [Path("F16.gguf"), Path("BF16.gguf")],
            physical_cpus=4,
            usable_cpus=8,
            most_jobs=lambda: most_jobs,
            repack_fits=lambda: True,
            long_prefill=lambda: True,
        ),
        measure=measure,
        budget_seconds=budget,
        clock=lambda: len(measured) * costs,
    )
    return found, measured


def test_what_wins_clearly_is_taken_and_the_rest_stays() -> None:
    slower: dict[Stage, float] = {"vision": 1.5, "prefill": 1.6, "decode": 1.6}
    found, _ = searched(
        {
            "threads 4": {"vision": 0.9, "prefill": 0.85, "decode": 0.8},
            "threads 2": slower,
            "repack": {"prefill": 1.7, "decode": 0.8},
            "flash off": {"vision": 1.6},
            "q8_0": {"prefill": 1.3},
            "BF16.gguf": {"vision": 0.6},
        }
    )
    assert found.setup == Setup(EngineSettings(threads=4), Path("BF16.gguf"))
    assert found.speed.verdict_seconds < 0.8 * found.default_speed.verdict_seconds
    assert [t.outcome for t in found.tried if t.name == "threads"] == ["taken", "not faster"]
    assert found.speed.pair_seconds == pytest.approx(4.0 * 0.9 * 0.6)


def test_judging_several_pairs_at_once_is_found_beside_all_else() -> None:
    factors: Table = {
        "jobs 2": {"together": 0.6},
        "jobs 4": {"together": 0.35},
        "threads 4": {"vision": 0.9, "prefill": 0.85, "decode": 0.8, "together": 0.8},
    }
    for most, jobs in ((1, 1), (2, 2), (3, 2), (4, 4)):
        found, _ = searched(factors, most_jobs=most)
        assert found.setup == Setup(EngineSettings(threads=4), Path("F16.gguf"), jobs)
        # What the search finds for a single judgement, and its speed, stay as they are.
        assert found.speed == searched(factors)[0].speed
    outcomes = {tried.value: tried.outcome for tried in found.tried if tried.name == "jobs"}
    assert outcomes == {"2": "taken", "4": "taken"}
    factors["jobs 4"] = {"together": 0.55}  # 2 % of a verdict
    assert searched(factors, most_jobs=4)[0].setup.jobs == 2


def test_noise_takes_nothing() -> None:
    found, _ = searched({}, noise=0.04, most_jobs=4)
    assert found.setup == Setup(EngineSettings(), Path("F16.gguf"))
    assert "taken" not in {tried.outcome for tried in found.tried}


def test_less_accuracy_must_win_twice_as_clearly() -> None:
    def kv(factor: float) -> str:
        return searched({"q8_0": {"prefill": factor, "decode": factor}})[0].setup.settings.kv_type

    assert kv(0.88) == "f16"  # 8 % of the whole
    assert kv(0.7) == "q8_0"


def test_quantised_values_are_never_tried_without_flash_attention() -> None:
    found, measured = searched({"flash off": {"vision": 0.5, "prefill": 0.5, "decode": 0.5}})
    assert found.setup.settings.flash_attention is False
    assert not any("q8_0" in name for name in measured)


def test_the_budget_is_kept_and_what_it_does_not_reach_stays() -> None:
    for budget in (1, 5, 9, 14, 30):
        found, measured = searched({"repack": {"prefill": 0.1, "decode": 0.1}}, budget=budget)
        assert len(measured) <= max(budget, len(STAGES)) + 3  # the other side of a second look
        late = [tried for tried in found.tried if tried.outcome == "no time"]
        assert bool(late) == (budget < 30)
        assert found.setup.settings.repack == (budget >= 30)


def test_a_setting_that_the_engine_refuses_is_left_out() -> None:
    def measure(setup: Setup, stages: tuple[Stage, ...]) -> Seconds:
        if setup.settings.repack:
            raise ModelError("The engine gives other logits.")
        return dict.fromkeys(stages, 1.0)

    start = Setup(EngineSettings(), JUDGE.projector)
    changes = list_changes(
        start,
        [],
        physical_cpus=2,
        usable_cpus=2,
        most_jobs=lambda: 1,
        repack_fits=lambda: True,
        long_prefill=lambda: True,
    )
    found = search(start, changes, measure=measure, budget_seconds=100)
    assert [(t.outcome, t.reason) for t in found.tried if t.name == "repack"] == [
        ("refused", "The engine gives other logits.")
    ]
    assert not found.setup.settings.repack


def test_all_that_is_tried_the_engine_can_run(several: ModelFiles) -> None:
    start = Setup(EngineSettings(), several.projector)
    changes = list_changes(
        start,
        several.projectors,
        physical_cpus=2,
        usable_cpus=4,
        most_jobs=lambda: 4,
        repack_fits=lambda: True,
        long_prefill=lambda: True,
    )
    setups = [start, *(change.apply(start) for change in changes)]
    assert [setup.jobs for setup in setups[:4]] == [1, 2, 4, 1]
    assert len(setups) == 12
    stages: tuple[Stage, ...] = (*STAGES, "together")
    measurer = Measurer(several, profile=several.profile, budget_seconds=1)
    for setup in setups:
        try:
            seconds = measurer.measure(setup, stages)
        except EngineEndedError as error:
            # Compilers before GCC 13.3 build kernels for AMX that crash.
            assert setup.settings.repack, error
            assert "AMX_INT8 = 1" in describe_machine().engine, error
        else:
            assert set(seconds) == set(stages)
            assert min(seconds.values()) > 0


def test_another_models_projector_is_not_taken_for_a_type_of_this_one(several: ModelFiles) -> None:
    """Other weights under the name of another type: as quick, and refused for what they compute."""
    from gguf import GGUFReader

    data = bytearray(several.projectors[2].read_bytes())
    for tensor in GGUFReader(several.projectors[2]).tensors:
        if tensor.name.startswith("mm.") and tensor.name.endswith("weight"):
            start, size = int(tensor.data_offset), int(tensor.n_bytes)
            values = np.frombuffer(data, np.float16, size // 2, start).copy()
            np.random.default_rng(1).shuffle(values)
            data[start : start + size] = values.tobytes()
    several.projectors[2].write_bytes(data)
    measurer = Measurer(several, profile=several.profile, budget_seconds=2)
    measurer.measure(Setup(EngineSettings(), several.projectors[0]), ("vision",))
    measurer.measure(Setup(EngineSettings(), several.projectors[1]), ("vision",))
    with pytest.raises(ModelError, match="other embeddings"):
        measurer.measure(Setup(EngineSettings(), several.projectors[2]), ("vision",))


def test_measuring_gives_figures_for_every_stage() -> None:
    tuning, found = tune(JUDGE, profile=JUDGE.profile, budget_seconds=1)
    assert found.tried[0].outcome == "default"
    assert set(found.tried[0].seconds) == set(STAGES)
    for speed in (tuning.speed, tuning.default_speed):
        assert min(speed.pair_seconds, speed.prefill, speed.decode, speed.verdict_seconds) > 0
    assert load_tuning(JUDGE, describe_machine()) is None  # measuring alone keeps nothing


def failing(first_seconds: float = 600.0, **failures: str) -> Callable[..., Measurer]:
    """What measures, but its engine fails as tests/failing_engine.py says."""
    measure_setup = partial(fail_or_measure, failures)
    return partial(Measurer, measure_setup=measure_setup, first_seconds=first_seconds, least_seconds=8.0, times=3.0)


def measuring() -> list[psutil.Process]:
    """The processes that measure and are still there, among all that the tests have started."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            found += [child] * any("spawn_main" in word for word in child.cmdline())
    return found


def crashed(status: int) -> str:
    return "by signal SIGSEGV" if sys.platform != "win32" else f"with status {status}"


def test_an_engine_that_ends_or_hangs_refuses_a_setting_and_the_search_goes_on() -> None:
    start = failing(default="chatter", repack="crash", flash="hang", q8_0="stop")
    _, found = tune(JUDGE, profile=JUDGE.profile, budget_seconds=200, open_measurer=start)
    said = {(tried.name, tried.value): (tried.outcome, tried.reason) for tried in found.tried}
    assert said["default", ""] == ("default", "")
    outcome, reason = said["repack", "on"]
    assert (outcome, reason) == ("refused", f"the engine ended {crashed(11)}: a library prints")
    outcome, reason = said["flash attention", "on"]
    assert (outcome, reason[:13], reason[-2:]) == ("refused", "no answer in ", " s")
    assert said["flash attention", "off"][0] in ("taken", "not faster")
    if said["flash attention", "off"][0] == "taken":
        return  # the engine quantises values only with it
    assert said["kv type", "q8_0"] == ("refused", "the engine ended with status 1: RuntimeError: no such kernel")
    assert not measuring()


@pytest.mark.parametrize(
    ("what", "says"), [("crash", f"the engine ended {crashed(11)}"), ("hang", "no answer in 3 s"), ("stop", "kernel")]
)
def test_an_engine_that_does_not_run_at_all_is_an_error(what: str, says: str) -> None:
    start = failing(3.0 if what == "hang" else 600.0, default=what)
    with pytest.raises(ModelError, match=f"vrt-tiny-0 cannot be measured.*{says}.*Install it again"):
        tune(JUDGE, profile=JUDGE.profile, budget_seconds=5, open_measurer=start)
    assert not measuring()


def output(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = run(arguments)
    out, err = capfd.readouterr()
    assert status == 0, err
    return out


def test_compare_uses_what_tune_found(capfd: pytest.CaptureFixture[str], own_home: Path) -> None:
    def engine(*options: str) -> tuple[dict[str, object], object]:
        command = ("compare", *EXAMPLES, "--prompt", "A red square moving right.", "--model", JUDGE.name)
        judgement = json.loads(output(capfd, *command, "--json", *options))
        jsonschema.validate(judgement, json.loads(SCHEMA.read_text(encoding="utf-8")))
        return judgement["settings"]["engine"], judgement["verdict"]

    assert engine()[0]["tuned"] is False
    told = json.loads(output(capfd, "tune", JUDGE.name, "--budget", "3", "--json"))
    assert told["tuning"]["projector"] == JUDGE.projector.name
    assert Path(told["file"]).is_relative_to(own_home)
    first, second = engine(), engine()
    assert first == second  # settings and verdict, to the last bit
    used = {name: told["tuning"][name] for name in ("threads", "repack", "flash_attention", "ubatch", "kv_type")}
    assert first[0].items() >= {**used, "tuned": True}.items()
    # What is found on another day may differ, what the user says does not.
    found = load_tuning(JUDGE, describe_machine())
    assert found
    save_tuning(replace(found, threads=describe_machine().cpus, ubatch=256), JUDGE, describe_machine())
    mine = {**used, "threads": 1, "ubatch": 256, "tuned": True}
    assert engine("--threads", "1")[0].items() >= mine.items()
    assert "deleted" in output(capfd, "tune", JUDGE.name, "--forget")
    assert engine()[0]["tuned"] is False
    assert "nothing was kept" in output(capfd, "tune", JUDGE.name, "--forget")


def test_tune_says_what_it_measured(capfd: pytest.CaptureFixture[str]) -> None:
    lines = output(capfd, "tune", "--budget", "1").splitlines()
    assert lines[0].split()[:2] == ["SETTING", "VALUE"]
    assert lines[1].split()[0] == "default"
    assert any(line.startswith("repack ") for line in lines)
    assert "times as fast as the defaults" in lines[-1]


def test_a_ranking_judges_as_many_pairs_at_once_as_tune_found(capfd: pytest.CaptureFixture[str]) -> None:
    remote = Remote("http://host:8000/v1")

    def jobs(given: int | None, model: str = JUDGE.name, backend: Remote | None = None) -> int:
        return choose_jobs(given, model, None, backend)

    assert jobs(None) == 1
    save_tuning(replace(FOUND, threads=1, repack=False, jobs=2), JUDGE, describe_machine())
    assert (jobs(None), jobs(3), jobs(None, "vrt-tiny-2"), jobs(None, "missing"), jobs(None, backend=remote)) == (
        *(2, 3, 1, 1, 1),
    )
    entries = {entry["key"]: entry for entry in json.loads(output(capfd, "config", "--json"))["settings"]}
    assert (entries["jobs"]["value"], entries["jobs"]["from"]) == (None, "default")  # of the default model
    words = ("rank", *EXAMPLES, "--prompt", "A red square moving right.", "--model", JUDGE.name, "--json")
    [ladder] = json.loads(output(capfd, *words))["ladders"]
    assert (ladder["judgements"], ladder["failures"]) == (2, 0)


def test_an_interrupt_keeps_nothing(own_home: Path) -> None:
    code = (
        "import signal, sys, threading, psutil\n"
        "from vrt_lite.cli import run\n"
        "threading.Timer(2, lambda: signal.raise_signal(signal.SIGINT)).start()\n"
        "status = run(['tune', '--budget', '600'])\n"
        "children = psutil.Process().children()\n"
        "_, left = psutil.wait_procs([c for c in children if 'spawn_main' in ' '.join(c.cmdline())], timeout=10)\n"
        "sys.exit(99 if left else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "vrt-lite: Interrupted."
    assert not done.stdout
    assert not list(itertools.chain(own_home.rglob("*.json"), own_home.rglob(".*")))


def test_a_killed_run_leaves_no_process_behind() -> None:
    command = [sys.executable, "-m", "vrt_lite", "tune", "--budget", "600"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        while not (started := psutil.Process(parent.pid).children()):
            assert parent.poll() is None
            time.sleep(0.01)
        time.sleep(2)  # into the measuring
        parent.kill()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
