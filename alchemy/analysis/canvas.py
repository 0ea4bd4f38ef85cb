"""A canvas that shows the plots, images and histograms of a training loop, and updates them in place."""

from __future__ import annotations

import base64
import contextlib
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rich.console import Console

from alchemy.analysis.canvas_text import draw_frame
from alchemy.analysis.drawings import Drawing, build_curves, build_histograms, build_images, build_summary
from alchemy.analysis.history import History, Series
from alchemy.analysis.screen import measure_screen, paint
from alchemy.errors import AlchemyError, printable
from alchemy.files import write_atomic
from alchemy.progress import NotebookOutput


class Canvas:
    """Draws plots, images and histograms, in place: in a notebook as a picture, in a terminal as text.

    The drawings of a `with` block are one frame. Outside of a block, each drawing is a frame of its own.

        history, canvas = History(), Canvas()
        for step in range(1000):
            ...
            history.log(step, loss=loss, accuracy=accuracy, image=image)
            with canvas:
                canvas.draw_summary(history)
                canvas.draw_plot([history["loss"], history["accuracy"]])
                canvas.draw_image(history["image"])

    In a terminal, a frame replaces everything on the screen. If the output is a pipe or a file, only the last frame is
    printed, when the canvas is deleted or the program ends.
    """

    def __init__(self) -> None:
        self._drawings: list[Drawing] = []
        self._frame: list[Drawing] = []  # the last one shown
        self._is_open = False
        self._output = self._choose_output()

    def _choose_output(self) -> _Output:
        if Console().is_jupyter:
            return _Notebook()
        if measure_screen().live:
            return _Terminal()
        output = _Pipe()
        weakref.finalize(self, output.finish)
        return output

    def __enter__(self) -> Canvas:
        self._drawings, self._is_open = [], True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if error is None:
            self.render()

    def draw_summary(self, history: History, title: str = "") -> None:
        """Draw a title, and the step, the time and the values that were logged last."""
        self._add(build_summary(history, title))

    def draw_plot(
        self, metrics: Series | Sequence[Series], labels: Sequence[str] | None = None, ylabel: str = ""
    ) -> None:
        """Draw curves in one plot, for example `[history["train loss"], history["dev loss"]]`."""
        self._add(build_curves([metrics] if isinstance(metrics, Series) else metrics, labels, ylabel))

    def draw_image(self, image: object, limit: int = 5, title: str = "") -> None:
        """Draw an image, or the last `limit` images of a series or of a batch.

        An image is an array or a tensor: [H, W], [H, W, C] or [C, H, W].
        """
        self._add(build_images(image, limit, title))

    def draw_hist(self, values: object, title: str = "") -> None:
        """Draw the histogram of an array or a tensor, of the numbers of a series, or of its last arrays."""
        self._add(build_histograms(values, title))

    def _add(self, drawing: Drawing) -> None:
        self._drawings.append(drawing)
        if not self._is_open:
            self.render()

    def render(self) -> None:
        """Show the drawings so far as a frame; a `with` block does this at its end."""
        self._frame, self._drawings = self._drawings, []
        if self._frame:
            self._output.show(self._frame)

    def save(self, file: str | Path) -> None:
        """Write the last frame as a PNG file."""
        from alchemy.analysis.canvas_figure import draw_figure

        if not self._frame:
            raise AlchemyError("the canvas is empty", hint="draw something first")
        try:
            write_atomic(file, draw_figure(self._frame))
        except OSError as error:
            raise AlchemyError(f"cannot write {file}: {error.strerror or error}") from error


class _Output(Protocol):
    """Where frames are shown."""

    def show(self, frame: Sequence[Drawing]) -> None: ...


class _Notebook:
    def __init__(self) -> None:
        self._cell, self._output = 0, NotebookOutput()

    def show(self, frame: Sequence[Drawing]) -> None:
        from IPython import get_ipython

        from alchemy.analysis.canvas_figure import SCREEN_WIDTH, draw_figure

        count = get_ipython().execution_count
        if count != self._cell:  # the output of a cell that is executed again is gone
            self._cell, self._output = count, NotebookOutput()
        titles = printable(", ".join(drawing.title for drawing in frame))
        content = {"image/png": base64.b64encode(draw_figure(frame)).decode("ascii"), "text/plain": titles}
        self._output.put(content, {"image/png": {"width": SCREEN_WIDTH}})


class _Terminal:
    def __init__(self) -> None:
        self._is_used = False

    def show(self, frame: Sequence[Drawing]) -> None:
        screen = measure_screen()
        # the first frame scrolls, so that it covers nothing
        begin = "" if self._is_used else "\n" * screen.rows
        self._is_used = True
        sys.stdout.write(begin + paint(draw_frame(frame, screen)))
        sys.stdout.flush()


class _Pipe:
    """Keeps the last frame, and prints it at the end: a log with a frame per step would be unreadable."""

    def __init__(self) -> None:
        self._frame: Sequence[Drawing] = ()

    def show(self, frame: Sequence[Drawing]) -> None:
        self._frame = frame

    def finish(self) -> None:
        if self._frame:
            with contextlib.suppress(BrokenPipeError):  # nobody reads it anymore
                print("\n".join(draw_frame(self._frame, measure_screen())), flush=True)  # noqa: T201
