"""The verb `verify`: compares a GGUF pair with its checkpoint, stage by stage, in a table.

The reference in F32 and every text GGUF of a folder with its projector read one conversation of two rounds: two videos,
a call, the frames of the call. Then each judges pairs of clips with the loop that users run. To measure the files
alone, the engine runs without its own rounding to F16 (`EngineSettings.exact`). No distance is called good or bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from convert.clip_pairs import EXAMPLE, ClipPair
from convert.reference import GreedyTurn, Reference
from convert.source import projector_beside
from convert.stage_outputs import FRAME, StagedBackend, StageOutputs
from convert.verdicts import agreement, judge_pairs, open_pair
from vrt_lite.disk import write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.interfaces import FrameStore, Sampling, ignore
from vrt_lite.judge import Pair, opening, respond
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find
from vrt_lite.models.gguf import list_pair
from vrt_lite.profile import Profile
from vrt_lite.protocol import tags
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Message
from vrt_lite.video.frame_conversion import resize

START, END = "<!-- verify:start -->", "<!-- verify:end -->"
CAPTION = "A red disc moving from left to right."
HEAD = (
    *("text", "projector", "MB", "pixels off by", "positions", "embeddings", "logits"),
    *("KL mean", "KL max", "top-1", "greedy equal", "verdict"),
)
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class VerifyRow:
    """The comparison of one pair of files with the reference.

    Errors are relative norms; `greedy` is how many leading tokens are equal, of how many; `verdict` see `agreement`.
    """

    text: Path
    projector: Path
    pixels: int
    positions: bool
    embeddings: float
    logits: float
    kl_mean: float
    kl_max: float
    top1: float
    greedy: tuple[int, int]
    verdict: str

    def cells(self) -> tuple[str, ...]:
        """The row's cells in the table."""
        size = (self.text.stat().st_size + self.projector.stat().st_size) / 1e6
        return (
            *(self.text.name, self.projector.name, f"{size:.1f}", f"{self.pixels}"),
            "equal" if self.positions else "DIFFER",
            *(f"{self.embeddings:.1e}", f"{self.logits:.1e}", f"{self.kl_mean:.1e}", f"{self.kl_max:.1e}"),
            *(f"{100 * self.top1:.1f} %", f"{self.greedy[0]} of {self.greedy[1]}", self.verdict),
        )


def verify_pairs(
    source: Path,
    folders: Sequence[Path],
    *,
    clips: Sequence[ClipPair] = (),
    tokens: int = 128,
    progress: Callable[[str], None] = lambda what: None,
) -> list[VerifyRow]:
    """Compare every text GGUF in `folders`, all of one judge: the first one's profile is used for all.

    The conversation shows the first of `clips`, or frames drawn here; judged are all of them, or the example that
    comes with a checkout. Raises UsageError without the extra, ModelError for unfit files, VideoError for a clip.
    """
    files = [pair for folder in folders for pair in _files(folder)]
    profile = find(files[0][0], projector=files[0][1]).profile
    judged = tuple(clips) or (EXAMPLE,)
    with ExitStack() as stack:
        displayed, pair = _frames_to_show(stack, profile, clips)
        progress("reading with the reference")
        reference = Reference(source, profile=profile, clock=profile.clock)
        conversation = _conversation(pair, profile)
        theirs = reference.evaluate_stages(conversation, displayed)
        written = reference.write(conversation, displayed, tokens=tokens)
        fitted = FittedFrames(displayed, profile)
        worst = _pixels_off(conversation, displayed, fitted, reference)
        progress("judging with the reference")
        reference_choices = list(judge_pairs(judged, profile, reference, size="displayed"))
        rows: list[VerifyRow] = []
        for text, projector in files:
            with StagedBackend(text, projector, profile=profile, settings=EngineSettings(exact=True)) as backend:
                progress(f"reading with {text.name}")
                reply = backend.reply(conversation, fitted, sampling=Sampling(tokens), observe=ignore)
                mine = backend.evaluate_stages(conversation, fitted)
                progress(f"judging with {text.name}")
                agreed = agreement(reference_choices, list(judge_pairs(judged, profile, backend, size="fitted")))
            rows.append(_row(text, projector, worst, mine, theirs, (reply.tokens, written), agreed))
    return rows


