"""Convert the weight names in files written by transformers to the names of its modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def rename_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the weights under the names that `module` has for them, if it is a model from transformers.

    For example, transformers 5 saves `vit.layers.0` as `vit.encoder.layer.0` and converts the name when it loads the
    file. The names of a backbone without a head get the prefix that they have in `module`. If the conversion does not
    make more names match, the weights are returned unchanged.
    """
    own = module.state_dict().keys()
    if own <= tensors.keys() or not type(module).__module__.startswith("transformers."):
        return tensors
    return max(tensors, _convert(module, tensors), key=lambda found: len(own & found.keys()))


def _convert(module: nn.Module, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Load the weights into a second model with transformers, and return its weights."""
    from transformers import PreTrainedModel

    if not isinstance(module, PreTrainedModel):
        return tensors
    with _silent(), torch.random.fork_rng(devices=[]):  # missing weights are initialized at random
        loaded, info = type(module).from_pretrained(
            None,  # no folder and no model hub
            config=module.config,
            state_dict=dict(tensors),
            dtype=module.dtype,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    found = {name: tensor for name, tensor in loaded.state_dict().items() if name not in info["missing_keys"]}
    found |= {name: torch.empty(shape, device="meta") for name, shape, _ in info["mismatched_keys"]}
    return found | {name: torch.empty(0) for name in sorted(info["unexpected_keys"])}


@contextmanager
def _silent() -> Iterator[None]:
    """Turn off the progress bar and the load report of transformers."""
    from transformers.utils import logging

    verbosity, shows_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_bar:
            logging.enable_progress_bar()
