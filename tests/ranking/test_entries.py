"""What is ranked: files, folders, patterns and tables, and the message for each wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from vrt_lite.errors import UsageError
from vrt_lite.ranking.entries import Group, read_entries


def touched(folder: Path, *names: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return [folder / name for name in names]


def test_a_folder_gives_its_videos_in_natural_order(tmp_path: Path) -> None:
    touched(tmp_path, "take 10.mp4", "take 9.MOV", "notes.txt", ".hidden.mp4", "take 1.webm")
    touched(tmp_path / "sub.mp4", "inner.mp4")
    [group] = read_entries([str(tmp_path)], prompt="A fox.")
    left_out = f"{tmp_path}: 2 left out: notes.txt is no clip; sub.mp4 is a folder (--recursive takes its videos)."
    clips = tuple(tmp_path / name for name in ("take 1.webm", "take 9.MOV", "take 10.mp4"))
    assert group == Group("", "A fox.", clips, (left_out,))


def test_names_of_any_make_can_be_sorted(tmp_path: Path) -> None:
    names = ("a", "a1", "a1b", "1a", "2", "é", "٣", "²", "a1b2")
    touched(tmp_path, *(f"{name}.mp4" for name in names))
    [group] = read_entries([str(tmp_path)])
    assert {clip.stem for clip in group.clips} == set(names)


def test_a_pattern_that_no_shell_replaced_is_replaced(tmp_path: Path) -> None:
    one, two = touched(tmp_path / "x", "2.mp4", "10.mp4")
    touched(tmp_path, "3.avi")
    [group] = read_entries([str(tmp_path / "**" / "*.mp4")])
    assert group.clips == (one, two)
    with pytest.raises(UsageError, match="No file matches"):
        read_entries([str(tmp_path / "*.mkv")])


def test_a_file_whose_name_is_a_pattern_is_that_file(tmp_path: Path) -> None:
    odd, _ = touched(tmp_path, "take[1].mp4", "take1.mp4")
    [group] = read_entries([str(odd)])
    assert group.clips == (odd,)


def test_a_file_that_is_not_there_is_left_to_be_listed(tmp_path: Path) -> None:
    [group] = read_entries([str(tmp_path / "gone.mp4")])
    assert group.clips == (tmp_path / "gone.mp4",)


def test_a_folder_without_videos_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no videos"):
        read_entries([str(tmp_path)])


def test_a_folder_says_what_to_give_for_its_numbered_pictures(tmp_path: Path) -> None:
    renders = tmp_path / "renders"
    touched(renders, "a.gif", "b.webp", "fox_00001_.png", "fox_00002_.png", "notes.txt")
    touched(renders / "shot", *(f"{number:04d}.png" for number in range(48)))
    touched(renders / "mixed", "a1.png", "a2.png", "b1.png", "b2.png")
    (renders / "still.webp").write_bytes(b"RIFF\x1a\0\0\0WEBPVP8L" + bytes(14))
    [group] = read_entries([str(renders)])
    assert group.clips == (renders / "a.gif", renders / "b.webp")
    assert group.left_out == (
        f"{renders}: 6 left out: 2 numbered pictures (give {renders / 'fox_%05d_.png'}); shot is a folder of 48 "
        f"numbered pictures (give {renders / 'shot' / '%04d.png'}); mixed is a folder; notes.txt is no clip; "
        "still.webp is a still picture.",
    )
    [group] = read_entries([str(renders / "shot" / "%04d.png"), str(renders / "a.gif")], fps="8")
    assert group.clips == (renders / "shot" / "%04d.png@8", renders / "a.gif")


def test_folders_in_folders_are_taken_if_it_is_said(tmp_path: Path) -> None:
    for name in ("day 2/b.mp4", "day 10/deep/c.mp4", "day 10/.trash/old.mp4", "day 2/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"holds no videos.*Its folders hold some: give --recursive\."):
        read_entries([str(tmp_path)])
    [group] = read_entries([str(tmp_path)], recursive=True)
    assert group.clips == (tmp_path / "day 2/b.mp4", tmp_path / "day 10/deep/c.mp4")
    assert group.left_out == (f"{tmp_path}: 1 left out: notes.txt is no clip.",)
    (tmp_path / "a.mp4").touch()
    [group] = read_entries([str(tmp_path)])
    assert group.clips == (tmp_path / "a.mp4",)
    said = "2 left out: day 2 is a folder (--recursive takes its videos); day 10 is a folder."
    assert group.left_out == (f"{tmp_path}: {said}",)


def test_folders_of_numbered_pictures_are_clips(tmp_path: Path) -> None:
    for name in ("one", "two"):
        touched(tmp_path / name, "9.png", "10.png")
    [group] = read_entries([str(tmp_path / "*")])
    assert group.clips == (tmp_path / "one", tmp_path / "two")
    [group] = read_entries([str(tmp_path / "one"), str(tmp_path / "two")], fps="12.5")
    assert group.clips == (tmp_path / "one@12.5", tmp_path / "two@12.5")
    with pytest.raises(UsageError, match=r"Its folders of numbered pictures are clips: give '.*\*'\."):
        read_entries([str(tmp_path)])


def test_a_frame_rate_needs_numbered_pictures(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fps 8 is for numbered pictures"):
        read_entries([str(touched(tmp_path, "a.mp4")[0])], fps="8")


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
        Group("cats", "A cat\nsleeps.", (tmp_path / "/c.mp4",)),
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
    assert read_entries([str(table)], prompt="A cat.") == (
        Group("", "A cat.", (tmp_path / "a.mp4", tmp_path / "b.mp4")),
    )


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
    table.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refusal:
        read_entries([str(table)])
    assert says in str(refusal.value)


def test_a_table_that_is_no_text_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_bytes(b"clip\n\xff.mp4")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_entries([str(table)])
    with pytest.raises(UsageError, match="cannot be read"):
        read_entries([str(tmp_path / "gone.csv")])
    with pytest.raises(UsageError, match="one table alone"):
        read_entries([str(table), "b.mp4"])


def test_a_prompt_that_is_no_unicode_becomes_one() -> None:
    [group] = read_entries(["a.mp4"], prompt="A fox\udcff")
    assert group.prompt == "A fox\\udcff"


def test_a_cell_that_is_too_long_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text(f"clip,prompt\na.mp4,{'x' * 200_000}\nb.mp4,y\n", encoding="utf-8")
    with pytest.raises(UsageError, match="line 2 is not CSV: field larger than field limit"):
        read_entries([str(table)])
