"""Old import path for collate functions."""

from alchemy.data.collate import CollateFn, DefaultCollateFn

Default = DefaultCollateFn  # `type = "alchemy.util.collate_fn.Default"` in a config

__all__ = ["CollateFn", "Default", "DefaultCollateFn"]
