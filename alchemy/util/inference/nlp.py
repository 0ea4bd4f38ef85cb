"""Run a trained model on inputs through the pipes of its config."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from alchemy.config.load import prepare_cfg
from alchemy.config.tree import Document
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.launch.device import alloc1
from alchemy.launch.project_imports import add_to_path
from alchemy.loop import infer
from alchemy.registry import plain
from alchemy.runner import InferenceRunner, prepare

SPLITS = ("inference", "test", "dev")
SOURCE = "alchemy.pipeline.lst.SequenceWrapper"
# pipes that do not apply to a few inputs whose order must not change
SKIPPED = ("ItrToLst", "Shuffle", "SplitByWorker", "WithLength", "Sharding")
# output pipes that store what `pipe` returns
KEEPERS = ("alchemy.pipeline.output.Collect", "alchemy.pipeline.output.SaveAppend")
# loader arguments that only matter for large datasets
LOADER = (
    "num_workers",
    "persistent_workers",
    "prefetch_factor",
    "timeout",
    "multiprocessing_context",
    "shuffle",
    "drop_last",
)


class AlchemyNLP:
    """A model loaded from the checkpoint folder `checkpt`, with the config of its record unless `cfg` is given.

    >>> with AlchemyNLP("records/x/checkpt/best", {"device": "cpu"}) as nlp:  # doctest: +SKIP
    ...     nlp.pipe([{"id": "0", "tokens": ["Anna", "left"]}])

    An input has the format that the first pipe after the file openers expects. The inputs pass through the pipes of
    the `inference` split, or else of `test` or `dev`, except for the source, openers and shuffling. Each batch has
    `bsz` inputs. No files are written.
    """

    def __init__(
        self,
        checkpt: str | Path,
        device_info: dict[str, Any] | None = None,
        bsz: int = 1,
        cfg: Mapping[str, Any] | str | Path | None = None,
        *,
        user_dir: str = "src",
    ) -> None:
        checkpt = Path(checkpt)
        source = _config_of(checkpt) if cfg is None else plain(cfg) if isinstance(cfg, Mapping) else cfg
        document = prepare_cfg(source, user_dir=user_dir, record=cfg is None)
        add_to_path(user_dir)
        self.table = _inference_table(document, bsz)
        document = _for_inference(document, checkpt)
        self._run = Run(document, device_info or alloc1())
        # the run is current only inside this context, so that it does not replace the caller's run
        self._context: contextvars.Context | None = contextvars.copy_context()
        self._inside(self._open, document)

    def pipe(self, data: Iterable[Any]) -> list[Any]:
        """Return one output per input, in order."""
        data = list(data)
        if self._context is None:
            raise AlchemyError("this AlchemyNLP is closed", hint="create a new one")
        return list(self._context.run(self._predict, data)) if data else []

    def close(self) -> None:
        """Free the model."""
        if self._context is not None:
            self._context.run(self._run.__exit__, None, None, None)
            self._context = None

    def __enter__(self) -> AlchemyNLP:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _inside(self, work: Callable[..., None], *args: object) -> None:
        assert self._context is not None
        self._context.run(self._run.__enter__)
        try:
            self._context.run(work, *args)
        except BaseException:
            self.close()
            raise

    def _open(self, document: Document) -> None:
        InferenceRunner(document, self._run.device_info, no_file=True)
        self._run.console = Console(quiet=True)
        prepare(self._run)

    def _predict(self, data: list[Any]) -> list[Any]:
        first, *others = self.table["pipes"]
        pipes = [{**first, "datapipe": data}, *others]
        self._run.task.load_dataset(split="inference", **{**self.table, "pipes": pipes})
        outputs: list[Any] = []
        for _, output in infer(self._run):
            outputs.extend(output if isinstance(output, list | tuple) else [output])
        if len(outputs) != len(data):
            raise AlchemyError(
                f"got {len(outputs)} outputs for {len(data)} inputs",
                section="task.outputpipes",
                hint="the last output pipe must return one item per sample, and no data pipe may drop samples",
            )
        return outputs


def _config_of(checkpt: Path) -> Path:
    for folder in (checkpt, *checkpt.resolve().parents):
        if (folder / "cfg.toml").is_file():
            return folder / "cfg.toml"
    raise AlchemyError(
        f"{checkpt} is not in a record: no cfg.toml in its parent folders", hint="pass the config as cfg="
    )


def _inference_table(document: Document, bsz: int) -> dict[str, Any]:
    """Return the loader table of the inference split as plain data; its source is filled in on each call."""
    datasets = plain(document.get("task", {})).get("datasets", {})
    split = next((name for name in SPLITS if name in datasets), None)
    if split is None or not datasets[split].get("pipes"):
        raise AlchemyError(
            f"the config has no pipes for {split or ' or '.join(SPLITS)}",
            section=f"task.datasets.{split or SPLITS[0]}",
            hint="add [task.datasets.inference] with the pipes that convert an input to a sample",
        )
    table = {key: value for key, value in datasets[split].items() if key not in LOADER}
    pipes = [{"type": SOURCE}]
    for pipe in table["pipes"][1:]:
        name = pipe["type"].rpartition(".")[2]
        if name in ("Batch", "BucketBatch"):
            pipe = {"type": "alchemy.pipeline.itr.Batch", "batch_size": bsz}
        if name not in SKIPPED and not name.lower().endswith("opener"):
            pipes.append(pipe)
    if table.get("batch_size") is not None:
        table["batch_size"] = bsz
    return {**table, "pipes": pipes}


def _for_inference(document: Document, checkpt: Path) -> Document:
    """Set the checkpoint and remove everything needed only for training and for files."""
    for section in ("sched", "optim"):
        document.pop(section, None)
    document["model"]["model_path"] = str(checkpt)
    task = document["task"]
    task["datasets"], task["evalpipes"] = {}, []
    task["outputpipes"] = [pipe for pipe in task.get("outputpipes", []) if pipe["type"] not in KEEPERS]
    # console, record and seeds belong to the calling program; plugins of the project may be needed
    document["plugins"] = [row for row in document.get("plugins", []) if not row["type"].startswith("alchemy.")]
    return document
