"""The projects that `alchemy new` writes."""
