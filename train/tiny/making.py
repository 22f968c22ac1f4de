"""Makes the clips of each scene, measures each at once, and keeps the measures: RUN/specimens/PART-SEED.npz."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from train.tiny.filming import Filmed, Part, draw_spec
from train.tiny.specimens import Plan, count_scenes, make, plan
from vrt_lite.disk import draft_of
from vrt_lite.measures.clip_measures import ClipMeasures, measure_clip
from vrt_lite.measures.definitions import DEFINITIONS
from vrt_lite.video import open_clip

FOLDER = "specimens"
PARTS: tuple[Part, ...] = ("train", "held", "test")


@dataclass(frozen=True, slots=True)
class Specimen:
    """A measured clip: of which scene, what is wrong with it, and its kind of scene."""

    part: Part
    seed: int
    scene: str
    fault: str
    strength: float
    version: str
    generations: int
    group: tuple[str, ...]
    measures: ClipMeasures


def make_all(
    run: Path,
    footage: Path,
    *,
    scale: float = 1.0,
    minutes: float | None = None,
    clips: Path | None = None,
    processes: int = 2,
    say: Callable[[str], None] = print,
) -> bool:
    """Make what a run lacks. Returns whether all is there; not if `minutes` are over. `clips` keeps the files too."""
    end = time.monotonic() + 60 * minutes if minutes is not None else None
    (run / FOLDER).mkdir(parents=True, exist_ok=True)
    wanted: list[tuple[Part, int]] = [(part, seed) for part in PARTS for seed in range(count_scenes(part, scale))]
    wanted.sort(key=lambda each: (each[1] / count_scenes(each[0], scale), each[0]))  # all parts grow together
    missing = [each for each in wanted if not _place(run, *each).exists()]
    work = partial(_make_scene, run, footage, clips)
    with ProcessPoolExecutor(processes) as pool:
        waiting = iter(missing)
        running = {pool.submit(work, *each) for each in islice(waiting, processes)}
        done = len(wanted) - len(missing)
        while running:
            finished = next(as_completed(running))
            running.remove(finished)
            done += 1
            say(f"{done} of {len(wanted)} scenes: {finished.result()}")
            if end is None or time.monotonic() < end:
                running |= {pool.submit(work, *each) for each in islice(waiting, 1)}
    return done == len(wanted)


def _place(run: Path, part: Part, seed: int) -> Path:
    return run / FOLDER / f"{part}-{seed:04d}.npz"


def _make_scene(run: Path, footage: Path, clips: Path | None, part: Part, seed: int) -> str:
    """Make and measure all clips of a scene. Returns a line about it."""
    os.environ |= {"OMP_NUM_THREADS": "1", "SVT_LOG": "1"}
    began, spec = time.monotonic(), draw_spec(seed, part, footage)
    filmed = Filmed(spec, footage)
    rows: list[tuple[Plan, ClipMeasures]] = []
    for number, each in enumerate(plan(filmed, np.random.default_rng((seed, 11)))):
        data = make(filmed, each)
        if data:
            name = f"{part}-{seed:04d}-{number:02d}-{each.fault or each.version or 'clean'}-{each.strength:.2f}.mkv"
            rows.append((each, _measure(data, clips / name if clips else None)))
    group = tuple(
        word
        for word, true in (
            ("grey", spec.grey),
            ("dark", spec.dark > 1),
            ("portrait", spec.portrait),
            ("short", spec.frames < 48),
            ("repeats", spec.hold > 1),
            (spec.kind, True),
        )
        if true
    )
    with draft_of(_place(run, part, seed)) as draft, draft.open("wb") as file:
        np.savez_compressed(
            file,
            values=np.array([[m.values[name] for name in DEFINITIONS] for _, m in rows], np.float32),
            names=np.array(list(DEFINITIONS)),
            looks=np.array([list(m.look) for _, m in rows], np.uint8),
            counts=np.array([(m.frames_measured, m.frames) for _, m in rows]),
            faults=np.array([p.fault for p, _ in rows]),
            versions=np.array([p.version for p, _ in rows]),
            numbers=np.array([(p.strength, p.generations) for p, _ in rows]),
            scene=np.array(spec.scene),
            group=np.array(group),
        )
    width, height = spec.size
    what = f"{spec.kind} {width}x{height}, {spec.frames} frames"
    return f"{part} {seed}, {what}: {len(rows)} clips in {time.monotonic() - began:.0f} s"


def _measure(data: bytes, keep: Path | None) -> ClipMeasures:
    with tempfile.TemporaryDirectory() as scratch:
        path = keep or Path(scratch) / "clip.mkv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        with open_clip(path) as clip:
            return measure_clip(clip)


def load(run: Path) -> list[Specimen]:
    """Return all specimens of a run, in a fixed order."""
    found: list[Specimen] = []
    for path in sorted((run / FOLDER).glob("*.npz")):
        name, _, seed = path.stem.partition("-")
        part: Part = next(each for each in PARTS if each == name)
        with np.load(path) as stored:
            rows: dict[str, NDArray[np.generic]] = dict(stored)
        counts = np.asarray(rows["counts"], np.int64)
        names, group = rows["names"].tolist(), tuple(rows["group"].tolist())
        for i in range(len(rows["faults"])):
            measures = ClipMeasures(
                dict(zip(names, rows["values"][i].tolist(), strict=True)),
                int(counts[i, 0]),
                int(counts[i, 1]),
                bytes(rows["looks"][i].tolist()),
            )
            strength, generations = rows["numbers"][i].tolist()
            found.append(
                Specimen(
                    part,
                    int(seed),
                    str(rows["scene"]),
                    str(rows["faults"][i]),
                    strength,
                    str(rows["versions"][i]),
                    int(generations),
                    group,
                    measures,
                )
            )
    return found
