"""Data loading: files, chains of pipes, loaders and batches."""
