"""The ComfyUI nodes by its documented interface: loaded from the one file, here and through a real server."""

from __future__ import annotations

import importlib.util
import inspect
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import av
import numpy as np
import pytest
from web.conftest import CIRCLE, PROMPT, STAR, Served

from vrt_lite import compare
from vrt_lite.show import list_verdict

FILE = Path(__file__).parents[2] / "integrations" / "comfyui" / "vrt_lite_nodes.py"


@dataclass
class FileVideo:
    """A VIDEO as ComfyUI documents it: it saves itself to a file."""

    path: str

    def save_to(self, path: str, **options: Any) -> None:
        shutil.copyfile(self.path, path)


@pytest.fixture(scope="module")
def nodes() -> Iterator[ModuleType]:
    """Load the file as ComfyUI's loader does: under its path without the suffix."""
    name = str(FILE.with_suffix(""))
    spec = importlib.util.spec_from_file_location(name, FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    if module.open_judge.cache_info().currsize:
        for both in (False, True):
            module.open_judge("", both).close()
    del sys.modules[name]


def read_images(path: str) -> Any:
    """A clip as a batch of images: (frames, height, width, 3), 0 to 1."""
    with av.open(path) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]).astype(np.float32) / 255


def run(node: type, **inputs: Any) -> tuple[Any, ...]:
    """Run a node as ComfyUI does: what it requires, by name, each in a list if it asks for lists."""
    required = node.INPUT_TYPES()["required"]
    defaults = {name: spec[1]["default"] for name, spec in required.items() if len(spec) > 1}
    values = defaults | inputs
    if getattr(node, "INPUT_IS_LIST", False):
        values = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
    return getattr(node(), node.FUNCTION)(**values)


def test_the_nodes_are_as_comfyui_asks_for_them(nodes: ModuleType) -> None:
    assert nodes.NODE_CLASS_MAPPINGS.keys() == nodes.NODE_DISPLAY_NAME_MAPPINGS.keys()
    for node in nodes.NODE_CLASS_MAPPINGS.values():
        required = node.INPUT_TYPES()["required"]
        assert all(isinstance(spec, tuple) and isinstance(spec[0], str) for spec in required.values())
        parameters = list(inspect.signature(getattr(node, node.FUNCTION)).parameters)[1:]
        assert parameters == list(required)
        assert len(node.RETURN_TYPES) == len(node.RETURN_NAMES)
        assert len(getattr(node, "OUTPUT_IS_LIST", node.RETURN_TYPES)) == len(node.RETURN_TYPES)
        assert node.CATEGORY == "vrt-lite"


@pytest.mark.parametrize("through_server", [False, True])
def test_the_better_video_comes_out(nodes: ModuleType, served: Served, through_server: bool) -> None:
    circle, star = FileVideo(CIRCLE), FileVideo(STAR)
    server = served.url if through_server else ""
    better, words, first, tie, second, winner = run(
        nodes.BetterVideo, video_1=circle, video_2=star, prompt=PROMPT, both_orders=False, server=server
    )
    assert better is star
    assert winner == 2
    expected = list_verdict(compare(CIRCLE, STAR, prompt=PROMPT))
    assert expected[0].startswith("Video 2 is ")
    assert [line for line in words.splitlines() if "seconds: " not in line] == [
        line for line in expected if "seconds: " not in line
    ]
    assert first + tie + second == pytest.approx(1)
    assert second > 0.5


def test_batches_of_images_are_written_without_loss(nodes: ModuleType, tmp_path: Path) -> None:
    images = read_images(STAR)
    written = nodes.write_clip(images, tmp_path / "clip", 6.0)
    assert np.array_equal(read_images(str(written)), images)
    better, *_, winner = run(
        nodes.BetterVideo, video_1=images, video_2=FileVideo(CIRCLE), prompt=PROMPT, both_orders=False
    )
    assert winner == 1
    assert better is images


@pytest.mark.parametrize("through_server", [False, True])
def test_a_list_is_ranked(nodes: ModuleType, served: Served, through_server: bool) -> None:
    videos = [FileVideo(CIRCLE), FileVideo(STAR)]
    server = served.url if through_server else ""
    ranked, best, strengths, board = run(
        nodes.RankedVideos, videos=videos, prompt=PROMPT, both_orders=False, server=server
    )
    assert ranked == videos[::-1]
    assert best is videos[1]
    assert strengths[0] > 0 > strengths[1]
    assert board.splitlines()[0].startswith("1. video 2")


def test_a_refusal_is_one_line(nodes: ModuleType, served: Served) -> None:
    with pytest.raises(RuntimeError, match=r"^vrt-lite: Model 'none' is not here"):
        run(nodes.BetterVideo, video_1=FileVideo(STAR), video_2=FileVideo(CIRCLE), model="none", server=served.url)
