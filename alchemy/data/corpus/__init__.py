"""Corpora larger than memory: built once by several processes, then memory-mapped."""
