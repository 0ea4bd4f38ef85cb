"""Models ready to train."""
