"""Trains a judge: cold start, rejection sampling, GRPO, and an evaluation of each stage.

It runs from a checkout, with the extra [train]. What a model reads and writes is inference's own code:
`vrt_lite.protocol`, the judge's loop, and the conversion of a conversation to tokens.

    recipe, data                                     settings; pairs, tables and traces
    strict_format, rewards                           what of a trace is right
    policy_tokenizer, rendering, model               a conversation as tokens, positions and pictures; checkpoints
    writing, rollout                                 replies and their probabilities; many trials at once
    trainer -> sft, grpo; sample                     the stages
    stage_evaluation, dry_run, write_traces          before and after

The package `tiny` makes the bundled judge.
"""
