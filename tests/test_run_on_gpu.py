"""`make gpu` says in a line why it does nothing, and takes a source for older Vulkan headers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import run_on_gpu

LIBRARIES = Path("/usr/lib") / str(sysconfig.get_config_var("MULTIARCH"))
"""This system's own C library, with its loader, where it is laid out as on Debian."""
CUT = """
    VkBool32 enable_best_practice = layer_settings;
    std::vector<vk::LayerSettingEXT> settings = {
        { "VK_LAYER_KHRONOS_validation", "validate_best_practices", vk::LayerSettingTypeEXT::eBool32, 1, &on },
    };
    vk::LayerSettingsCreateInfoEXT layer_setting_info(settings);
    vk::InstanceCreateInfo info(vk::InstanceCreateFlags{}, &app_info, layers, extensions, &layer_setting_info);
"""


def skip_reason(folder: Path, **variables: str) -> str:
    """The line that the script prints, in an environment with these variables, before it builds anything."""
    command = [sys.executable, run_on_gpu.__file__, str(folder / "gpu")]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (folder / "gpu").exists()
    return done.stdout


def test_without_vulkan_it_is_skipped_with_the_reason(tmp_path: Path) -> None:
    missing = "glslc or vulkaninfo is missing, and there is no apt-get to install it with"
    assert skip_reason(tmp_path, PATH=str(tmp_path)) == f"make gpu: skipped, {missing}.\n"


@pytest.mark.skipif(
    not (all(map(shutil.which, run_on_gpu.PROGRAMS)) and run_on_gpu.HEADER.exists()),
    reason="Vulkan's programs and headers are not installed",
)
def test_without_a_driver_it_is_skipped_with_the_reason(tmp_path: Path) -> None:
    line = skip_reason(tmp_path, VK_DRIVER_FILES=str(tmp_path / "none.json"))
    assert line == "make gpu: skipped, vulkaninfo --summary lists no device.\n"


def test_the_validation_layers_settings_leave_the_source() -> None:
    text, removed = run_on_gpu.LAYER_SETTINGS.subn("", CUT)
    assert removed == 1
    assert "LayerSetting" not in text
    assert "enable_best_practice" in text


@pytest.mark.skipif(not list(LIBRARIES.glob("ld-linux*")), reason="this system keeps its libraries in other folders")
def test_a_python_with_other_libraries_starts_others_of_its_kind(tmp_path: Path) -> None:
    venv.create(tmp_path)
    program = run_on_gpu.write_python(str(tmp_path / "bin" / "python"), LIBRARIES)
    told = "import sys; print(sys.executable, sys.prefix, open('/proc/self/cmdline').read().partition(chr(0))[0])"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {told!r}], check=True)"
    done = subprocess.run([program, "-c", child], capture_output=True, text=True, check=True)
    [loader] = LIBRARIES.glob("ld-linux*")
    assert done.stdout.split() == [program, str(tmp_path), str(loader)]
