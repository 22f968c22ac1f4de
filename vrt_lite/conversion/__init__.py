"""Converts a checkpoint to a GGUF pair: a text model and a vision projector. NumPy and gguf do the work, not torch.

checkpoint.py         a folder's config, small files and tensor table as checked plain values
shards.py             a safetensors shard: its table, and rows of a tensor
lora.py               merges a PEFT adapter while the weights are read
text_tensors.py       the language model: which stored tensor becomes which GGUF tensor, and its fields
vision_tensors.py     the same for the vision tower and its merger
tokenizer_fields.py   the vocabulary as GGUF fields
gguf_writer.py        storage types, row-wise conversion, the file format
engine_rows.py        the engine's own quantiser of rows
quantization_types.py llama.cpp's type for each tensor of a quantised language model
importance_matrix.py  the weights of columns that `calibrate` or llama-imatrix wrote
projector.py          a projector in another storage type
pair_files.py         both files without their weights
pair_description.py   the same from config.json alone: tensors and sizes
whole_files.py        temporary files, free space, final names only for whole files
export_pair.py        writes both files at once, or none
pair_plan.py          both files before any shard is there
pair_writer.py        writes a planned pair shard by shard, and goes on after a stop
"""
