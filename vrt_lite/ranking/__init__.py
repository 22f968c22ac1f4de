"""Ranking of many clips: entries are read, pairs are judged, and ratings are fitted to what the judge said."""
