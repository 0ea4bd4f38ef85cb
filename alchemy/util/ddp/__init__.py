"""Training in several processes, under its old name."""
