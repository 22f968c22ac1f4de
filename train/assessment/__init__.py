"""Evaluates judges: outcomes of cases, figures, tables, pictures."""