def table(rows: Sequence[VerifyRow]) -> str:
    """Format the rows as a Markdown table."""
    lines = [HEAD, ("---",) * len(HEAD), *(row.cells() for row in rows)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def write_table(path: Path, rows: Sequence[VerifyRow]) -> None:
    """Write the table between the marks of a file. A file without marks is replaced by the table.

    UsageError for a file with other text and no marks: it is not ours to replace.
    """
    old = path.read_text("utf-8") if path.exists() else ""
    before, start, rest = old.partition(START)
    _, end, after = rest.partition(END)
    if start and end:
        new = f"{before}{START}\n{table(rows)}{END}{after}"
    elif old.strip():
        raise UsageError(f"{path} has text and no {START} … {END}: add the two lines where the table belongs.")
    else:
        new = f"{START}\n{table(rows)}{END}\n"
    write_file(path, new.encode())


@dataclass(frozen=True)
class DrawnFrames:
    """Drawn frames: a disc that crosses a gradient, in a different way in each clip. They are not resized."""

    sizes: tuple[tuple[int, int], tuple[int, int]] = ((480, 270), (320, 426))

    def pixels(self, frames: Sequence[FrameRef]) -> list[Pixels]:
        """RGB arrays in the order asked."""
        return [self._draw(frame) for frame in frames]

    def _draw(self, frame: FrameRef) -> Pixels:
        width, height = self.sizes[frame.clip]
        y, x = np.mgrid[:height, :width]
        picture = np.stack([x * 150 // width, y * 200 // height, (x * 3 + y * 5 + frame.index) % 256], axis=-1)
        centre = (width * (frame.index % 48 + 1) // 50, height * (1 + frame.clip) // 3)
        picture[(x - centre[0]) ** 2 + (y - centre[1]) ** 2 < (min(width, height) // 6) ** 2] = (225, 35, 30)
        return picture.astype(np.uint8)


@dataclass(frozen=True)
class FittedFrames:
    """Frames resized for the model, by vrt-lite's own rule."""

    displayed: FrameStore
    profile: Profile

    def pixels(self, frames: Sequence[FrameRef]) -> list[Pixels]:
        """RGB arrays in the order asked."""
        shown = zip(frames, self.displayed.pixels(frames), strict=True)
        return [self._fit(picture, called=frame.called) for frame, picture in shown]

    def _fit(self, picture: Pixels, *, called: bool) -> Pixels:
        height, width = picture.shape[:2]
        size = self.profile.frame_size(width, height, called=called)
        return resize(Image.fromarray(picture), size)


def distances(mine: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Return the norm of the difference divided by the reference's norm; 0 for empty arrays."""
    return float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)) if theirs.size else 0.0


def divergence(theirs: NDArray[np.float32], mine: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the KL divergence of the engine's prediction from the reference's, row by row."""
    p, q = _log_probabilities(theirs), _log_probabilities(mine)
    return (np.exp(p) * (p - q)).sum(axis=1)


def _log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _files(folder: Path) -> list[tuple[Path, Path]]:
    """Find every text GGUF with the projector of its type, or else the largest one, which is the most exact."""
    texts, projectors = list_pair(folder)
    if not texts or not projectors:
        raise ModelError(f"{folder} holds {len(texts)} text GGUF and {len(projectors)} mmproj*.gguf; needs both.")
    return [(text, projector_beside(text) or projectors[0]) for text in texts]


def _frames_to_show(stack: ExitStack, profile: Profile, clips: Sequence[ClipPair]) -> tuple[FrameStore, Pair]:
    if not clips:
        drawn = DrawnFrames()
        return drawn, Pair(CAPTION, (3.0, 5.5), drawn.sizes)
    shown = open_pair(stack, clips[0], profile)
    return shown.frames("displayed"), shown.pair


def _conversation(pair: Pair, profile: Profile) -> Conversation:
    """Build a conversation of two rounds. The first reply is fixed, so that both sides read the same."""
    count = min(4, profile.frames_per_call, profile.workspace)
    numbers = [i * profile.workspace // 2 + profile.workspace // 4 + 1 for i in range(count)]
    call = f'{{"name": "select_frames", "arguments": {{"target_frames": {numbers}}}}}'
    reply = f"<think>The two differ in motion; look closer.</think><tool_call>{call}</tool_call>"
    before = opening(pair, profile)
    following, reason = respond(tags.parse(reply), pair, profile, before=before, last=True)
    if reason:
        raise ModelError(f"The profile refuses the call that verify makes: {reason}.")
    return (*before, Message("assistant", (Generated(reply),)), following)


def _pixels_off(conversation: Conversation, displayed: FrameStore, fitted: FittedFrames, reference: Reference) -> int:
    """Return the largest difference of all frames shown, in grey levels."""
    frames = [frame for message in conversation for frame in message.frames]
    worst = 0
    for frame, picture, mine in zip(frames, displayed.pixels(frames), fitted.pixels(frames), strict=True):
        theirs = reference.frames.resized(picture, called=frame.called)
        if theirs.shape != mine.shape:
            return 255
        worst = max(worst, int(np.abs(mine.astype(int) - theirs).max()))
    return worst


def _row(
    text: Path,
    projector: Path,
    pixels: int,
    mine: StageOutputs,
    theirs: StageOutputs,
    turns: tuple[tuple[int, ...], GreedyTurn],
    verdict: str,
) -> VerifyRow:
    if not np.array_equal(mine.tokens, theirs.tokens):
        words = (int((reading.tokens != FRAME).sum()) for reading in (mine, theirs))
        raise ModelError("{}: the text becomes {} tokens, {} in the reference.".format(text.name, *words))
    engine_tokens, reference_turn = turns
    kl = divergence(theirs.logits, mine.logits)
    agreed = next(
        (i for i, (a, b) in enumerate(zip(engine_tokens, reference_turn.tokens, strict=False)) if a != b), None
    )
    return VerifyRow(
        *(text, projector, pixels, np.array_equal(mine.positions, theirs.positions)),
        *(distances(mine.embeddings, theirs.embeddings), distances(mine.logits, theirs.logits)),
        *(float(kl.mean()), float(kl.max())),
        float((mine.logits.argmax(axis=1) == theirs.logits.argmax(axis=1)).mean()),
        (min(len(engine_tokens), len(reference_turn.tokens)) if agreed is None else agreed, len(reference_turn.tokens)),
        verdict,
    )
