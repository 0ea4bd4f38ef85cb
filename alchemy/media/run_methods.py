"""The `log_image`, `log_histogram`, .. methods of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any, SupportsIndex

from alchemy.media.media_log import MediaLog
from alchemy.records.media_entry import Moment


class LogsMedia:
    """Methods that log media to the record and to plugins, under a name such as `dev/hardest`.

    They copy the values and return; a thread encodes and writes them. Values that cannot be logged, a full disk and a
    missing package are warnings. In distributed training, only the first process logs. `update` defaults to the
    current update; what is logged again for the same update and name replaces the earlier entry.
    """

    def __init__(self, **members: Any) -> None:
        super().__init__(**members)
        self.media = MediaLog()

    def media_moment(self, update: int | None) -> Moment:
        """Return the current moment of the run, for an entry of `update` or of the current update."""
        raise NotImplementedError

    def log_image(self, name: str, image: Any, *, caption: str = "", update: int | None = None) -> None:
        """Log an image: a tensor [H, W] or [C, H, W], an array [H, W] or [H, W, C], a PIL image, or a PNG file.

        Floats range from 0 to 1; an image with other values is scaled to its range.
        """
        self._log_media("image", name, update, image, caption)

    def log_images(
        self, name: str, images: Any, *, captions: Iterable[str] = (), columns: int = 0, update: int | None = None
    ) -> None:
        """Log a grid of images, from a list or from a batch [N, C, H, W], in rows of `columns` (0: as many as fit)."""
        self._log_media("images", name, update, images, captions, columns)

    def log_figure(self, name: str, figure: Any, *, update: int | None = None) -> None:
        """Log a matplotlib figure. It is drawn before the call returns, which takes some 50 ms."""
        self._log_media("figure", name, update, figure)

    def log_histogram(self, name: str, values: Any, *, update: int | None = None) -> None:
        """Log the distribution of the values of a tensor or an array."""
        self._log_media("histogram", name, update, values)

    def log_text(self, name: str, text: str, *, update: int | None = None) -> None:
        """Log a text; only the first 2**20 characters are kept."""
        self._log_media("text", name, update, text)

    def log_table(
        self, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, update: int | None = None
    ) -> None:
        """Log a table with named columns; only the first 1000 rows are kept."""
        self._log_media("table", name, update, columns, rows)

    def log_attention(
        self,
        name: str,
        weights: Any,
        rows: Iterable[str],
        columns: Iterable[str],
        *,
        example: str = "",
        update: int | None = None,
    ) -> None:
        """Log attention weights [heads, queries, keys] with their query and key tokens."""
        self._log_media("attention", name, update, weights, rows, columns, example)

    def log_confusion(self, name: str, labels: Iterable[str], counts: Any, *, update: int | None = None) -> None:
        """Log a confusion matrix, with gold labels in rows and predictions in columns."""
        self._log_media("confusion", name, update, labels, counts)

    def log_embedding(self, name: str, vectors: Any, labels: Iterable[str] = (), *, update: int | None = None) -> None:
        """Log vectors [N, D], with a label each, for TensorBoard's projector; only the first 10,000 are kept."""
        self._log_media("embedding", name, update, vectors, labels)

    def _log_media(self, kind: str, name: str, update: int | None, *values: Any) -> None:
        if not self.media.is_open:
            return
        from alchemy.media.prepare import PREPARE  # imports NumPy

        try:
            if not isinstance(name, str) or not name.strip():
                raise ValueError("its name must be a text that is not empty")
            moment = self.media_moment(None if update is None else _check_update(update))
            prepared = PREPARE[kind](*values)
        except Exception as error:  # wrong types or shapes must not stop a run
            self.media.reject(kind, name if isinstance(name, str) else type(name).__name__, error)
            return
        self.media.log(kind, name, moment, prepared.encode, prepared.size)


def _check_update(update: object) -> int:
    """Return an integer, also of NumPy or of a tensor; raise an error for any other value."""
    if isinstance(update, bool) or not isinstance(update, SupportsIndex) or not 0 <= (number := index(update)) < 2**63:
        raise ValueError(f"update must be a non-negative integer, got {update!r}")
    return number
