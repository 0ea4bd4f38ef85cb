"""What a stranger's files are: encoding, format, columns, labels, lengths. Starts without torch."""
