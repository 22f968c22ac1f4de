"""How to talk to one checkpoint: prompt, frame counts, pixels, clock, tool wording, memory window.

Everything that differs between checkpoints is a value here, read from a TOML file next to the model. The default of
each value is VR-Thinker's.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast, get_args

from vrt_lite.disk import open_to_read
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.protocol.answer_form import AnswerForm, Head, Template, Total, check_form
from vrt_lite.protocol.caption_sentences import Captions, check_captions, understands
from vrt_lite.protocol.clock import Clock, ClockRule
from vrt_lite.protocol.messages import CELL, DIMENSIONS, KEYS, Dimension, Key, has_caption, smart_resize
from vrt_lite.protocol.report import MEASURED_KEYS, ReportWords
from vrt_lite.protocol.verdict import TEMPERATURES

ToolForm = Literal["image", "video"]

PIXELS_PER_TOKEN = CELL * CELL
CELLS: Final = {"qwen2vl": CELL, "qwen3vl": 32}
"""Pixels a side of one visual token, by the architecture of the text model."""
BUNDLED: Final = "vrt-tiny-2"
"""The judge that is taken if none is named; it comes with the package."""
PROFILE_NAME = "profile.toml"
DEFAULT_PRESET = "model-card"
CONTEXT_STEP = 256
"""Contexts are whole multiples of this many tokens, as the engine's cache is."""
_TURN_OVERHEAD = 64
_USUAL_REPLY = 512
_USUAL_SECONDS = 5.0

