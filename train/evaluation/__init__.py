"""What a judge is worth: outcomes case by case, figures, tables, pictures. Only `evaluate` and `views` know judges."""
