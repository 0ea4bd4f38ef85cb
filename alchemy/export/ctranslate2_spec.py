"""Convert a Transformer to a CTranslate2 model specification."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from alchemy.errors import AlchemyError
from alchemy.generate import Special
from alchemy.nn.position_embeddings import Learned, NoPlaces, Sinusoidal, waves
from alchemy.nn.transformer import DecoderLayer, FeedForward, Transformer
from alchemy.optional_packages import import_package

FORMAT = 1  # version of the conversion
PLACES = 2048  # number of sinusoidal positions to write
ACTIVATIONS = {F.relu: "RELU", F.gelu: "GELU", F.silu: "SWISH"}


class _Layout(NamedTuple):
    """Settings of a network that are not weights."""

    heads: int
    activation: str
    gated: bool
    norm_first: bool
    epsilon: float
    places: int  # maximum number of tokens per row


def import_ctranslate2() -> Any:
    """Import the `ctranslate2` package on demand."""
    return import_package("ctranslate2", "the engine ctranslate2")


def require_transformer(network: nn.Module) -> Transformer:
    """Return the network, or raise an error if CTranslate2 does not support it."""
    hint = "it supports Transformers with sinusoidal or learned positions; use --engine torch instead"
    if not isinstance(network, Transformer):
        raise AlchemyError(f"CTranslate2 does not support the network {type(network).__name__}", hint=hint)
    if not isinstance(network.source_places, Sinusoidal | Learned):
        raise AlchemyError('CTranslate2 does not support a Transformer with places = "rotary"', hint=hint)
    return network


def _get_layout(network: Transformer) -> _Layout:
    layer: Any = network.encoder[0]
    return _Layout(
        heads=layer.attend.heads,
        activation=ACTIVATIONS[layer.think.act],
        gated=layer.think.gated,
        norm_first=layer.around[0].norm_first,
        epsilon=layer.around[0].norm.eps,
        places=max_positions(network),
    )


def max_positions(network: Transformer) -> int:
    """Return the maximum number of tokens per row."""
    return network.longest or PLACES


def digest(network: Transformer, special: Special) -> str:
    """Return a hash of everything that determines the CTranslate2 model."""
    result = hashlib.sha256(repr((FORMAT, tuple(_get_layout(network)), tuple(special))).encode())
    for name, tensor in network.state_dict().items():
        result.update(f"{name} {tuple(tensor.shape)}".encode())
        result.update(_to_array(tensor).tobytes())
    return result.hexdigest()


def build_spec(network: Transformer, special: Special) -> Any:
    """Return the specification of a network. Tokens are named by their ids, since their text may not be unique."""
    specs, layout = import_package("ctranslate2.specs", "the engine ctranslate2"), _get_layout(network)
    spec = specs.TransformerSpec.from_config(
        (len(network.encoder), len(network.decoder)),
        layout.heads,
        pre_norm=layout.norm_first,
        activation=specs.Activation[layout.activation],
        ffn_glu=layout.gated,
    )
    end, unknown = str(special.eos), str(special.eos if special.unk is None else special.unk)
    for name, value in (("bos", str(special.begin)), ("eos", end), ("unk", unknown)):
        setattr(spec.config, f"{name}_token", value)
    spec.config.decoder_start_token, spec.config.layer_norm_epsilon = str(special.begin), layout.epsilon
    spec.register_source_vocabulary(list(map(str, range(network.source_table.num_embeddings))))
    spec.register_target_vocabulary(list(map(str, range(network.target_table.num_embeddings))))
    _fill_spec(spec, network, layout)
    return spec


def _fill_spec(spec: Any, network: Transformer, layout: _Layout) -> None:
    spec.encoder.embeddings[0].weight = _to_array(network.source_table.weight)
    spec.decoder.embeddings.weight = _to_array(network.target_table.weight)
    spec.decoder.projection.weight = _to_array(network.out.weight)
    for side, places in ((spec.encoder, network.source_places), (spec.decoder, network.target_places)):
        side.position_encodings.encodings = _convert_positions(places, network.out.in_features, layout.places)
    if layout.norm_first:
        _convert_norm(spec.encoder.layer_norm, network.encoder_norm)
        _convert_norm(spec.decoder.layer_norm, network.decoder_norm)
    for side, layers in ((spec.encoder, network.encoder), (spec.decoder, network.decoder)):
        for part, layer in zip(side.layer, layers, strict=True):
            _convert_layer(part, layer)


def _convert_layer(part: Any, layer: Any) -> None:
    """Convert an encoder or decoder layer; only decoder layers have cross-attention."""
    norms = [around.norm for around in layer.around]
    _convert_attention(part.self_attention, norms[0], (layer.attend.inner, layer.attend.out))
    if isinstance(layer, DecoderLayer):
        _convert_attention(part.attention, norms[1], (layer.look.query, layer.look.key_value, layer.look.out))
    _convert_norm(part.ffn.layer_norm, norms[-1])
    _convert_feed_forward(part.ffn, layer.think)


def _convert_attention(part: Any, norm: nn.Module, layers: Iterable[nn.Linear]) -> None:
    _convert_norm(part.layer_norm, norm)
    for linear, layer in zip(part.linear, layers, strict=True):
        _convert_linear(linear, layer.weight, layer.bias)


def _convert_feed_forward(part: Any, think: FeedForward) -> None:
    shares = 1 + think.gated
    into = [part.linear_0, part.linear_0_noact] if think.gated else [part.linear_0]
    for linear, weight, bias in zip(into, think.into.weight.chunk(shares), think.into.bias.chunk(shares), strict=True):
        _convert_linear(linear, weight, bias)
    _convert_linear(part.linear_1, think.out.weight, think.out.bias)


def _convert_linear(part: Any, weight: Tensor, bias: Tensor) -> None:
    part.weight, part.bias = _to_array(weight), _to_array(bias)


def _convert_norm(part: Any, norm: Any) -> None:
    part.gamma, part.beta = _to_array(norm.weight), _to_array(norm.bias)


def _convert_positions(places: NoPlaces, dim: int, length: int) -> np.ndarray:
    return _to_array(places.table_TD if isinstance(places, Learned) else waves(length, dim))


def _to_array(tensor: Tensor) -> np.ndarray:
    """Return a copy, because CTranslate2 quantizes to int8 in place."""
    return tensor.detach().float().cpu().numpy().copy()
