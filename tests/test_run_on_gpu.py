"""`make gpu` says in a line why it does nothing, and takes a source for older Vulkan headers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import run_on_gpu

CUT = """
    VkBool32 enable_best_practice = layer_settings;
    std::vector<vk::LayerSettingEXT> settings = {
        { "VK_LAYER_KHRONOS_validation", "validate_best_practices", vk::LayerSettingTypeEXT::eBool32, 1, &on },
    };
    vk::LayerSettingsCreateInfoEXT layer_setting_info(settings);
    vk::InstanceCreateInfo info(vk::InstanceCreateFlags{}, &app_info, layers, extensions, &layer_setting_info);
"""


def test_without_vulkan_it_is_skipped_with_the_reason(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, run_on_gpu.__file__, str(tmp_path / "gpu")],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    missing = "glslc or vulkaninfo is missing, and there is no apt-get to install it with"
    assert done.stdout == f"make gpu: skipped, {missing}.\n"
    assert not (tmp_path / "gpu").exists()


def test_the_validation_layers_settings_leave_the_source() -> None:
    text, removed = run_on_gpu.LAYER_SETTINGS.subn("", CUT)
    assert removed == 1
    assert "LayerSetting" not in text
    assert "enable_best_practice" in text
