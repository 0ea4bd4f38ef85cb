"""Where samples come from: files, chains of pipes, loaders, batches."""
