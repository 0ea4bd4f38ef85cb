"""Building blocks that do not depend on a run: losses, layers, learning-rate curves, parameter groups."""
