"""Images, histograms, texts, tables and attention maps that a run logs next to its numbers."""
