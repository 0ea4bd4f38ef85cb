"""A trained model as a file that other programs read."""
