"""Encoders with weights that others have trained: folders of the transformers library."""

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
    """Any model of a local folder: bert, albert, xlnet, roberta, distilbert, electra..

    `kind` names the architecture where `config.json` does not say it, as in folders of 2019. `weights = false` takes
    the architecture alone and begins with random numbers; `options` are set in its configuration, such as
    `{ hidden_dropout_prob = 0.2 }`. A few architectures, as convbert, let padding into their vectors; a warning tells.
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
        transformers.utils.logging.disable_progress_bar()  # for a second of reading, on a screen that has a bar of ours
        config = _configuration(transformers, Path(path).expanduser(), kind, options)
        if tokenizer is not None and tokenizer.size > config.vocab_size:
            hint = "take the tokenizer of the same folder"
            raise AlchemyError(
                f"the tokenizer has {tokenizer.size} ids, and {path} knows {config.vocab_size}", hint=hint
            )
        if tokenizer is not None and 2 * tokenizer.size < config.vocab_size:
            text = "the tokenizer has {} ids, and {} knows {}: is it that of another model?"
            logger.warning(text, tokenizer.size, path, config.vocab_size)
        _keep(config, path)
        self.kind: str = config.model_type
        self.inner = _model(transformers, Path(path).expanduser(), config, weights)
        self.width = config.hidden_size
        self.longest = _longest(config, self.inner)
        self.reads_on = self._ends_with_all()
        if self._sees_padding():
            text = "{} ({}) gives other vectors where texts are padded: an answer depends on the other texts of a batch"
            logger.warning(text, path, self.kind)
        takes = inspect.signature(self.inner.forward).parameters
        # the RoBERTa family has a table of one segment, others have none
        self.segments = "token_type_ids" in takes and (
            getattr(config, "type_vocab_size", 1) > 1 or self.kind == "xlnet"
        )

    def _ends_with_all(self) -> bool:
        """Whether the last token says more than the first: XLNet's [CLS] stands there, and GPT never looks ahead."""
        if self.kind == "xlnet":
            return True
        first_BD = self._tried([[1, 2], [1, 3]])[:, 0]
        return torch.equal(first_BD[0], first_BD[1])

    def _sees_padding(self) -> bool:
        """Whether padding changes the vectors of a text, whatever the mask says: ConvBERT and others mix it in."""
        alone_BTD, padded_BTD = self._tried([[2, 3]]), self._tried([[2, 3, 0, 0]])
        return not torch.allclose(alone_BTD, padded_BTD[:, :2], rtol=1e-4, atol=1e-4)

    @torch.no_grad()
    def _tried(self, ids: list[list[int]]) -> Tensor:
        """The vectors of short rows; what stands behind the second token is padding."""
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
        return States(made.last_hidden_state, rows.real_BT, self._pooled(made, rows))

    def _pooled(self, made: Any, rows: Rows) -> Tensor:
        pooled: Tensor | None = getattr(made, "pooler_output", None)
        if pooled is not None:
            return pooled
        states: Tensor = made.last_hidden_state
        return at(states, rows.lengths_B - 1) if self.reads_on else states[:, 0]

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes a folder that `AutoModel.from_pretrained` reads."""
        self.inner.save_pretrained(folder)


def _keep(config: Any, path: str) -> None:
    """Puts the architecture into the record of the current run: with it and a checkpoint the folder is not needed."""
    record = sym_tbl().record_dir
    if record is not None:
        folder = encoder_folder(record, path)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "config.json", config.to_json_string())


def _configuration(transformers: Any, folder: Path, kind: str, options: dict[str, Any]) -> Any:
    file = folder / "config.json"
    if not file.is_file():
        raise AlchemyError(
            f"there is no {str(file)!r}", hint="give a folder on this machine: nothing is downloaded from a hub"
        )
    try:
        told = read_table(file)
    except (OSError, ValueError) as error:
        raise AlchemyError(f"it is no JSON: {error}", where=str(file)) from error
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    named = told.get("model_type", "")
    if kind in known and named not in ("", kind):
        hint = f"take out kind = {kind!r}, which is for folders that do not name it, or give another folder"
        raise AlchemyError(f"the folder has a {named!r}, and kind = {kind!r}", where=str(file), hint=hint)
    kind = kind or named
    if kind not in known:
        what = f"the architecture {kind!r} is not known" if kind else "it does not say what architecture it is"
        hint = did_you_mean(kind, list(known)) or 'name it: kind = "bert"'
        raise AlchemyError(what, where=str(file), hint=hint)
    config = known[kind].from_pretrained(str(folder))
    odd = [name for name in options if not hasattr(config, name)]
    if odd:
        hint = did_you_mean(odd[0], list(config.to_dict()))
        raise AlchemyError(f"the configuration of {kind} has no {odd[0]!r}", hint=hint)
    config.update(options)
    if "/" in str(config._attn_implementation):  # code that the library would download and run
        text = f"attn_implementation {config._attn_implementation!r} would download code"
        raise AlchemyError(text, where=str(file), hint="remove it")
    return config


def _model(transformers: Any, folder: Path, config: Any, weights: bool) -> Any:
    if not weights:
        return transformers.AutoModel.from_config(config, trust_remote_code=False)
    try:
        model, info = transformers.AutoModel.from_pretrained(
            str(folder),
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told below
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        hint = "it needs model.safetensors or pytorch_model.bin; weights = false begins with random numbers"
        raise AlchemyError(f"the weights of {str(folder)!r} cannot be read: {error}", hint=hint) from error
    missing = sorted(info["missing_keys"])
    if 2 * len(missing) > len(model.state_dict()):
        hint = f"are they of another model than {config.model_type!r}? weights = false begins with random numbers"
        raise AlchemyError(f"{str(folder)!r} has no weights for {missing[0]} and {len(missing) - 1} others", hint=hint)
    if other := sorted(info["mismatched_keys"]):
        name, theirs, ours = other[0]
        text = f"{name} has the shape {list(theirs)} in the weights of {str(folder)!r}, and {list(ours)} by config.json"
        hint = "take config.json and weights of the same model, and no `options` that change its sizes"
        raise AlchemyError(f"{text}; so have {len(other) - 1} others" if other[1:] else text, hint=hint)
    if missing:
        logger.warning("{} has no weights for {}: they begin with random numbers", folder, ", ".join(missing))
    return model


def _longest(config: Any, model: nn.Module) -> int | None:
    places = getattr(config, "max_position_embeddings", None)
    if places is None or places < 0:  # XLNet counts from one token to another, and has no last place
        return None
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    # RoBERTa and its like keep the places up to that of padding free
    kept = [table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None]
    return int(places) - max(kept, default=0)
