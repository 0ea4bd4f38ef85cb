"""A project in the style of alchemy 0.x: find names and places in short sentences."""
