"""Converts a checkpoint, or a GGUF that is not quantised, to GGUF files. NumPy and gguf do the work, not torch.

    folder ──► checkpoint (+ lora) ──► pair_files ──► pair_plan ──► pair_writer ──► NAME-TYPE.gguf and mmproj
    GGUF   ──► gguf_source ──────────────────────────────┘              ▲ shards, in any order

A plan describes both files completely before a weight is read. The writer is the only one: `pull` gives it each shard
as it arrives, `vrt-lite convert` and `convert export` those of a folder, `convert quantize` a GGUF.

checkpoint.py         a folder's config, small files and list of tensors as checked plain values
shards.py             a safetensors shard: its table, and rows of a tensor
families.py           the kinds of checkpoints: families.toml says which stored tensor becomes which GGUF tensor
tokenizer_fields.py   the vocabulary as GGUF fields
torch_state.py        a checkpoint of torch.save: its table, read without running what it names
reward_state.py       a reward model with heads, as VideoAlign's trainer leaves it
lora.py               what a PEFT adapter adds to each tensor
gguf_source.py        a GGUF that is not quantised, as a source; importance matrices
gguf_writer.py        a file: its header, its tensors as blocks of rows in their storage types
engine_rows.py        the engine's own quantiser of rows
quantization.py       llama.cpp's type for each tensor of a quantised language model, and ours for a projector's
pair_files.py         both files without their weights; from config.json alone, their tensors and sizes
pair_plan.py          both files, and the shard that each tensor is in
pair_writer.py        writes what is planned shard by shard, and goes on after a stop
convert_folder.py     all of this for a checkpoint folder
"""