_UNSTATED = (
    *("temperatures", "scope", "captions", "refusals", "trusts_measures", "decides"),
    *("distinct_frames", "evidence", "answer"),
)
_HERE = Path(__file__).parent
_PROMPTS = _HERE / "prompts"
"""Published prompts, byte for byte; SOURCES.tsv says where each is from. A profile may name one of them."""
_REFUSALS: Mapping[str, str] = {
    "too_many": "Execution Error: You have selected {count} frames in total. "
    "Think again which frames you need to check in details (no more than {limit} frames)",
    "out_of_range": "Execution Error: There are {n} frames numbered in range [1,{n}]. "
    "Your selection `target_frames={frames}` is out of range.",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """How to talk to one checkpoint. Counts of frames are per video unless a name says otherwise."""

    name: str = "vr-thinker"
    system_prompt: str = ""
    user_prompt: str = ""
    no_caption: str = "(none)"
    workspace: int = 48
    # Whether a call shows no frame twice. A workspace repeats frames of a shorter clip, and these look like stutter.
    # In the reference it has always N/2 frames, and a frame that is named twice is shown twice.
    distinct_frames: bool = False
    first_frames: int = 4
    frames_per_call: int = 8
    # Published: the card's script leaves qwen-vl-utils' range for the frames of a video, 128 to 768 visual tokens each.
    min_pixels: int = 128 * PIXELS_PER_TOKEN
    max_pixels: int = 768 * PIXELS_PER_TOKEN
    # No range is published for a tool's frames. The paper speaks of about 500 tokens a frame. Pixel-Reasoner, whose
    # tool it is, limits a video's frames to 512 tokens (data_processor.py), and selected ones to 400 in its training.
    tool_min_pixels: int = 128 * PIXELS_PER_TOKEN
    tool_max_pixels: int = 512 * PIXELS_PER_TOKEN
    # Pixels a side of one visual token: 28 of Qwen2-VL and 2.5, 32 of Qwen3-VL. Whatever a profile says, it is the
    # model's own where its files are at hand.
    cell: int = CELL
    clock: Clock = field(default_factory=Clock)
    # The tool is Pixel-Reasoner's (arXiv 2505.15966). Its public rollout code answers a call in these words and asks
    # for no final answer. {first} and {last} count all videos and images of the conversation from 0.
    tool_form: ToolForm = "image"
    tool_text: str = "\nHere are the selected frames (Frame Size: {width}x{height}, Numbered {first} to {last}):"
    error_text: str = "\nExecution error:\n{reason}\n"
    # The reasons that it has (experience_maker.py); a call that is refused for another has ours. {n} counts all frames.
    refusals: Mapping[str, str] = field(default_factory=lambda: dict(_REFUSALS))
    final_text: str = ""
    # Our own: nothing is published about a reply without an answer or a call, or about what replaces a forgotten frame.
    correction_text: str = (
        "Your last reply cannot be used: {reason}. Call select_frames with at most {limit} different frame "
        "indices from 1 to {n}, or give the answer in the required format."
    )
    forgotten_text: str = "(These frames are no longer shown; see your snapshot of them.)"
    window: int = 1
    rounds: int = 5
    retries: int = 1
    max_new_tokens: int = 2048
    dimensions: Mapping[str, Dimension] = field(default_factory=lambda: preset(DEFAULT_PRESET))
    # What a judge is fit for. Its probabilities are softened by temperatures, whose names `choose_temperature` has.
    # `scope` says in one line what it sees. `captions` are those that it understands, as sentences; {} is any.
    temperatures: Mapping[str, float] = field(default_factory=dict[str, float])
    scope: str = ""
    captions: Captions = field(default_factory=dict[str, list[str]])
    # Whether a winner that the measures plainly contradict is undecided: for a judge that knows less than they do.
    trusts_measures: bool = False
    # The keys of VQ, MQ and OA in which the verdict is what was measured, not what the judge wrote.
    decides: tuple[str, ...] = ()
    # The words of the report of what was measured, which is a part of the first turn; None: there is no such report.
    evidence: ReportWords | None = None
    # How the judge answers in one reply; None: by VR-Thinker's loop.
    answer: AnswerForm | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """What the judge answers of TA, VQ, MQ and OA."""
        return self.answer.keys if self.answer else KEYS

    @property
    def pointwise(self) -> bool:
        """Whether each clip is judged by itself."""
        return self.answer is not None and self.answer.form == "clip"

    @property
    def clips_at_once(self) -> int:
        """How many clips one judgement shows."""
        return 1 if self.pointwise else 2

    @property
    def answers(self) -> str:
        """What the judge answers, and about what, in words."""
        how = "a clip" if self.pointwise else "a pair, at once" if self.answer else "a pair, in rounds"
        own = len(self.answer.names) - len(self.keys) if self.answer else 0
        return f"{how}: {' '.join(self.keys)}{f' and {own} of its own' if own else ''}"

    def count_first(self, seconds: float, frames: int) -> int:
        """How many frames of a clip of so many seconds and frames are shown first."""
        if self.answer and self.answer.fps:
            return self.answer.count_frames(seconds, most=self.workspace, frames=frames)
        return self.first_frames

    @property
    def first_patches(self) -> int:
        """How many temporal patches a judge sees first: two frames of a video are one, and so is an image."""
        single = self.answer is not None and self.answer.show == "images"
        return self.clips_at_once * (self.first_frames if single else -(-self.first_frames // 2))

    @property
    def least_frames(self) -> int:
        """How many frames are shown first of the shortest clip."""
        return 2 if self.answer and self.answer.fps else self.first_frames

    @property
    def reports(self) -> bool:
        """Whether the judge reads a report of what was measured."""
        return self.evidence is not None and self.evidence.allowed

    @property
    def sha256(self) -> str:
        """Digest of every value; what is empty of `_UNSTATED` has no part in it."""
        values = asdict(self)
        if self.cell == CELL:
            del values["cell"]
        stated = {name: value for name, value in values.items() if value or name not in _UNSTATED}
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()

    def understands(self, caption: str) -> bool:
        """Whether alignment with a caption can be judged: always, unless the profile limits the captions."""
        return understands(caption, self.captions)

    def frame_size(self, width: int, height: int, *, called: bool) -> tuple[int, int]:
        """The (width, height) that a clip's frame is shown at, `called` by the tool or shown first; ValueError."""
        if called:
            least, most = self.tool_min_pixels, self.tool_max_pixels
        else:
            least, most = self.min_pixels, self.max_pixels
        return smart_resize(width, height, min_pixels=least, max_pixels=most, cell=self.cell)

    @property
    def pixels_per_token(self) -> int:
        """Pixels of a frame that become one visual token."""
        return self.cell * self.cell

    @property
    def max_cells(self) -> int:
        """Visual tokens of a frame that is shown first, at most."""
        return self.max_pixels // self.pixels_per_token

    @property
    def tool_cells(self) -> int:
        """Visual tokens of a tool's frame, at most."""
        return self.tool_max_pixels // self.pixels_per_token

    def with_max_pixels(self, pixels: int, *, tool_pixels: int | None = None) -> Profile:
        """The profile with frames of at most `pixels`, and a tool's frames of at most `tool_pixels`.

        Without `tool_pixels` they have no more than before. The lower limits are reduced where they would exceed the
        upper ones.
        """
        most_of_tool = min(pixels, self.tool_max_pixels) if tool_pixels is None else tool_pixels
        return replace(
            self,
            min_pixels=min(self.min_pixels, pixels),
            max_pixels=pixels,
            tool_min_pixels=min(self.tool_min_pixels, most_of_tool),
            tool_max_pixels=most_of_tool,
        )

    def for_size(self, width: int, height: int) -> Profile:
        """The profile with frames at most as large as those of a clip of this size."""
        first, called = (prod(self.frame_size(width, height, called=called)) for called in (False, True))
        return self.with_max_pixels(first, tool_pixels=called)

    def context_bound(self, opening: int, cells: int) -> int:
        """(N_in + p·N_ex)·V_t + text: the tokens that all rounds of a conversation need, by default.

        Its first two turns have `opening` tokens, frames included; a tool's frame has `cells`. One reply is counted at
        its longest and the others at a usual length: a conversation that needs more gets a larger context later.
        """
        tool_frames = self.frames_per_call * min(self.window, self.rounds - 1) * (cells + 2)
        replies = self.max_new_tokens + (self.rounds - 1) * min(self.max_new_tokens, _USUAL_REPLY)
        total = opening + tool_frames + replies + self.rounds * _TURN_OVERHEAD
        return -(-total // CONTEXT_STEP) * CONTEXT_STEP


@cache
def presets() -> dict[str, dict[str, Dimension]]:
    """Dimension wordings by key, of each published set whose wordings are known."""
    with (_HERE / "presets.toml").open("rb") as file:
        tables = tomllib.load(file)
    return {name: {key: Dimension(**words) for key, words in dimensions.items()} for name, dimensions in tables.items()}


def preset(name: str) -> dict[str, Dimension]:
    """Dimension wordings of a published set, by key; UsageError for an unknown name."""
    if name not in presets():
        raise UsageError(f"Preset {name!r} is unknown; choose one of {', '.join(presets())}.")
    return dict(presets()[name])


def default_profile() -> Profile:
    """VR-Thinker's profile: the model card's prompt byte for byte."""
    return replace(
        Profile(),
        system_prompt=_read(_PROMPTS / "vr-thinker-system.txt"),
        user_prompt=_read(_PROMPTS / "vr-thinker-user.txt"),
    )


def load_profile(path: Path) -> Profile:
    """Read a profile; ModelError, naming the key, if a value cannot be used."""
    try:
        with open_to_read(path) as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ModelError(f"Profile {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"Profile {path} is not valid TOML: {error}.") from error
    return _read_table(table, path.parent, str(path))


def find_faults(path: Path) -> list[str]:
    """What is wrong with a profile, a line for each fault; ModelError if it cannot be read, or is not valid TOML."""
    try:
        load_profile(path)
        return []
    except ModelError as error:
        last = str(error)
        try:
            table = tomllib.loads(path.read_bytes().decode())
        except (OSError, ValueError):
            raise error from None
    faults = [last]

    def fault_without(key: str) -> str:
        left = {name: value for name, value in table.items() if name != key}
        try:
            _read_table(left, path.parent, str(path))
        except ModelError as error:
            return str(error)
        return ""

    # A key is at fault if without it there is another fault, or none.
    while key := next((key for key in table if fault_without(key) != last), None):
        last = fault_without(key)
        del table[key]
        if not last:
            break
        faults.append(last)
    return faults


def to_table(profile: Profile) -> dict[str, Any]:
    """The values of a profile as a TOML file has them; `load_profile` makes the same profile of it.

    Tables come last: in TOML what follows a table is in it.
    """
    values = {name: value for name, value in asdict(profile).items() if value is not None}
    table: dict[str, Any] = json.loads(json.dumps(values))
    return dict(sorted(table.items(), key=lambda item: isinstance(item[1], dict)))


def read_portable(path: Path) -> bytes:
    """Read a profile's text, with the prompts that it takes from files beside it; ModelError as `load_profile`."""
    load_profile(path)
    import tomlkit  # noqa: PLC0415 - where a profile is copied alone

    table = cast("dict[str, Any]", tomlkit.parse(path.read_text("utf-8")))
    for prompt in ("system_prompt", "user_prompt"):
        if file := table.pop(f"{prompt}_file", None):
            table[prompt] = _read(path.parent / _plain_name(file))
    return tomlkit.dumps(table).encode()


def parse_profile(text: str, where: str) -> Profile:
    """A profile in another file's text; ModelError, naming `where` and the key, if a value cannot be used."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ModelError(f"The profile in {where} is not valid TOML: {error}.") from error
    return _read_table(table, _HERE, where)


def _read_table(table: dict[str, Any], folder: Path, where: str) -> Profile:
    try:
        return _from_table(table, folder)
    except (TypeError, ValueError, UsageError) as error:
        raise ModelError(f"Profile {where}: {error}") from error


_T = TypeVar("_T", bound="Profile | Clock | AnswerForm | Template | Head | Total")


def _from_table(table: dict[str, Any], folder: Path) -> Profile:
    profile = default_profile()
    values: dict[str, Any] = dict(table)
    for prompt in ("system_prompt", "user_prompt"):
        if file := values.pop(f"{prompt}_file", None):
            beside = folder / _plain_name(file)
            values[prompt] = _read(beside if beside.is_file() else _PROMPTS / beside.name)
    for bound in ("min_pixels", "max_pixels"):
        if bound in values:  # one range for all frames, unless a tool's frames have their own
            values.setdefault(f"tool_{bound}", values[bound])
    if isinstance(keys := values.get("decides"), list):
        values["decides"] = tuple(cast("list[object]", keys))
    if "answer" in values:
        form = _read_form(_as_table(values.pop("answer"), "answer"))
        first = form.count_frames(_USUAL_SECONDS, most=form.frames, frames=form.frames)
        profile = replace(profile, system_prompt="", rounds=1, workspace=form.frames, first_frames=first, answer=form)
    if "evidence" in values:
        profile = replace(profile, evidence=_read_words(values.pop("evidence")))
    if "clock" in values:
        values["clock"] = _merge(profile.clock, _as_table(values["clock"], "clock"), "clock.")
    if "preset" in values:
        values.setdefault("dimensions", {})
        profile = replace(profile, dimensions=preset(values.pop("preset")))
    if "dimensions" in values:
        own = {key: Dimension(**words) for key, words in _as_table(values["dimensions"], "dimensions").items()}
        values["dimensions"] = {**profile.dimensions, **own}
    return check(_merge(profile, values, ""))


def _read_form(table: dict[str, Any]) -> AnswerForm:
    values = dict(table)
    defaults: dict[str, Template | Head] = {"choice": Template(), "score": Template(), "head": Head()}
    for name, default in defaults.items():
        own = _as_table(values.pop(name, {}), f"answer.{name}").items()
        where = f"answer.{name}."
        values[name] = {key: _merge(default, _as_table(of, where + key), f"{where}{key}.") for key, of in own}
    total = dict(_as_table(values.pop("overall", {}), "answer.overall"))
    if isinstance(total.get("sum"), list):
        total["sum"] = tuple(map(str, total["sum"]))
    return _merge(AnswerForm(overall=_merge(Total(), total, "answer.overall.")), values, "answer.")


def _read_words(table: object) -> ReportWords:
    given = {**_as_table(table, "evidence")}
    known = [f.name for f in fields(ReportWords)]
    if unknown := sorted(given.keys() - known):
        raise ValueError(f"evidence.{unknown[0]} is unknown; known are {', '.join(known)}")
    if not isinstance(given.get("allowed", True), bool):
        raise ValueError(f"evidence.allowed = {given['allowed']!r} is not true or false")
    for name in given.keys() & {"degrees", "parts"}:
        given[name] = tuple(given[name])
    return ReportWords(**given).check()


def _as_table(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} = {value!r} is not a table")
    return cast("dict[str, Any]", value)


def _merge(base: _T, values: dict[str, Any], prefix: str) -> _T:
    """`base` with `values`, each of the type that its field has."""
    known = {f.name for f in fields(base)}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"{prefix}{key} is unknown; known are {', '.join(sorted(known))}")
        default: object = getattr(base, key)
        kind = type(default)
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{prefix}{key} = {value!r} is not a {kind.__name__}")
    return replace(base, **values)


def check(profile: Profile) -> Profile:
    """Check that a profile's values are allowed and fit together; returns it. ValueError, naming the value."""
    p = profile
    ranges = {
        "workspace": (2, 10_000),
        "first_frames": (1, p.workspace),
        "frames_per_call": (1, 64),
        "rounds": (1, 100),
        "max_new_tokens": (1, 65_536),
    }
    for name, (least, most) in ranges.items():
        if not least <= (value := getattr(p, name)) <= most:
            raise ValueError(f"{name} = {value} is not within {least} to {most}.")
    for name in ("window", "retries"):
        if (value := getattr(p, name)) < 0:
            raise ValueError(f"{name} = {value} is negative.")
    _check_pixels(p)
    if p.clock.rule not in get_args(ClockRule):
        raise ValueError(f"clock.rule = {p.clock.rule!r} is not truncate, exact, fixed or text.")
    if not (0 < p.clock.tokens_per_second <= 1000 and 0 <= p.clock.seconds_per_patch <= 1000):
        raise ValueError("clock.tokens_per_second or clock.seconds_per_patch is not within 0 to 1000.")
    if p.tool_form not in get_args(ToolForm):
        raise ValueError(f"tool_form = {p.tool_form!r} is not image or video.")
    if set(p.dimensions) != set(DIMENSIONS):
        raise ValueError(f"dimensions are {sorted(p.dimensions)}, not TA, VQ, MQ.")
    if not has_caption(p.user_prompt):
        raise ValueError("user_prompt has no {caption}.")
    _check_fitted(p)
    if p.answer:
        _check_answer(p, p.answer)
    return profile


def _check_pixels(p: Profile) -> None:
    if p.cell not in CELLS.values():
        raise ValueError(f"cell = {p.cell} is not {' or '.join(map(str, sorted(set(CELLS.values()))))}.")
    for prefix, least, most in (("", p.min_pixels, p.max_pixels), ("tool_", p.tool_min_pixels, p.tool_max_pixels)):
        if not p.pixels_per_token <= least <= most <= 16_384 * p.pixels_per_token:
            raise ValueError(
                f"{prefix}min_pixels = {least} and {prefix}max_pixels = {most} are not within "
                f"{p.pixels_per_token} <= min <= max <= {16_384 * p.pixels_per_token}."
            )


def _check_answer(profile: Profile, form: AnswerForm) -> None:
    check_form(form)
    if profile.rounds > 1:
        raise ValueError("rounds is above 1, but a judge with an [answer] gives one reply.")
    if profile.captions:
        raise ValueError("captions are for judges without an [answer].")
    if profile.reports and profile.pointwise:
        raise ValueError("evidence is about two clips, and the judge sees one at a time.")


def _check_fitted(profile: Profile) -> None:
    for name, value in cast("Mapping[str, object]", profile.temperatures).items():
        known = name in TEMPERATURES and not isinstance(value, bool)
        if not known or not isinstance(value, int | float) or not 0.05 <= value <= 100:
            raise ValueError(
                f"temperatures.{name} = {value!r}: allowed are TA, VQ, MQ and OA, also with _tie, _unread or both "
                "(TA_tie_unread), and 0.05 to 100."
            )
    for key in profile.decides:
        if key not in MEASURED_KEYS:
            raise ValueError(f"decides names {key!r}; allowed are {', '.join(MEASURED_KEYS)}.")
    if "\n" in profile.scope:
        raise ValueError("scope is not one line.")
    if unknown := profile.refusals.keys() - _REFUSALS.keys():
        raise ValueError(f"refusals.{min(unknown)} is unknown; known are {', '.join(_REFUSALS)}.")
    for name, words in cast("Mapping[str, object]", profile.refusals).items():
        if not isinstance(words, str):
            raise ValueError(f"refusals.{name} = {words!r} is not a text.")
    check_captions(profile.captions)


def _read(path: Path) -> str:
    """A prompt file byte for byte: no newline is translated."""
    with open_to_read(path) as file:
        return file.read().decode()


def _plain_name(name: object) -> str:
    """A file name that stays inside its folder."""
    text = name if isinstance(name, str) else ""
    if not text or Path(text).name != text:
        raise ValueError(f"prompt file {name!r} is not a plain file name next to the profile")
    return text
