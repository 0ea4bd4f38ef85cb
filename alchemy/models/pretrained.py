"""Pretrained encoders, loaded from local folders of the transformers library."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from loguru import logger
from safetensors import SafetensorError
from torch import Tensor, nn

from alchemy.context import sym_tbl
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.files import read_table, write_atomic
from alchemy.models.encoders import Encoder
from alchemy.nn.sequences import Rows, States, at
from alchemy.optional_packages import import_package
from alchemy.records.local_copies import encoder_folder
from alchemy.text import Tokenizer


@Encoder.register()
class Pretrained(Encoder):
    """Any transformers model in a local folder: BERT, ALBERT, XLNet, RoBERTa, DistilBERT, ELECTRA and others.

    `kind` sets the architecture if `config.json` does not contain it, as in folders from 2019. `weights = false` loads
    only the architecture and initializes it randomly; `options` override its configuration, for example
    `{ hidden_dropout_prob = 0.2 }`. In a few architectures, such as ConvBERT, padding affects the vectors of other
    tokens; a warning is then logged.
    """

    packages = ("transformers",)

    def __init__(
        self,
        path: str,
        *,
        tokenizer: Tokenizer | None = None,
        kind: str = "",
        weights: bool = True,
        options: dict[str, Any] = {},
    ) -> None:
        super().__init__()
        transformers = import_package("transformers", "a pretrained encoder")
        transformers.utils.logging.disable_progress_bar()  # loading is fast, and alchemy shows its own progress bar
        config = _load_config(transformers, Path(path).expanduser(), kind, options)
        if tokenizer is not None and tokenizer.size > config.vocab_size:
            hint = "use the tokenizer from the same folder"
            raise AlchemyError(
                f"the tokenizer has {tokenizer.size} ids, but {path} supports {config.vocab_size}", hint=hint
            )
        if tokenizer is not None and 2 * tokenizer.size < config.vocab_size:
            text = "the tokenizer has {} ids, but {} supports {}: does it belong to a different model?"
            logger.warning(text, tokenizer.size, path, config.vocab_size)
        _save_config(config, path)
        self.kind: str = config.model_type
        self.inner = _load_model(transformers, Path(path).expanduser(), config, weights)
        self.width = config.hidden_size
        self.longest = _max_positions(config, self.inner)
        self.pools_last = self._pools_last()
        if self._sees_padding():
            text = "the vectors of {} ({}) depend on padding, so predictions depend on the other texts in a batch"
            logger.warning(text, path, self.kind)
        takes = inspect.signature(self.inner.forward).parameters
        # the RoBERTa family has a single segment; some architectures have none
        self.segments = "token_type_ids" in takes and (
            getattr(config, "type_vocab_size", 1) > 1 or self.kind == "xlnet"
        )

    def _pools_last(self) -> bool:
        """Return whether to pool the last token instead of the first: XLNet's [CLS] is last, and GPT is causal."""
        if self.kind == "xlnet":
            return True
        first_BD = self._encode_short([[1, 2], [1, 3]])[:, 0]
        return torch.equal(first_BD[0], first_BD[1])

    def _sees_padding(self) -> bool:
        """Return whether padding changes the vectors of a text despite the mask, as in ConvBERT."""
        alone_BTD, padded_BTD = self._encode_short([[2, 3]]), self._encode_short([[2, 3, 0, 0]])
        return not torch.allclose(alone_BTD, padded_BTD[:, :2], rtol=1e-4, atol=1e-4)

    @torch.no_grad()
    def _encode_short(self, ids: list[list[int]]) -> Tensor:
        """Encode short rows in which everything after the second token is padding."""
        training, ids_BT = self.inner.training, torch.tensor(ids)
        mask_BT = (torch.arange(ids_BT.shape[1]) < 2).long().expand_as(ids_BT)
        states_BTD: Tensor = self.inner.eval()(input_ids=ids_BT, attention_mask=mask_BT).last_hidden_state
        self.inner.train(training)
        return states_BTD

    def forward(self, rows: Rows) -> States:
        given: dict[str, Any] = {"input_ids": rows.ids_BT, "attention_mask": rows.real_BT.long()}
        if self.segments and rows.segments_BT is not None:
            given["token_type_ids"] = rows.segments_BT
        made = self.inner(**given, return_dict=True)
        return States(made.last_hidden_state, rows.real_BT, self._pool(made, rows))

    def _pool(self, made: Any, rows: Rows) -> Tensor:
        pooled: Tensor | None = getattr(made, "pooler_output", None)
        if pooled is not None:
            return pooled
        states: Tensor = made.last_hidden_state
        return at(states, rows.lengths_B - 1) if self.pools_last else states[:, 0]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder that `AutoModel.from_pretrained` can load."""
        self.inner.save_pretrained(folder)


def _save_config(config: Any, path: str) -> None:
    """Save the architecture in the record of the current run, so that checkpoints load without the original folder."""
    record = sym_tbl().record_dir
    if record is not None:
        folder = encoder_folder(record, path)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "config.json", config.to_json_string())


def _load_config(transformers: Any, folder: Path, kind: str, options: dict[str, Any]) -> Any:
    file = folder / "config.json"
    if not file.is_file():
        raise AlchemyError(
            f"file not found: {str(file)!r}", hint="use a local folder: nothing is downloaded from a hub"
        )
    try:
        content = read_table(file)
    except (OSError, ValueError) as error:
        raise AlchemyError(f"invalid JSON: {error}", where=str(file)) from error
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    named = content.get("model_type", "")
    if kind in known and named not in ("", kind):
        hint = f"remove kind = {kind!r}, which is only for folders without a model_type, or use a different folder"
        raise AlchemyError(f"the folder contains a {named!r} model, but kind = {kind!r}", where=str(file), hint=hint)
    kind = kind or named
    if kind not in known:
        what = f"unknown architecture {kind!r}" if kind else "the model_type is missing"
        hint = did_you_mean(kind, list(known)) or 'set the architecture: kind = "bert"'
        raise AlchemyError(what, where=str(file), hint=hint)
    config = known[kind].from_pretrained(str(folder))
    odd = [name for name in options if not hasattr(config, name)]
    if odd:
        hint = did_you_mean(odd[0], list(config.to_dict()))
        raise AlchemyError(f"the configuration of {kind} has no {odd[0]!r}", hint=hint)
    config.update(options)
    if "/" in str(config._attn_implementation):  # the library would download and run code
        text = f"attn_implementation {config._attn_implementation!r} would download code"
        raise AlchemyError(text, where=str(file), hint="remove it")
    return config


def _load_model(transformers: Any, folder: Path, config: Any, weights: bool) -> Any:
    if not weights:
        return transformers.AutoModel.from_config(config, trust_remote_code=False)
    try:
        model, info = transformers.AutoModel.from_pretrained(
            str(folder),
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        hint = "it needs model.safetensors or pytorch_model.bin; weights = false initializes at random"
        raise AlchemyError(f"cannot load the weights of {str(folder)!r}: {error}", hint=hint) from error
    missing = sorted(info["missing_keys"])
    if 2 * len(missing) > len(model.state_dict()):
        hint = f"do they belong to a model other than {config.model_type!r}? weights = false initializes at random"
        raise AlchemyError(f"{str(folder)!r} has no weights for {missing[0]} and {len(missing) - 1} others", hint=hint)
    if other := sorted(info["mismatched_keys"]):
        name, theirs, ours = other[0]
        text = f"{name} has shape {list(theirs)} in the weights of {str(folder)!r}, but {list(ours)} in config.json"
        hint = "use config.json and weights of the same model, without `options` that change its sizes"
        raise AlchemyError(f"{text}; {len(other) - 1} others differ too" if other[1:] else text, hint=hint)
    if missing:
        logger.warning("{} has no weights for {}: they are initialized at random", folder, ", ".join(missing))
    return model


def _max_positions(config: Any, model: nn.Module) -> int | None:
    places = getattr(config, "max_position_embeddings", None)
    if places is None or places < 0:  # XLNet uses relative positions, without a maximum
        return None
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    # RoBERTa and similar models reserve the positions up to the padding index
    kept = [table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None]
    return int(places) - max(kept, default=0)
