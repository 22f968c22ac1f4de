"""Runs: each judgement is kept at once, found again by its question, and shared by the processes of one machine."""
