"""What is ranked: files, folders, patterns and tables, and the message for each wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from vrt_lite.errors import UsageError
from vrt_lite.ranking.entries import Group, read_entries


def touched(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return [folder / name for name in names]


def read(*paths: Path, **options: Any) -> Group:
    """The one group that the paths give."""
    [group] = read_entries([str(path) for path in paths], **options)
    return group


def test_a_folder_gives_its_videos_in_natural_order(tmp_path: Path) -> None:
    touched(tmp_path, "take 10.mp4", "take 9.MOV", "notes.txt", ".hidden.mp4", "take 1.webm", "sub.mp4/inner.mp4")
    left_out = f"{tmp_path}: 2 left out: notes.txt, sub.mp4. --recursive takes the videos of its folders."
    clips = tuple(tmp_path / name for name in ("take 1.webm", "take 9.MOV", "take 10.mp4"))
    assert read(tmp_path, prompt="A fox.") == Group("", "A fox.", clips, (left_out,))
    names = ("a", "a1", "a1b", "1a", "2", "é", "٣", "²", "a1b2")
    touched(tmp_path / "any make", *(f"{name}.mp4" for name in names))
    assert {clip.stem for clip in read(tmp_path / "any make").clips} == set(names)
    assert read(Path("a.mp4"), prompt="A fox\udcff").prompt == "A fox\\udcff"


def test_a_pattern_that_no_shell_replaced_is_replaced(tmp_path: Path) -> None:
    clips = touched(tmp_path, "x/2.mp4", "x/10.mp4")
    touched(tmp_path, "3.avi")
    assert read(tmp_path / "**" / "*.mp4").clips == tuple(clips)
    [odd, _] = touched(tmp_path, "take[1].mp4", "take1.mp4")
    assert read(odd).clips == (odd,), "a file whose name is a pattern is that file"
    gone = tmp_path / "gone.mp4"
    assert read(gone).clips == (gone,), "it is left to be listed"


def test_a_folder_says_what_to_give_for_its_numbered_pictures(tmp_path: Path) -> None:
    renders = tmp_path / "renders"
    touched(renders, "a.gif", "b.webp", "fox_00001_.png", "fox_00002_.png", "notes.txt")
    touched(renders / "shot", *(f"{number:04d}.png" for number in range(48)))
    touched(renders / "mixed", "a1.png", "a2.png", "b1.png", "b2.png")
    group, shot = read(renders), renders / "shot" / "%04d.png"
    assert group.clips == (renders / "a.gif", renders / "b.webp")
    assert group.left_out == (
        f"{renders}: 5 left out: 2 numbered pictures (give {renders / 'fox_%05d_.png'}), mixed, notes.txt, shot. "
        "--recursive takes the videos of its folders.",
    )
    assert read(shot, renders / "a.gif", fps="8").clips == (Path(f"{shot}@8"), renders / "a.gif")


def test_a_still_gif_or_webp_in_a_folder_is_left_out_as_other_pictures_are(tmp_path: Path) -> None:
    colours = [Image.new("RGBA", (8, 8), colour) for colour in ((255, 0, 0, 255), (0, 0, 255, 90))]
    colours[0].convert("RGB").save(tmp_path / "still.webp")
    colours[1].save(tmp_path / "still2.WEBP", exif=b"Exif")  # a header with flags
    colours[0].save(tmp_path / "moves.webp", save_all=True, append_images=colours[1:])
    (tmp_path / "cut.webp").write_bytes((tmp_path / "moves.webp").read_bytes()[:14])
    colours[0].save(tmp_path / "still.gif")
    colours[0].save(tmp_path / "moves.GIF", save_all=True, append_images=colours[1:])
    (tmp_path / "cut.gif").write_bytes((tmp_path / "still.gif").read_bytes()[:-1])
    (tmp_path / "bad.gif").write_bytes(b"GIF89a;")
    moves = (tmp_path / "moves.GIF").read_bytes()
    (tmp_path / "huge.gif").write_bytes(moves[:6] + b"\xff\xff\xd0\x07" + moves[10:])
    group = read(tmp_path)
    taken = ("bad.gif", "cut.gif", "cut.webp", "huge.gif", "moves.GIF", "moves.webp")
    assert group.clips == tuple(tmp_path / name for name in taken)
    assert group.left_out == (f"{tmp_path}: 3 left out: still2.WEBP, still.gif, still.webp.",)
    for name in ("still.webp", "still.gif"):
        assert read(tmp_path / name).clips == (tmp_path / name,), "opening it says what is wrong"


def test_folders_in_folders_are_taken_if_it_is_said(tmp_path: Path) -> None:
    two, ten, *_ = touched(tmp_path, "day 2/b.mp4", "day 10/deep/c.mp4", "day 10/.trash/old.mp4", "day 2/notes.txt")
    with pytest.raises(UsageError, match=r"holds no videos.*Give --recursive for those of its folders\."):
        read(tmp_path)
    left_out = (f"{tmp_path}: 1 left out: notes.txt.",)
    assert read(tmp_path, recursive=True) == Group("", "", (two, ten), left_out)
    own = touched(tmp_path, "a.mp4")
    said = "2 left out: day 2, day 10. --recursive takes the videos of its folders."
    assert read(tmp_path) == Group("", "", tuple(own), (f"{tmp_path}: {said}",))


def test_folders_of_numbered_pictures_are_clips(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    touched(tmp_path, "one/9.png", "one/10.png", "two/9.png", "two/10.png")
    assert read(tmp_path / "*").clips == (one, two)
    assert read(one, two, fps="12.5").clips == (Path(f"{one}@12.5"), Path(f"{two}@12.5"))
    with pytest.raises(UsageError, match=r"A folder of numbered pictures is a clip if it is named\."):
        read(tmp_path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_is_read_by_its_headings(tmp_path: Path, delimiter: str) -> None:
    rows = [
        ("Group", " clip ", "seed", "PROMPT"),
        ("foxes", "a.mp4", "7", '"A fox, red; quick."'),
        ("foxes", '"b ""best"".mp4"', "8", ""),
        ("", "", "", ""),
        ("cats", "/c.mp4", "9", '"A cat\nsleeps."'),
    ]
    table = tmp_path / "clips.csv"
    table.write_text("\r\n".join(delimiter.join(row) for row in rows), encoding="utf-8-sig", newline="")
    assert read_entries([str(table)], prompt="unused") == (
        Group("foxes", "A fox, red; quick.", (tmp_path / "a.mp4", tmp_path / 'b "best".mp4')),
        Group("cats", "A cat\nsleeps.", (Path("/c.mp4"),)),
    )


def test_without_groups_a_prompt_makes_one(tmp_path: Path) -> None:
    table = tmp_path / "clips.jsonl"
    lines = ['{"clip": "a.mp4", "prompt": "A fox."}', "", '{"clip": "b.mp4"}', '{"clip": "c.mp4", "prompt": "A fox."}']
    table.write_text("\n".join(lines), encoding="utf-8")
    assert read_entries([str(table)], prompt="A cat.") == (
        Group("A fox.", "A fox.", (tmp_path / "a.mp4", tmp_path / "c.mp4")),
        Group("A cat.", "A cat.", (tmp_path / "b.mp4",)),
    )
    table.write_text('{"clip": "a.mp4"}\n{"clip": "b.mp4", "group": null}', encoding="utf-8")
    assert read(table, prompt="A cat.") == Group("", "A cat.", (tmp_path / "a.mp4", tmp_path / "b.mp4"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "", "lists no clips"),
        ("a.csv", "clip\n", "lists no clips"),
        ("a.csv", "file,prompt\na.mp4,x", "line 1 lacks the columns clip"),
        ("a.csv", "clip,prompt\na.mp4", "line 2 has 1 cells, not 2"),
        ("a.csv", 'clip,prompt\n"a.mp4,x', "is not CSV"),
        ("a.csv", "clip,prompt\n ,x", "line 2: `clip` names no file"),
        ("a.csv", "clip,prompt,group\na,One.,g\nb,Two.,g", "line 3: group 'g' has two prompts"),
        ("a.csv", f"clip,prompt\na.mp4,{'x' * 200_000}\nb.mp4,y\n", "line 2 is not CSV: field larger than field limit"),
        ("a.csv", "clip\n\udcff.mp4", "not UTF-8"),
        ("a.jsonl", "{", "line 1 is not JSON"),
        ("a.jsonl", "[" * 100_000, "line 1 is not JSON"),
        ("a.jsonl", '["a.mp4"]', "line 1 is not a JSON object"),
        ("a.jsonl", '{"clip": "a"}\n{"clip": 3}', "line 2: `clip` names no file"),
        ("a.jsonl", '{"clip": "a", "prompt": ["x"]}', "line 1: `prompt` must be text"),
        ("a.jsonl", '{"clip": "a\\u0000"}', "line 1: `clip` names no file"),
    ],
)
def test_what_is_wrong_with_a_table_is_reported_by_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    table = tmp_path / name
    table.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UsageError) as refusal:
        read_entries([str(table)])
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("names", "fps", "says"),
    [
        (["gone.csv"], None, "cannot be read"),
        (["gone.csv", "b.mp4"], None, "one table alone"),
        (["*.mkv"], None, "No file matches"),
        (["empty"], None, "holds no videos"),
        (["a.mp4"], "8", "--fps 8 is for numbered pictures"),
    ],
)
def test_what_cannot_be_ranked_is_refused(tmp_path: Path, names: list[str], fps: str | None, says: str) -> None:
    touched(tmp_path, "a.mp4", "empty/notes.txt")
    with pytest.raises(UsageError, match=says):
        read_entries([str(tmp_path / name) for name in names], fps=fps)
