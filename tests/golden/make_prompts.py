"""Makes the golden prompts: the user turn that a judge reads, a file for each preset.

    python tests/golden/make_prompts.py [FOLDER]

Put together here without vrt_lite: the model card's script fills its template by `str.format`, 96 frames in all. The
words are the model card's, and for the other sets those of the paper's appendix D (arXiv 2510.10518v4), where a
dimension reads "1. NAME(KEY): EXPLANATION"; the space before the key is the model card's. No extra is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
TEMPLATE = HERE.parent.parent / "vrt_lite" / "prompts" / "vr-thinker-user.txt"
CAPTION = "A cinematic shot of a waterfall in a lush forest."
FRAMES = 96
ALIGNMENT = "Alignment between video content and prompt"

# Name and explanation of TA, VQ and MQ.
WORDS = {
    "model-card": (
        ("Temporal Alignment", "How well the video adheres to the temporal aspects of the prompt."),
        ("Video Quality", "The visual and aesthetic quality of the video."),
        ("Motion Quality", "The smoothness and realism of the motion in the video."),
    ),
    "videogen-reward": (
        ("Text Alignment", ALIGNMENT),
        ("Visual Quality", "The visual aesthetics of the video"),
        ("Motion Quality", "Level of motion coherence"),
    ),
    "text2video-human": (
        ("Alignment", ALIGNMENT),
        ("Preference", "The intrinsic aesthetics of the video"),
        ("Coherence", "Level of temporal coherence"),
    ),
    "mj-bench-video": (
        ("Alignment", ALIGNMENT),
        ("Fineness", "The level of fineness in visual content"),
        ("Coherence & Consistency", "Level of temporal coherence and Consistency"),
    ),
}


def prompt(preset: str) -> str:
    """The user turn's text under a preset."""
    values: dict[str, object] = {"caption": CAPTION, "n": FRAMES, "n_half": FRAMES / 2}
    for i, (key, (name, explanation)) in enumerate(zip(("TA", "VQ", "MQ"), WORDS[preset], strict=True), start=1):
        values[f"dim_name_{i}"] = f"{name} ({key})"
        values[f"dim_explain_{i}"] = explanation
    return TEMPLATE.read_bytes().decode().format(**values)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "prompts"
    folder.mkdir(parents=True, exist_ok=True)
    for preset in WORDS:
        (folder / f"{preset}.txt").write_bytes(prompt(preset).encode())
