"""The index over records: it finds, filters and searches them, and can be rebuilt from the record folders."""
