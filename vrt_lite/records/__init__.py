"""The records: all that is kept, exported and shown. Their JSON is the API, the report's data and the stored row.

judgement    what a judge said of two clips, with everything that it depends on
pairs        what was asked, the light columns of its answer, and both orders of a pair as one
conditions   what judgements were made with, and whether they can be compared
ladders      a ranking: the clips of each group in their order
joining      a judgement with its clips exchanged, and those of both orders as one
"""
