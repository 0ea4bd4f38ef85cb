"""Images: read files, transform batches with random numbers per sample, cut tiles, and draw pictures."""
