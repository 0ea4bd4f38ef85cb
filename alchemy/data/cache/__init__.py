"""Memory-mapped cache of processed samples."""
