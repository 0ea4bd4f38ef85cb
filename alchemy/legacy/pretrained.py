"""Compatibility of transformers 5 with models written for older versions."""

from __future__ import annotations

import sys
from typing import Any


class _TiedKeys:
    """A descriptor that computes `all_tied_weights_keys` for models that never call `post_init()`."""

    def __get__(self, model: Any, kind: type) -> Any:
        if model is None:
            return self
        model.all_tied_weights_keys = model.get_expanded_tied_weights_keys(all_submodels=True)
        return model.all_tied_weights_keys


def complete_pretrained() -> None:
    """Make `post_init()` optional in subclasses of `PreTrainedModel`, if transformers is imported.

    `from_pretrained` and `init_weights` of transformers 5 read `all_tied_weights_keys`, which only `post_init` sets.
    """
    module = sys.modules.get("transformers.modeling_utils")
    base: Any = None if module is None else module.PreTrainedModel
    if base is not None and not hasattr(base, "all_tied_weights_keys"):
        base.all_tied_weights_keys = _TiedKeys()
