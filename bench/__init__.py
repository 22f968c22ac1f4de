"""Measures vrt-lite at the real shape of the models it is for, with random weights. Run from a checkout."""
