"""From a published checkpoint folder to the GGUF pair that vrt-lite runs; `python -m convert --help`.

Run from a checkout with the `convert` extra; the wheel does not hold it, and vrt_lite never imports it.

    checkpoint.py   a folder's config, shards and tensor table as checked plain values
    text.py         the language model: which stored tensor becomes which GGUF tensor, and its fields
    vision.py       the same for the vision tower and its merger
    tokenizer.py    the vocabulary as GGUF fields
    write.py        storage types, row-wise conversion, the file format
    export.py       the verb: all of the above, both files or none
"""
