"""The commands about profiles: how to talk to a model. Parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from vrt_lite.cli.options import FILE, model_argument, print_text, size_options, take_settings
from vrt_lite.errors import ModelError, UsageError

if TYPE_CHECKING:
    from vrt_lite.profile import Profile

STATUS = "Exit status: 0 done, 2 usage, 4 a profile that cannot be used, or a model that is not here, 130 interrupted."
_WORDS: Final = {
    "name": "What a record calls it.",
    "system_prompt": "The prompts, or system_prompt_file and user_prompt_file: files beside this one. {caption} is the "
    "clips' prompt, {n} the frames of both clips, {n_half} those of one, {dim_name_1} and {dim_explain_1} a dimension.",
    "no_caption": "What stands in the place of a prompt that is not given.",
    "workspace": "Frames of a clip that the judge can ask for, 2 to 10000.",
    "distinct_frames": "Whether a call shows no frame twice, where a clip has fewer than the workspace.",
    "first_frames": "Frames of a clip that are shown first.",
    "frames_per_call": "The most that a call may ask for.",
    "min_pixels": "Pixels of a frame, 784 a visual token: at least, and at most; of asked-for frames they are apart.",
    "tool_form": "Asked-for frames are single images (image), or pairs of a video (video).",
    "tool_text": "What comes with asked-for frames: {first} and {last} number them from 0; {width}, {height}.",
    "error_text": "The answer to a call that is refused. {reason} is one of the refusals below.",
    "final_text": "What is added where the last round begins.",
    "correction_text": "The answer to a reply that cannot be used.",
    "forgotten_text": "What stands where frames were that are shown no more.",
    "window": "Rounds that asked-for frames stay visible.",
    "rounds": "The most rounds, and how often a reply may be corrected.",
    "max_new_tokens": "The longest reply, in tokens.",
    "trusts_measures": "Whether a winner that the measures plainly contradict is undecided.",
    "scope": "In one line what the judge sees.",
    "decides": "In which of VQ, MQ and OA what was measured is the verdict.",
    "clock": "How a patch's time becomes a position: truncate, exact or fixed.",
    "refusals": "The reasons for which a call is refused.",
    "dimensions": 'The three dimensions, as the judge reads them. Or preset = "model-card" above all tables.',
    "temperatures": "By key, what the logits of a choice are divided by.",
    "captions": "The captions that the judge understands, as sentences; {} is anything. Empty: all.",
}
"""By key: what it means, for whoever writes a profile."""


@click.group(epilog=STATUS)
def profile() -> None:
    """Show, check or write a profile: how vrt-lite talks to a model, in a TOML file.

    \b
    vrt-lite profile show vr-thinker-7b
    vrt-lite profile new mine.toml
    vrt-lite profile check mine.toml
    vrt-lite compare a.mp4 b.mp4 --model ./my-judge --profile mine.toml

    A model's own is the profile.toml beside its files. What a profile leaves out is VR-Thinker's.
    """  # noqa: D301 - \b is click's mark for "do not wrap"


@profile.command(epilog=STATUS)
@model_argument
@size_options
def show(model: str | None, **options: Any) -> None:
    """Print the profile in force for MODEL, the default judge if it is left out, with these options, as TOML."""
    from vrt_lite.models import BUNDLED, profile_of  # noqa: PLC0415

    used = take_settings(options).applied_to(profile_of(model or BUNDLED))
    click.echo(_write(used), nl=False)


@profile.command(epilog=STATUS)
@click.argument("file", metavar="FILE", type=FILE)
def check(file: str) -> None:
    """Check the profile FILE. Prints a line for each fault."""
    from vrt_lite.profile import find_faults  # noqa: PLC0415

    *first, last = find_faults(Path(file)) or [""]
    for fault in first:
        print_text(fault, err=True)
    if last:
        raise ModelError(last)
    print_text(f"{file} can be used: --profile {file}")


@profile.command(epilog=STATUS)
@click.argument("file", metavar="FILE", type=FILE)
def new(file: str) -> None:
    """Write VR-Thinker's profile to FILE, with a comment for each key, to be changed."""
    from vrt_lite.profile import default_profile  # noqa: PLC0415

    text = f"# How vrt-lite talks to a model. What is left out is VR-Thinker's, as here.\n{_write(default_profile())}"
    try:
        with Path(file).open("x", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
    except FileExistsError:
        raise UsageError(f"{file} is there already: give another name.") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}.") from error
    print_text(f"{file} is written. Change it, then: vrt-lite profile check {file}")


def _write(of: Profile) -> str:
    """Return a profile as TOML, with a comment for each key that needs one."""
    import tomlkit  # noqa: PLC0415 - only here

    from vrt_lite.profile import to_table  # noqa: PLC0415

    document = tomlkit.document()
    for key, value in to_table(of).items():
        document.add(tomlkit.nl())
        if words := _WORDS.get(key):
            document.add(tomlkit.comment(words))
        lines = isinstance(value, str) and "\n" in value and "\r" not in value
        document.add(key, tomlkit.string(value, multiline=True) if lines else value)
    return tomlkit.dumps(document)
