"""Models as files: found, checked, fetched, kept, removed. Knows no engine."""
