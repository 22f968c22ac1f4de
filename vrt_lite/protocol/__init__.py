"""What a judge reads and writes, as plain values: messages, tags, verdict.

Pure and standard library only, so that conversion, training and benchmarks can share it.
"""
