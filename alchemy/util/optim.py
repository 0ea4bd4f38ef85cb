"""Old import path for parameter groups."""

from alchemy.nn.param_groups import trf_groups as prepare_trf_based_model_params

__all__ = ["prepare_trf_based_model_params"]
