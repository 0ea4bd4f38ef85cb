"""Additions to libraries; the spelling of the name is what existing projects import."""
