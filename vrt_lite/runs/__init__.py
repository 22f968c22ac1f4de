"""Runs: what was judged is kept when it is judged, found again by what was asked, and shared by processes."""
