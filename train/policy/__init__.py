"""The trained model as a judge: it takes tokens, pictures and positions, and gives replies and their probabilities."""
