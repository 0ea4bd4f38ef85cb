"""Detect the encoding, format, columns, labels and lengths of unknown data files. Does not import torch."""
