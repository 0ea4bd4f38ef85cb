"""Benchmarks: ratios of times and memory, measured side by side in one run, with confidence intervals."""
