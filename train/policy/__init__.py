"""The model that is trained, as a judge: tokens, pictures and positions in, replies and their probabilities out."""
