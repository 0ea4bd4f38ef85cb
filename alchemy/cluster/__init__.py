"""Runs of the queue on a Slurm or Ray cluster."""
