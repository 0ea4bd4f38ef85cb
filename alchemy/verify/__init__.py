"""Checks for configs and records: dry runs, resuming, determinism, gradients, sample coverage and replay."""
