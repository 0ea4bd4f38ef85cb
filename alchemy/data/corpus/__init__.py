"""Corpora larger than memory: built once by several processes, then mapped and read in place."""
