"""Numbers about a run: how they are gathered, nested and reduced."""
