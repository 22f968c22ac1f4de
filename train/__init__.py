"""Trains a judge: pretraining, cold start, rejection sampling, GRPO, and what each stage is worth.

From a checkout, with the extra [train]. It shares with inference all that a model reads and writes:
`vrt_lite.protocol`, the judge's loop, the lowering of a conversation to tokens. A 7B and the bundled judge differ by a
recipe, not by code.
"""
