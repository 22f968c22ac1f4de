"""Converts a checkpoint, or a GGUF that is not quantised, to GGUF files. NumPy and gguf do the work, not torch.

    folder ──► checkpoint (+ lora) ──► convert_folder ──► NAME-TYPE.gguf and mmproj
                                             ▲ shards, in any order

A plan describes both files completely before a weight is read. The writer is the only one: `pull` gives it each shard
as it arrives, `vrt-lite convert` and `convert export` those of a folder, `convert quantize` a GGUF.

checkpoint.py         a folder's config, small files, list of tensors, and what an adapter adds to them
weights.py            safetensors, torch.save's pickle, GGUF: where a file has its tensors, and rows of one
families.py           the kinds of checkpoints: families.toml says which stored tensor becomes which GGUF tensor
tokenizer_fields.py   the vocabulary as GGUF fields
gguf_writer.py        a file: its header, its tensors as blocks of rows in their storage types
quantization.py       the type of each tensor: llama.cpp's for a language model, and ours for a projector's
convert_folder.py     both files described without their weights, then written shard by shard
"""
