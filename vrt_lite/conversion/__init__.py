"""Converts a checkpoint to a GGUF pair: a text model and a vision projector. NumPy and gguf do the work, not torch.

checkpoint.py         a folder's config, shards and tensor table as checked plain values
lora.py               merges a PEFT adapter while the weights are read
text_tensors.py       the language model: which stored tensor becomes which GGUF tensor, and its fields
vision_tensors.py     the same for the vision tower and its merger
tokenizer_fields.py   the vocabulary as GGUF fields
gguf_writer.py        storage types, row-wise conversion, the file format
whole_files.py        temporary files, free space, final names only for whole files
export_pair.py        all of the above: both files or none
quantization_types.py llama.cpp's type for each tensor of a quantised language model
pair_description.py   both files from config.json alone: tensors and sizes
projector.py          a projector GGUF in another storage type
"""
