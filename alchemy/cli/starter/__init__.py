"""Configs and sample data of the projects that `alchemy new` creates."""
