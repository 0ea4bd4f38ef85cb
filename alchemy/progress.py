"""Progress bar: a live line in a terminal or notebook, a plain line every few seconds elsewhere."""

from __future__ import annotations

import html
import os
import sys
import time
import uuid
from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

REFRESH_SECONDS = 0.25
PLAIN_SECONDS = 10.0
BAR = (8, 24)  # minimum and maximum width of the bar in columns
NOTEBOOK_COLUMNS = 100
GAP = "  "


class Terminal(Console):
    """The console of a run. It stops printing when its reader exits, as with `| head`.

    In a notebook, it prints plain text to a single cell output; the progress bar has a separate output.
    """

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        in_notebook = Console().is_jupyter
        # a notebook kernel reports a terminal, but its output cannot be overwritten
        super().__init__(stderr=stderr, quiet=quiet, force_jupyter=False, force_terminal=False if in_notebook else None)
        self.cell = NotebookOutput() if in_notebook and not quiet else None

    def on_broken_pipe(self) -> None:
        # rich would exit here, ending the training run
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def close(self) -> None:
        """Remove the bar from a notebook; in a terminal every bar removes itself."""
        if self.cell is not None:
            self.cell.clear()


class NotebookOutput:
    """An output of a notebook cell, updated in place and shared by all bars of a run; needs no widgets."""

    def __init__(self) -> None:
        self._id = ""  # display ID; empty until something is shown

    def show(self, line: str) -> None:
        page = f'<pre style="margin: 0; white-space: pre">{html.escape(line)}</pre>' if line else ""
        self.put({"text/plain": line, "text/html": page})

    def put(self, content: Mapping[str, str], metadata: Mapping[str, Any] | None = None) -> None:
        """Show content by MIME type; binary content is encoded with base64."""
        from IPython.display import display, update_display

        if self._id:
            update_display(content, display_id=self._id, raw=True, metadata=metadata)
        else:
            self._id = uuid.uuid4().hex
            display(content, display_id=self._id, raw=True, metadata=metadata)

    def clear(self) -> None:
        if self._id:
            self.show("")


class Bar(Progress):
    """A rich `Progress` that the loop refreshes itself, at most four times per second.

    It is a `Progress` because older projects call `add_task`, `console.print` and `track` on the global `pbar`.
    The loop's line is a single `Text`, because rich columns take milliseconds per frame.
    """

    def __init__(self, what: str, total: int | None, console: Console, done: int = 0) -> None:
        self.what, self.total, self.done, self.before = what, total, done, done  # before: steps before resuming
        self.values: dict[str, float] = {}
        self.text = ""
        self.first = self._shown = time.monotonic()
        self._screen, self._cell = console, console.cell if isinstance(console, Terminal) else None
        is_live = console.is_terminal or self._cell is not None
        self._period = REFRESH_SECONDS if is_live else PLAIN_SECONDS
        self.is_plain = not is_live
        super().__init__(console=console, auto_refresh=False, transient=True, disable=not console.is_terminal)

    def step(self, text: str = "") -> None:
        """Count a batch; refresh the line only if the refresh interval has passed."""
        self.done += 1
        self.text = text
        now = time.monotonic()
        if now - self._shown >= self._period:
            self._shown = now
            self.show()

    def update_values(self, values: Mapping[str, float], update: int) -> None:
        """Show the latest values of the metrics that the loop logs."""
        self.values.update({SHOWN[name]: value for name, value in values.items() if name in SHOWN}, update=update)
        if "tokens/s" in self.values:  # show only one rate
            self.values.pop("targets/s", None)

    def show(self) -> None:
        if self.is_plain:
            self.console.print(self.line(), markup=False, highlight=False, soft_wrap=True)
        elif self._cell is not None:
            self._cell.show(self.fit(NOTEBOOK_COLUMNS))
        else:
            self.refresh()

    def finish(self) -> None:
        """Print the final line if the output is a file."""
        if self.is_plain and time.monotonic() - self.first >= PLAIN_SECONDS:
            self.show()

    def line(self) -> str:
        """Return the text: `epoch 1/3  120/500  loss 0.412  lr 1.00e-03  103.2 it/s  eta 0:03`."""
        return GAP.join(self._fields().values())

    def fit(self, columns: int) -> str:
        """Return the bar and the line in at most `columns` columns, dropping the least important fields first."""
        fields, kept, room = self._fields(), set[str](), columns
        bar = self._fraction()
        for name in sorted([*fields, *(["bar"] if bar is not None else [])], key=_importance):
            size = BAR[0] if name == "bar" else cell_len(fields[name])
            if name == "text":  # set by the project; may have any length
                size = min(size, max(room - len(GAP), 0))
                fields[name] = set_cell_size(fields[name], size)
            size += len(GAP) * bool(kept)
            if not size or size > room:
                break
            room -= size
            kept.add(name)
        parts = [text for name, text in fields.items() if name in kept]
        if bar is not None and "bar" in kept:
            parts.insert(0, draw_bar(bar, min(BAR[0] + room, BAR[1])))
        return GAP.join(parts)

    def _fields(self) -> dict[str, str]:
        """Return the fields of the line by name, in display order."""
        rate = (self.done - self.before) / max(time.monotonic() - self.first, 1e-9)
        fields = {"what": self.what, "count": f"{self.done}/{self.total}" if self.total else str(self.done)}
        fields |= {name: f"{name} {_format_value(name, value)}" for name, value in self.values.items()}
        if self.text:
            fields["text"] = " ".join(self.text.split())
        fields["rate"] = f"{1 / rate:.1f} s/it" if 0 < rate < 1 else f"{rate:.1f} it/s"
        if self.total and rate:
            fields["eta"] = f"eta {format_clock(max(self.total - self.done, 0) / rate)}"
        return fields

    def _fraction(self) -> float | None:
        """Return the completed fraction; None if the total is unknown."""
        return min(self.done / self.total, 1) if self.total else None

    def get_renderables(self) -> Any:
        yield Text(self.fit(self._screen.width), no_wrap=True, overflow="ellipsis")
        if self.tasks:  # tasks added by a project use rich's default columns
            yield self.make_tasks_table(self.tasks)


SHOWN = {"train/loss": "loss", "train/lr": "lr", "time/targets_per_s": "targets/s", "time/tokens_per_s": "tokens/s"}
FORMATS = {"lr": "{:.2e}", "update": "{:.0f}", "targets/s": "{:,.0f}", "tokens/s": "{:,.0f}"}
# fields by importance; the last ones are dropped first
IMPORTANCE = ("what", "count", "eta", "rate", "loss", "text", "bar", "lr", "update", "tokens/s", "targets/s")


def _importance(name: str) -> int:
    return IMPORTANCE.index(name)


def draw_bar(share: float, columns: int) -> str:
    """Draw a bar of the given width.

    >>> draw_bar(0.5, 8)
    '━━━━╌╌╌╌'
    """
    filled = round(columns * share)
    return "━" * filled + "╌" * (columns - filled)


def _format_value(name: str, value: float) -> str:
    """Format a metric with a suitable number of digits.

    >>> _format_value("targets/s", 1234.5), _format_value("targets/s", 0.31), _format_value("loss", 0.123456)
    ('1,234', '0.31', '0.1235')
    """
    if name.endswith("/s") and value < 10:
        return f"{value:.2g}"
    return FORMATS.get(name, "{:.4g}").format(value)


def format_clock(seconds: float) -> str:
    """
    >>> format_clock(59.5), format_clock(3661)
    ('0:59', '1:01:01')
    """
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
