"""Trained models for use in other programs, under their old name."""
