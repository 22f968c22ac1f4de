"""The local server: pages to compare, rank and vote, and an API, in front of one engine."""
