"""Old import path for using trained models in other programs."""
