"""The parts of this project."""
