"""From a published checkpoint to the GGUF pair that vrt-lite runs; `python -m convert --help`.

Run from a checkout with the `convert` extra; the wheel does not hold it, and vrt_lite never imports it.
README.md beside this file shows a whole session.

    source.py       a folder here, or a repository on the hub
    checkpoint.py   a folder's config, shards and tensor table as checked plain values
    lora.py         a PEFT adapter, merged while the weights are read
    text.py         the language model: which stored tensor becomes which GGUF tensor, and its fields
    vision.py       the same for the vision tower and its merger
    tokenizer.py    the vocabulary as GGUF fields
    write.py        storage types, row-wise conversion, the file format
    place.py        temporary files, free space, names only for whole files
    export.py       the verb: all of the above, both files or none
    projector.py    a projector GGUF in another storage type
    engine.py       llama.cpp's quantiser, in a process of its own
    quantize.py     the verb: smaller files beside a pair
    activations.py  what enters each weight, read from the engine while it works
    calibrate.py    the verb: an importance matrix for quantize, from judged clips
    reference.py    the reference implementation, for the next
    verify.py       the verb: a pair against its checkpoint, stage by stage
"""
