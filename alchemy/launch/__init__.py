"""Devices and processes of a run."""
