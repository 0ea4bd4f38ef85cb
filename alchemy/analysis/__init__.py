"""What is computed from records: differences, statistics, comparisons, plots, tables and mail."""
