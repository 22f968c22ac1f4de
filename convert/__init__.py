"""Converts a published checkpoint to the GGUF pair that vrt-lite runs; `python -m convert --help`.

Run it from a checkout. The wheel does not contain it: what conversion needs at run time is in vrt_lite/conversion.
README.md beside this file shows a whole session.

    source.py       finds a folder here, or downloads a repository of the hub
    quantize.py     the verb `quantize`: smaller files beside a pair
    clip_pairs.py   the pairs of clips that a user names
    activations.py  what enters each weight, read from the engine while it works
    calibrate.py    the verb `calibrate`: an importance matrix for quantize, from judged clips
    reference.py    the reference implementation, for `verify`
    verify.py       the verb `verify`: compares a pair with its checkpoint, stage by stage
    verdicts.py     the same for whole judgements
"""
