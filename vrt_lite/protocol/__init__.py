"""What a judge reads and writes, as plain values: frames, messages, tags, tool, prompt, memory, verdict.

Pure and standard library only, so that conversion, training and benchmarks can share it. It knows
no pixels, no files, no engine.
"""
