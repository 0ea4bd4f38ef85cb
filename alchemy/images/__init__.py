"""Images: read files, draw random numbers per sample, and transform batches."""
