"""Real footage: fetched out of ordinary packages, measured, and made into labelled pairs."""
