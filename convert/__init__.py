"""Converts a published checkpoint to the GGUF pair that vrt-lite runs; `python -m convert --help`.

Run it from a checkout with the `convert` extra. The wheel does not contain it, and vrt_lite never imports it.
README.md beside this file shows a whole session.

    source.py             finds a folder here, or downloads a repository of the hub
    checkpoint.py         a folder's config, shards and tensor table as checked plain values
    lora.py               merges a PEFT adapter while the weights are read
    text_tensors.py       the language model: which stored tensor becomes which GGUF tensor, and its fields
    vision_tensors.py     the same for the vision tower and its merger
    tokenizer_fields.py   the vocabulary as GGUF fields
    gguf_writer.py        storage types, row-wise conversion, the file format
    whole_files.py        temporary files, free space, final names only for whole files
    export_pair.py        the verb `export`: all of the above, both files or none
    projector.py          a projector GGUF in another storage type
    quantizer_process.py  llama.cpp's quantiser, in a process of its own
    quantize.py           the verb `quantize`: smaller files beside a pair
    clip_pairs.py         the pairs of clips that a user names
    activations.py        what enters each weight, read from the engine while it works
    calibrate.py          the verb `calibrate`: an importance matrix for quantize, from judged clips
    reference.py          the reference implementation, for `verify`
    verify.py             the verb `verify`: compares a pair with its checkpoint, stage by stage
    verdicts.py           the same for whole judgements
"""
