"""Runs the tests marked gpu in an environment of its own: python tests/run_on_gpu.py FOLDER [pytest options].

The engine is built there for Vulkan, once. Without a GPU the tests run on Mesa's software device (lavapipe). Missing
system packages are installed with apt-get. Mesa 22.3's software device crashed in long tests: on
Debian, a newer one is unpacked into FOLDER. Where Vulkan cannot be had, one line says why, and the exit status is 0.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("mesa-vulkan-drivers", "libvulkan-dev", "glslc", "spirv-headers", "vulkan-tools", "g++")
PROGRAMS = ("glslc", "vulkaninfo")
HEADER = Path("/usr/include/vulkan/vulkan_core.h")
OLDEST_MESA = 25
"""A release whose software device judged without a crash (25.0.7); that of 22.3.6 ends processes by a signal."""
LAYER_SETTINGS = re.compile(r" *std::vector<vk::LayerSettingEXT>.*?vk::LayerSettingsCreateInfoEXT [^\n]*\n", re.DOTALL)
"""What ggml-vulkan.cpp sets for a validation layer, with an extension that Vulkan headers before 1.3.272 lack."""


def install_packages() -> str:
    """Install what Vulkan needs if it is missing; returns the reason if that cannot be done, else nothing."""
    if all(map(shutil.which, PROGRAMS)) and (HEADER.exists() or not shutil.which("apt-get")):
        return ""
    if not shutil.which("apt-get"):
        return f"{' or '.join(PROGRAMS)} is missing, and there is no apt-get to install it with"
    administrator = os.geteuid() == 0
    if not administrator and not shutil.which("sudo"):
        return f"installing packages takes an administrator: apt-get install {' '.join(PACKAGES)}"
    for command in (["update", "-qq"], ["install", "-qq", "--yes", "--no-install-recommends", *PACKAGES]):
        if subprocess.run([*([] if administrator else ["sudo", "-n"]), "apt-get", *command], check=False).returncode:
            return f"apt-get {' '.join(command)} failed"
    return ""


def list_devices(environment: dict[str, str]) -> tuple[list[str], int]:
    """The types of the Vulkan devices (CPU, INTEGRATED_GPU, DISCRETE_GPU and others), and the release of Mesa or 0."""
    command = ["vulkaninfo", "--summary"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout
    mesa = re.search(r"driverInfo\s*=\s*Mesa (\d+)", said)
    return re.findall(r"deviceType\s*=\s*PHYSICAL_DEVICE_TYPE_(\w+)", said), int(mesa[1]) if mesa else 0


def fetch_software_device(folder: Path) -> Path | None:
    """Unpack a newer software device from Debian's backports; returns its Vulkan manifest, or None."""
    manifest = folder / "lvp.json"
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    if manifest.exists() or not release or not keyring.exists() or not shutil.which("dpkg-deb"):
        return manifest if manifest.exists() else None
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    suite = f"{release[1]}-backports"
    sources = folder / "backports.list"
    sources.write_text(f"deb [signed-by={keyring}] http://deb.debian.org/debian {suite} main\n", encoding="utf-8")
    places = {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "/dev/null"}
    places |= {"Dir::State::lists": folder / "lists", "Dir::Cache": folder}
    apt = ["apt-get", "-qq", *(f"-o{name}={place}" for name, place in places.items())]
    for command in (["update"], ["download", f"mesa-vulkan-drivers/{suite}"]):
        if subprocess.run([*apt, *command], cwd=folder, check=False).returncode:
            return None
    [package] = folder.glob("mesa-vulkan-drivers_*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    [library] = folder.glob("usr/lib/*/libvulkan_lvp.so")
    [packed] = folder.glob("usr/share/vulkan/icd.d/lvp_icd*.json")
    content = json.loads(packed.read_text(encoding="utf-8"))
    content["ICD"]["library_path"] = str(library)
    manifest.write_text(json.dumps(content), encoding="utf-8")
    return manifest


def choose_device(folder: Path) -> tuple[dict[str, str], str]:
    """The environment to test in, and the reason where no device can be had."""
    environment = dict(os.environ)
    types, mesa = list_devices(environment)
    if not types:
        return environment, "vulkaninfo --summary lists no device"
    if set(types) == {"CPU"}:
        # The engine passes a device of this type over, unless it is named.
        environment["GGML_VK_VISIBLE_DEVICES"] = "0"
        if mesa < OLDEST_MESA:
            manifest = fetch_software_device(folder / "mesa")
            environment["VK_DRIVER_FILES"] = str(manifest)
            if not manifest or list_devices(environment)[1] < OLDEST_MESA:
                return environment, f"the software device of Mesa {mesa} crashes; install Mesa {OLDEST_MESA} or newer"
    return environment, ""


def fetch_source(folder: Path, python: str) -> Path:
    """Fetch the source distribution of the engine into the folder, and unpack it; returns its folder."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = next(name for name in project["dependencies"] if name.startswith("llama-cpp-python"))
    if not list(folder.glob("llama_cpp_python-*.tar.gz")):
        fetch = ["download", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(folder), wanted]
        subprocess.run([python, "-m", "pip", "--quiet", *fetch], check=True)
    [archive] = folder.glob("llama_cpp_python-*.tar.gz")
    source = folder / archive.name.removesuffix(".tar.gz")
    if not source.exists():
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        remove_layer_settings(source)
    return source


def remove_layer_settings(source: Path) -> None:
    """Remove the validation layer's settings from the source, if the Vulkan headers here do not know them."""
    if not HEADER.exists() or "VK_EXT_layer_settings" in HEADER.read_text(encoding="utf-8"):
        return
    file = source / "vendor" / "llama.cpp" / "ggml" / "src" / "ggml-vulkan" / "ggml-vulkan.cpp"
    text, removed = LAYER_SETTINGS.subn("", file.read_text(encoding="utf-8"))
    if removed:
        file.write_text(text.replace(", extensions, &layer_setting_info)", ", extensions)"), encoding="utf-8")


def build(folder: Path) -> str:
    """Build the engine for Vulkan and install it with the package and its tests; returns the environment's Python."""
    environment = folder / "environment"
    python = str(environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    done = folder / "engine.stamp"
    if not done.exists():
        venv.create(environment, with_pip=True, clear=True)
        source = fetch_source(folder, python)
        # Never through pip's cache: it does not know CMAKE_ARGS, and would hand this engine to every environment.
        subprocess.run(
            [
                python,
                "-m",
                "pip",
                "install",
                "--no-cache-dir",
                f"--config-settings=build-dir={folder / 'build'}",
                source,
            ],
            env={"CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()), **os.environ, "CMAKE_ARGS": "-DGGML_VULKAN=on"},
            check=True,
        )
        done.touch()
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--editable", f"{REPOSITORY}[test]"], check=True)
    return python


def run(folder: Path, options: list[str]) -> int:
    """Run the tests; returns the exit status."""
    environment, reason = dict[str, str](), install_packages()
    if not reason:
        environment, reason = choose_device(folder)
    if reason:
        print(f"make gpu: skipped, {reason}.")
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    command = [build(folder), "-m", "pytest", "--verbose", "-m", "gpu", "tests/gpu", *options]
    return subprocess.run(command, env=environment, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]).resolve(), sys.argv[2:]))
