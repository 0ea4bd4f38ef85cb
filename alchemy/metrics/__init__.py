"""Metrics: scopes, scores and formatting."""
