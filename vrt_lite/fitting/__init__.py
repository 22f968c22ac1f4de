"""A model and a machine: what judging takes, what fits, and which settings are the quickest."""
