"""A Transformer as a model of CTranslate2: the same weights, by the names of its specification."""

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

FORMAT = 1  # of what a network becomes
PLACES = 2048  # tokens of a row that sines and cosines are written out for
ACTIVATIONS = {F.relu: "RELU", F.gelu: "GELU", F.silu: "SWISH"}


class _Layout(NamedTuple):
    """What the weights do not tell."""

    heads: int
    activation: str
    gated: bool
    norm_first: bool
    epsilon: float
    places: int  # tokens that a row may have


def import_ctranslate2() -> Any:
    """The package, imported when it is used."""
    return import_package("ctranslate2", "the engine ctranslate2")


def require_transformer(network: nn.Module) -> Transformer:
    """The network, if it is one that CTranslate2 can hold."""
    hint = "it holds Transformers with sinusoidal or learned places; write texts with --engine torch"
    if not isinstance(network, Transformer):
        raise AlchemyError(f"CTranslate2 cannot hold a network {type(network).__name__}", hint=hint)
    if not isinstance(network.source_places, Sinusoidal | Learned):
        raise AlchemyError('CTranslate2 cannot hold a Transformer with places = "rotary"', hint=hint)
    return network


def _layout_of(network: Transformer) -> _Layout:
    layer: Any = network.encoder[0]
    return _Layout(
        heads=layer.attend.heads,
        activation=ACTIVATIONS[layer.think.act],
        gated=layer.think.gated,
        norm_first=layer.around[0].norm_first,
        epsilon=layer.around[0].norm.eps,
        places=places_of(network),
    )


def places_of(network: Transformer) -> int:
    """How many tokens a row may have."""
    return network.longest or PLACES


def digest(network: Transformer, special: Special) -> str:
    """A hash of all that decides a model of CTranslate2."""
    found = hashlib.sha256(repr((FORMAT, tuple(_layout_of(network)), tuple(special))).encode())
    for name, tensor in network.state_dict().items():
        found.update(f"{name} {tuple(tensor.shape)}".encode())
        found.update(_array(tensor).tobytes())
    return found.hexdigest()


def spec_of(network: Transformer, special: Special) -> Any:
    """The network with tokens that are called by their numbers, since words may be spelt alike."""
    specs, layout = import_package("ctranslate2.specs", "the engine ctranslate2"), _layout_of(network)
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
    _fill(spec, network, layout)
    return spec


def _fill(spec: Any, network: Transformer, layout: _Layout) -> None:
    spec.encoder.embeddings[0].weight = _array(network.source_table.weight)
    spec.decoder.embeddings.weight = _array(network.target_table.weight)
    spec.decoder.projection.weight = _array(network.out.weight)
    for side, places in ((spec.encoder, network.source_places), (spec.decoder, network.target_places)):
        side.position_encodings.encodings = _places(places, network.out.in_features, layout.places)
    if layout.norm_first:
        _norm(spec.encoder.layer_norm, network.encoder_norm)
        _norm(spec.decoder.layer_norm, network.decoder_norm)
    for side, layers in ((spec.encoder, network.encoder), (spec.decoder, network.decoder)):
        for part, layer in zip(side.layer, layers, strict=True):
            _layer(part, layer)


def _layer(part: Any, layer: Any) -> None:
    """A layer of either side; only that of the decoder looks at the source."""
    norms = [around.norm for around in layer.around]
    _attention(part.self_attention, norms[0], (layer.attend.inner, layer.attend.out))
    if isinstance(layer, DecoderLayer):
        _attention(part.attention, norms[1], (layer.look.query, layer.look.key_value, layer.look.out))
    _norm(part.ffn.layer_norm, norms[-1])
    _feed_forward(part.ffn, layer.think)


def _attention(part: Any, norm: nn.Module, layers: Iterable[nn.Linear]) -> None:
    _norm(part.layer_norm, norm)
    for linear, layer in zip(part.linear, layers, strict=True):
        _linear(linear, layer.weight, layer.bias)


def _feed_forward(part: Any, think: FeedForward) -> None:
    shares = 1 + think.gated
    into = [part.linear_0, part.linear_0_noact] if think.gated else [part.linear_0]
    for linear, weight, bias in zip(into, think.into.weight.chunk(shares), think.into.bias.chunk(shares), strict=True):
        _linear(linear, weight, bias)
    _linear(part.linear_1, think.out.weight, think.out.bias)


def _linear(part: Any, weight: Tensor, bias: Tensor) -> None:
    part.weight, part.bias = _array(weight), _array(bias)


def _norm(part: Any, norm: Any) -> None:
    part.gamma, part.beta = _array(norm.weight), _array(norm.bias)


def _places(places: NoPlaces, dim: int, length: int) -> np.ndarray:
    return _array(places.table_TD if isinstance(places, Learned) else waves(length, dim))


def _array(tensor: Tensor) -> np.ndarray:
    """A copy: CTranslate2 rounds numbers to int8 where they stand, which must not be in the network."""
    return tensor.detach().float().cpu().numpy().copy()
