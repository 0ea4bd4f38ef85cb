"""Write metrics, media and the config as TensorBoard event files to the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from loguru import logger

from alchemy.config.secrets import mask_secrets
from alchemy.metrics.scalars import numbers_in
from alchemy.optional_packages import import_package
from alchemy.pipeline.plots import draw_attention, draw_confusion
from alchemy.plugins.base import AlchemyPlugin
from alchemy.plugins.tensorboard_graph import GraphWriter
from alchemy.records.media_entry import PICTURES, MediaEntry

MAX_CLASSES = 200  # of a confusion matrix that is drawn
MAX_ROWS = 100  # of a table in Markdown


class _NullWriter:
    """Null object for a SummaryWriter, used when there is no record."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


@AlchemyPlugin.register()
class TensorboardLogger(AlchemyPlugin):
    """Plugin that writes metrics, media and, at the end, the config to TensorBoard.

    Its SummaryWriter is a global symbol that other parts can use. `hparams` adds the values of the config and the last
    scores to the HParams tab. `graph` traces the model for the Graphs tab; a model that cannot be traced is a warning.
    """

    packages = ("tensorboard",)

    def __init__(self, *, varname: str = "summary_writer", hparams: bool = True, graph: bool = False) -> None:
        super().__init__()
        self.hparams = hparams
        self.writer: Any = _open_writer(self.run.record_dir) if self.run.record_dir is not None else _NullWriter()
        self._graph = GraphWriter(self.run, self.writer) if graph and self.run.record_dir is not None else None
        self._is_resumed = False  # whether the events of earlier generations are superseded
        self.run.symbols.set_global(varname, self.writer)

    def log(self, values: Mapping[str, float], update: int) -> None:
        self._supersede()
        for name, value in values.items():
            self.writer.add_scalar(name, value, update)
        if self._graph is not None:
            self._graph.write()

    def log_media(self, entry: MediaEntry) -> None:
        if self.run.record_dir is not None:
            self._supersede()
            _WRITE[entry.kind](self.writer, entry)

    def _supersede(self) -> None:
        """In a resumed run, make TensorBoard forget what earlier generations wrote after the state was saved."""
        last = self.run.record.resumed_from
        if last is None or self._is_resumed:
            return
        self._is_resumed = True
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self.writer.file_writer.add_event(Event(session_log=SessionLog(status=SessionLog.START)), last + 1)
        _restore_projector(self.writer, Path(self.writer.log_dir) / "projector_config.pbtxt", last)

    def exit(self) -> None:
        self.run.media.flush()
        try:
            if self.hparams and self.run.train_sched is not None and self.run.record_dir is not None:
                self._write_hparams()
            self.writer.close()
        except OSError as error:  # a full disk must not make the run fail
            logger.warning("the TensorBoard event files are incomplete: {}", error)

    def _write_hparams(self) -> None:
        from torch.utils.tensorboard.summary import hparams

        values = dict(_leaves(mask_secrets(self.run.cfg).plain()))
        scores = {
            f"{split}/{name}": value
            for split, found in self.run.progress.scores.items()
            for name, value in numbers_in(found).items()
        }
        for summary in hparams(values, dict.fromkeys(scores, 0)):
            self.writer.file_writer.add_summary(summary)


def _open_writer(folder: Path) -> Any:
    import_package("tensorboard", "TensorboardLogger")  # torch's own error does not explain how to install it
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))


def _restore_projector(writer: Any, path: Path, last: int) -> None:
    """Keep the embeddings of earlier generations up to an update; torch's writer would begin a new list."""
    if not path.is_file():
        return
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    text_format = import_package("google.protobuf.text_format", "TensorboardLogger")
    config = text_format.Parse(path.read_text("utf-8"), ProjectorConfig())
    kept = [one for one in config.embeddings if int(one.tensor_path.partition("/")[0]) <= last]
    writer._projector_config = ProjectorConfig(embeddings=kept)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, bool | float | str]]:
    """Yield the values of a config under their dotted names."""
    if isinstance(value, bool | int | float | str):
        yield name, value
    elif isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from _leaves(item, f"{name}.{key}" if name else str(key))


def _write_picture(writer: Any, entry: MediaEntry) -> None:
    _write_png(writer, entry, entry.data)


def _write_png(writer: Any, entry: MediaEntry, data: bytes) -> None:
    """Write a PNG file as it is, without decoding it."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=data)
    summary = Summary(value=[Summary.Value(tag=entry.name, image=image)])
    writer.file_writer.add_summary(summary, entry.moment.update)


def _write_histogram(writer: Any, entry: MediaEntry) -> None:
    info = entry.info
    if "counts" not in info:
        return  # no value is finite
    number = sum(info["counts"])
    writer.add_histogram_raw(
        entry.name,
        min=info["min"],
        max=info["max"],
        num=number,
        sum=info["mean"] * number,
        sum_squares=(info["std"] ** 2 + info["mean"] ** 2) * number,
        bucket_limits=info["edges"][1:],
        bucket_counts=info["counts"],
        global_step=entry.moment.update,
    )


def _write_text(writer: Any, entry: MediaEntry) -> None:
    writer.add_text(entry.name, entry.data.decode(), entry.moment.update)


def _write_table(writer: Any, entry: MediaEntry) -> None:
    table = json.loads(entry.data)
    lines = [table["columns"], ["---"] * len(table["columns"]), *table["rows"][:MAX_ROWS]]
    text = "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)
    writer.add_text(entry.name, text, entry.moment.update)


def _markdown_cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _write_attention(writer: Any, entry: MediaEntry) -> None:
    found = json.loads(entry.data)
    data = draw_attention(np.mean(found["weights"], axis=0), found["rows"], found["columns"])
    _write_png(writer, entry, data)


def _write_confusion(writer: Any, entry: MediaEntry) -> None:
    found = json.loads(entry.data)
    labels = found["labels"]
    if len(labels) > MAX_CLASSES:
        return  # cells would be smaller than a pixel; media/ has the counts
    counts = np.zeros((len(labels), len(labels)), np.int64)
    for gold, predicted, count in found["cells"]:
        counts[gold, predicted] = count
    _write_png(writer, entry, draw_confusion(labels, counts, "labels"))


def _write_embedding(writer: Any, entry: MediaEntry) -> None:
    found = np.load(BytesIO(entry.data))
    labels = found["labels"].tolist() or None
    writer.add_embedding(found["vectors"], metadata=labels, global_step=entry.moment.update, tag=entry.name)


_WRITE: dict[str, Callable[[Any, MediaEntry], None]] = {
    **dict.fromkeys(PICTURES, _write_picture),
    "histogram": _write_histogram,
    "text": _write_text,
    "table": _write_table,
    "attention": _write_attention,
    "confusion": _write_confusion,
    "embedding": _write_embedding,
}
