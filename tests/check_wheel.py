"""Builds the wheel in dist/, looks at it, and uses it alone: a new environment, a folder outside the repository.

Alone it judges, converts a checkpoint and pulls one. The environment has what the wheel depends on, and no torch.

python -m tests.check_wheel
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bench.loopback_hub import serve_folder
from tests.convert import synthetic_checkpoint

REPOSITORY = Path(__file__).parent.parent
IN_A_CHECKOUT_ALONE = "vrt-tiny-0.toml"
RECIPES = sorted({path.name for path in (REPOSITORY / "models").glob("*.toml")} - {IN_A_CHECKOUT_ALONE})
VIEWER = sorted(path.name for path in (REPOSITORY / "vrt_lite" / "viewer").glob("*.*"))
MUST_HOLD = (
    "vrt_lite/py.typed",
    "vrt_lite/presets.toml",
    "vrt_lite/schema/judgement.schema.json",
    *(f"vrt_lite/viewer/{name}" for name in VIEWER),
    *(f"vrt_lite/recipes/{name}" for name in RECIPES),
)
MOST_BYTES = 8 * 2**20  # the default judge of 4 MB, and the heads that compare measures, 1.6 MB


def run(*command: str | Path, cwd: Path, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    env = os.environ | environment
    return subprocess.run(command, cwd=cwd, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


def check_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    foreign = [name for name in names if not name.startswith(("vrt_lite/", "vrt_lite-"))]
    assert not foreign, f"the wheel holds {foreign}"
    missing = [name for name in MUST_HOLD if name not in names]
    assert not missing, f"the wheel lacks {missing}"
    models = sorted(name for name in names if name.endswith(".gguf"))
    assert len(models) == 2, f"the wheel holds the models {models}"
    assert wheel.stat().st_size < MOST_BYTES, f"the wheel has {wheel.stat().st_size} bytes"


def install(wheel: Path, folder: Path) -> Path:
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder)
    return python


def check_use(python: Path, folder: Path) -> None:
    clips = [REPOSITORY / "examples" / name for name in ("star.mp4", "circle.mp4")]
    compare = ("-m", "vrt_lite", "compare", *clips, "--prompt", "A blue star moves up.", "--json")
    judgement = json.loads(run(python, *compare, cwd=folder))
    assert judgement["verdict"]["overall"]["winner"] == 1, judgement["verdict"]
    listed = json.loads(run(python, "-m", "vrt_lite", "models", "--json", cwd=folder))
    missing = {name.removesuffix(".toml") for name in RECIPES} - {entry["name"] for entry in listed}
    assert not missing, f"the wheel does not know {missing}"
    where = run(python, "-c", "import vrt_lite; print(vrt_lite.__file__)", cwd=folder)
    assert str(REPOSITORY) not in where, f"the wheel's own package was not used: {where}"


def check_conversion(python: Path, folder: Path) -> None:
    find = (
        "from importlib.util import find_spec; print([n for n in ('torch', 'transformers', 'convert') if find_spec(n)])"
    )
    found = run(python, "-c", find, cwd=folder).strip()
    assert found == "[]", f"the environment holds {found}"
    source = folder / "checkpoint"
    synthetic_checkpoint.make(source, shards=3)
    export = ("-m", "convert", "export", source, "--type", "q4_k_m", "--out", folder / "checkout")
    run(sys.executable, *export, cwd=REPOSITORY)
    run(python, "-m", "vrt_lite", "convert", source, "--out", folder / "alone", cwd=folder)
    check_equal(folder / "checkout", folder / "alone")
    with serve_folder(source, "bench/checkpoint") as address:
        hub = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "VRT_LITE_HOME": str(folder / "home")}
        run(python, "-m", "vrt_lite", "pull", "bench/checkpoint:q4_k_m", cwd=folder, environment=hub)
    check_equal(folder / "checkout", folder / "home" / "models" / "bench--checkpoint")


def check_equal(right: Path, found: Path) -> None:
    made, expected = ({path.name: path.read_bytes() for path in folder.glob("*.gguf")} for folder in (found, right))
    assert made.keys() == expected.keys(), f"{found} has other files than {right}"
    others = [name for name in made if made[name] != expected[name]]
    assert not others, f"{found} has other bytes than {right} in {others}"


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, cwd=REPOSITORY)
        [wheel] = folder.glob("*.whl")
        check_contents(wheel)
        python = install(wheel, folder)
        check_use(python, folder)
        check_conversion(python, folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MB, only vrt_lite, judges, converts and pulls alone")
        kept = REPOSITORY / "dist" / wheel.name
        kept.parent.mkdir(exist_ok=True)
        print(f"It is {shutil.copy(wheel, kept)}")


if __name__ == "__main__":
    main()
