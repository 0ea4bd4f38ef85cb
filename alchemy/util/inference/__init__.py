"""Old import path of trained models for use in other programs."""
