"""Configs and sample data for the projects that `alchemy new` creates."""
