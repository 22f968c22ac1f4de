"""Builds the wheel, looks at what is in it, and uses it alone: a new environment, a folder outside the repository.

python -m tests.check_wheel
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
RECIPES = sorted(path.name for path in (REPOSITORY / "models").glob("*.toml"))
TEMPLATES = sorted(path.name for path in (REPOSITORY / "vrt_lite" / "show" / "pages" / "templates").iterdir())
MUST_HOLD = (
    "vrt_lite/py.typed",
    "vrt_lite/presets.toml",
    "vrt_lite/schema/judgement.schema.json",
    "vrt_lite/show/pages/report.css",
    "vrt_lite/show/pages/report.js",
    *(f"vrt_lite/show/pages/templates/{name}" for name in TEMPLATES),
    *(f"vrt_lite/recipes/{name}" for name in RECIPES),
)
MOST_BYTES = 16 * 2**20


def run(*command: str | Path, cwd: Path) -> str:
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def check_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    foreign = [name for name in names if not name.startswith(("vrt_lite/", "vrt_lite-"))]
    assert not foreign, f"the wheel holds {foreign}"
    missing = [name for name in MUST_HOLD if name not in names]
    assert not missing, f"the wheel lacks {missing}"
    models = sorted(name for name in names if name.endswith(".gguf"))
    assert len(models) == 4, f"the wheel holds the models {models}"
    assert wheel.stat().st_size < MOST_BYTES, f"the wheel has {wheel.stat().st_size} bytes"


def check_use(wheel: Path, folder: Path) -> None:
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder)
    clips = [REPOSITORY / "examples" / name for name in ("star.mp4", "circle.mp4")]
    compare = ("-m", "vrt_lite", "compare", *clips, "--prompt", "A blue star moves up.", "--json")
    judgement = json.loads(run(python, *compare, cwd=folder))
    assert judgement["verdict"]["overall"]["winner"] == 1, judgement["verdict"]
    listed = json.loads(run(python, "-m", "vrt_lite", "models", "--json", cwd=folder))
    missing = {name.removesuffix(".toml") for name in RECIPES} - {entry["name"] for entry in listed}
    assert not missing, f"the wheel does not know {missing}"
    where = run(python, "-c", "import vrt_lite; print(vrt_lite.__file__)", cwd=folder)
    assert str(REPOSITORY) not in where, f"the wheel's own package was not used: {where}"


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, cwd=REPOSITORY)
        [wheel] = folder.glob("*.whl")
        check_contents(wheel)
        check_use(wheel, folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MB, holds vrt_lite only, judges alone")


if __name__ == "__main__":
    main()
