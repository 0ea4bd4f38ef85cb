"""Detects what unknown data files are: encoding, format, columns, labels, lengths. Starts without torch."""
