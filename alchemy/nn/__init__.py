"""Losses, curves and parameter groups: what learning needs and what knows no run."""
