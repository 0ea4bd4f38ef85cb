"""Check a config or a record: dry run, resume, determinism, gradients, sample coverage, replay."""
