"""Trains a judge: cold start, rejection sampling, GRPO, and an evaluation of each stage.

It runs from a checkout, with the extra [train]. Training uses the same code as inference for what a model reads and
writes: `vrt_lite.protocol`, the judge's loop, and the conversion of a conversation to tokens. The training of a 7B
model and of the bundled judge differ only in the recipe.
"""
