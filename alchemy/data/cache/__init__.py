"""Samples that were computed once and are read in place ever after, while all that decides them stays as it is."""
