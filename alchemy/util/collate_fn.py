"""Collate functions under their old name."""

from alchemy.data.collate import CollateFn, DefaultCollateFn

__all__ = ["CollateFn", "DefaultCollateFn"]
