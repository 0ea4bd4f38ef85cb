"""What tells people about runs: mail of a run that ended."""
