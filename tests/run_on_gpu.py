"""Runs the tests marked gpu in an environment of its own: python tests/run_on_gpu.py FOLDER [pytest options].

The engine is built there for Vulkan, once. Without a GPU the tests run on Mesa's software device (lavapipe). Missing
system packages are installed with apt-get. On a Debian whose Mesa is too old, a newer one is unpacked into FOLDER,
with all libraries that it needs. Where Vulkan cannot be had, one line says why, and the exit status is 0.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("mesa-vulkan-drivers", "libvulkan-dev", "glslc", "spirv-headers", "vulkan-tools", "g++")
PROGRAMS = ("glslc", "vulkaninfo")
HEADER = Path("/usr/include/vulkan/vulkan_core.h")
OLDEST_MESA, OLDEST_LLVM = 25, 19
"""A software device that judged without a crash, and compiles shaders fast.

That of Mesa 22.3.6 ends processes by a signal. For the shaders of one judge LLVM 15 takes 530 s of a processor, LLVM 19
takes 95 s.
"""
DEBIAN = "trixie"
"""The release of Debian whose software device is unpacked."""
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


@dataclass(frozen=True)
class Device:
    """What to run the tests on: variables, the folder of a software device's libraries or None, and its releases."""

    variables: dict[str, str]
    libraries: Path | None = None
    types: tuple[str, ...] = ()
    mesa: int = 0
    llvm: int = 0

    @property
    def is_software(self) -> bool:
        return set(self.types) == {"CPU"}

    @property
    def is_new(self) -> bool:
        return self.mesa >= OLDEST_MESA and self.llvm >= OLDEST_LLVM


def find_device(variables: dict[str, str], libraries: Path | None = None) -> Device:
    """Ask vulkaninfo, run with these libraries, for the types of the devices and the releases of Mesa and LLVM."""
    command = [*run_with(libraries), str(shutil.which("vulkaninfo")), "--summary"]
    said = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False).stdout
    types = re.findall(r"deviceType\s*=\s*PHYSICAL_DEVICE_TYPE_(\w+)", said)
    found = re.search(r"driverInfo\s*=\s*Mesa (\d+).*?(?:LLVM (\d+)|$)", said, re.MULTILINE)
    mesa, llvm = (int(number or 0) for number in found.groups()) if found else (0, 0)
    return Device(variables, libraries, tuple(types), mesa, llvm)


def run_with(libraries: Path | None) -> Sequence[str]:
    """The beginning of a command that runs a program with these libraries, the C library too, and not the system's."""
    if not libraries:
        return ()
    [loader] = libraries.glob("ld-linux*")
    return str(loader), "--library-path", str(libraries)


def fetch_software_device(folder: Path) -> Device | None:
    """Unpack a newer software device of Debian, with all libraries that it needs; None where that cannot be done."""
    root, manifest = folder / "root", folder / "lvp.json"
    if not manifest.exists():
        keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
        if not keyring.exists() or not shutil.which("dpkg-deb"):
            return None
        for part in ("lists/partial", "archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        sources, status = folder / "debian.list", folder / "status"
        sources.write_text(f"deb [signed-by={keyring}] http://deb.debian.org/debian {DEBIAN} main\n", encoding="utf-8")
        status.touch()  # Empty: no package counts as installed, so every library is fetched.
        places = {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "/dev/null", "Dir::State::status": status}
        places |= {"Dir::State::lists": folder / "lists", "Dir::Cache": folder}
        apt = ["apt-get", "-qq", *(f"-o{name}={place}" for name, place in places.items())]
        install = ["install", "--yes", "--download-only", "--no-install-recommends", "mesa-vulkan-drivers"]
        for command in (["update"], install):
            if subprocess.run([*apt, *command], check=False).returncode:
                return None
        for package in (folder / "archives").glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
        [packed] = root.glob("usr/share/vulkan/icd.d/lvp_icd*.json")
        content = json.loads(packed.read_text(encoding="utf-8"))
        [driver] = root.glob("usr/lib/*/libvulkan_lvp.so")
        content["ICD"]["library_path"] = str(driver)
        manifest.write_text(json.dumps(content), encoding="utf-8")
    [driver] = root.glob("usr/lib/*/libvulkan_lvp.so")
    return find_device({"VK_DRIVER_FILES": str(manifest)}, driver.parent)


def choose_device(folder: Path) -> tuple[Device, str]:
    """The device to test on, and the reason where none can be had."""
    device = find_device({})
    if not device.types:
        return device, "vulkaninfo --summary lists no device"
    if device.is_software and not device.is_new:
        newer = fetch_software_device(folder / "software-device")
        if newer and newer.is_new:
            return newer, ""
        if device.mesa < OLDEST_MESA:
            return device, f"the software device of Mesa {device.mesa} crashes; install Mesa {OLDEST_MESA} or newer"
    return device, ""


def pip(python: str, *arguments: str, **variables: str) -> None:
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()), **os.environ, **variables}
    subprocess.run([python, "-m", "pip", *arguments], env=environment, check=True)


def fetch_source(folder: Path, python: str) -> Path:
    """Fetch the source distribution of the engine into the folder, and unpack it; returns its folder."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = next(name for name in project["dependencies"] if name.startswith("llama-cpp-python"))
    if not list(folder.glob("llama_cpp_python-*.tar.gz")):
        as_source = ("--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(folder))
        pip(python, "download", "--quiet", *as_source, wanted)
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
        place = f"--config-settings=build-dir={folder / 'build'}"
        # Never through pip's cache: it does not know CMAKE_ARGS, and would hand this engine to every environment.
        pip(python, "install", "--no-cache-dir", place, str(source), CMAKE_ARGS="-DGGML_VULKAN=on")
        done.touch()
    pip(python, "install", "--quiet", "--editable", f"{REPOSITORY}[test]")
    return python


def write_python(python: str, libraries: Path) -> str:
    """Write a program beside an environment's Python that runs it with these libraries; returns its path.

    Such a Python starts others of its kind, because its `sys.executable` is that program.
    """
    program = Path(python).with_name("python-with-device")
    command = shlex.join([*run_with(libraries), "--argv0", str(program), python])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def run(folder: Path, options: list[str]) -> int:
    """Run the tests; returns the exit status."""
    device, reason = Device({}), install_packages()
    if not reason:
        device, reason = choose_device(folder)
    if reason:
        print(f"make gpu: skipped, {reason}.")
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    python, variables = build(folder), dict(device.variables)
    if device.libraries:
        python = write_python(python, device.libraries)
    if device.is_software:
        # The engine passes a device of this type over, unless it is named.
        variables["GGML_VK_VISIBLE_DEVICES"] = "0"
    command = [python, "-m", "pytest", "--verbose", "-m", "gpu", "tests/gpu", *options]
    return subprocess.run(command, env=os.environ | variables, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]).resolve(), sys.argv[2:]))
