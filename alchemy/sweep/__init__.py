"""Sweeps: search for good values of config keys with many runs."""
