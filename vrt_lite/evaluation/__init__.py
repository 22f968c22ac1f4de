"""Evaluation: a judge's verdicts compared with the labels of a preference set.

`sets` finds and reads a set, `clips` finds its clips, `fetching` downloads it. `evaluate` has the pairs judged and
keeps an `EvalCase` for each in the run. `compute` makes `Figures` of them, with the measures of `metrics`.
"""
