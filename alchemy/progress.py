"""The progress bar: one live line on a terminal or in a notebook, one plain line every few seconds elsewhere."""

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
BAR = (8, 24)  # columns of the bar, at least and at most
NOTEBOOK_COLUMNS = 100
GAP = "  "


class Terminal(Console):
    """The console of a run. It falls silent when the reader is gone, as `| head` is after a few lines.

    In a notebook it prints plain text, which stays one output of the cell; the bar has an output of its own.
    """

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        in_notebook = Console().is_jupyter
        # a kernel says that its output is a terminal, but it has one line after the other
        super().__init__(stderr=stderr, quiet=quiet, force_jupyter=False, force_terminal=False if in_notebook else None)
        self.cell = NotebookOutput() if in_notebook and not quiet else None

    def on_broken_pipe(self) -> None:
        # rich would end the program here, and with it a training of hours
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def close(self) -> None:
        """Removes the bar from a notebook; on a terminal every bar removes itself."""
        if self.cell is not None:
            self.cell.clear()


class NotebookOutput:
    """One output of a notebook cell that is updated in place, for all bars of a run; needs no widgets."""

    def __init__(self) -> None:
        self._id = ""  # of the output; empty until something is shown

    def show(self, line: str) -> None:
        from IPython.display import display, update_display

        page = f'<pre style="margin: 0; white-space: pre">{html.escape(line)}</pre>' if line else ""
        content = {"text/plain": line, "text/html": page}
        if self._id:
            update_display(content, display_id=self._id, raw=True)
        else:
            self._id = uuid.uuid4().hex
            display(content, display_id=self._id, raw=True)

    def clear(self) -> None:
        if self._id:
            self.show("")


class Bar(Progress):
    """A rich `Progress` that is drawn by the loop itself, at most four times a second.

    Being a `Progress`, it is what old projects expect to find as the global `pbar`: `add_task`, `console.print` and
    `track` work on it. The line of the loop is one `Text`, because columns cost milliseconds a frame.
    """

    def __init__(self, what: str, total: int | None, console: Console, done: int = 0) -> None:
        self.what, self.total, self.done, self.before = what, total, done, done  # before: by a run that was resumed
        self.values: dict[str, float] = {}
        self.text = ""
        self.first = self._shown = time.monotonic()
        self._screen, self._cell = console, console.cell if isinstance(console, Terminal) else None
        is_live = console.is_terminal or self._cell is not None
        self._period = REFRESH_SECONDS if is_live else PLAIN_SECONDS
        self.is_plain = not is_live
        super().__init__(console=console, auto_refresh=False, transient=True, disable=not console.is_terminal)

    def step(self, text: str = "") -> None:
        """Counts a batch; draws only when it is time."""
        self.done += 1
        self.text = text
        now = time.monotonic()
        if now - self._shown >= self._period:
            self._shown = now
            self.show()

    def take(self, values: Mapping[str, float], update: int) -> None:
        """Takes the numbers that the loop logs: the newest stand in the line."""
        self.values.update({SHOWN[name]: value for name, value in values.items() if name in SHOWN}, update=update)
        if "tokens/s" in self.values:  # the model counts them, so the line needs no second rate
            self.values.pop("targets/s", None)

    def show(self) -> None:
        if self.is_plain:
            self.console.print(self.line(), markup=False, highlight=False, soft_wrap=True)
        elif self._cell is not None:
            self._cell.show(self.fit(NOTEBOOK_COLUMNS))
        else:
            self.refresh()

    def finish(self) -> None:
        """The last line, for those who read a file: all of it is done."""
        if self.is_plain and time.monotonic() - self.first >= PLAIN_SECONDS:
            self.show()

    def line(self) -> str:
        """`epoch 1/3  120/500  loss 0.412  lr 1.00e-03  103.2 it/s  eta 0:03`."""
        return GAP.join(self._fields().values())

    def fit(self, columns: int) -> str:
        """The line in at most `columns`, with a bar in front: the least important fields are left out first."""
        fields, kept, room = self._fields(), set[str](), columns
        bar = self._share()
        for name in sorted([*fields, *(["bar"] if bar is not None else [])], key=_importance):
            size = BAR[0] if name == "bar" else cell_len(fields[name])
            if name == "text":  # of the project, and of any length
                size = min(size, max(room - len(GAP), 0))
                fields[name] = set_cell_size(fields[name], size)
            size += len(GAP) * bool(kept)
            if not size or size > room:
                break
            room -= size
            kept.add(name)
        parts = [text for name, text in fields.items() if name in kept]
        if bar is not None and "bar" in kept:
            parts.insert(0, _draw(bar, min(BAR[0] + room, BAR[1])))
        return GAP.join(parts)

    def _fields(self) -> dict[str, str]:
        """What there is to tell, by name, in the order of the line."""
        rate = (self.done - self.before) / max(time.monotonic() - self.first, 1e-9)
        fields = {"what": self.what, "count": f"{self.done}/{self.total}" if self.total else str(self.done)}
        fields |= {name: f"{name} {_shown(name, value)}" for name, value in self.values.items()}
        if self.text:
            fields["text"] = " ".join(self.text.split())
        fields["rate"] = f"{1 / rate:.1f} s/it" if 0 < rate < 1 else f"{rate:.1f} it/s"
        if self.total and rate:
            fields["eta"] = f"eta {_clock(max(self.total - self.done, 0) / rate)}"
        return fields

    def _share(self) -> float | None:
        """How much of it is done; None where the total is not known."""
        return min(self.done / self.total, 1) if self.total else None

    def get_renderables(self) -> Any:
        yield Text(self.fit(self._screen.width), no_wrap=True, overflow="ellipsis")
        if self.tasks:  # tasks that a project has added keep rich's own columns
            yield self.make_tasks_table(self.tasks)


SHOWN = {"train/loss": "loss", "train/lr": "lr", "time/targets_per_s": "targets/s", "time/tokens_per_s": "tokens/s"}
FORMATS = {"lr": "{:.2e}", "update": "{:.0f}", "targets/s": "{:,.0f}", "tokens/s": "{:,.0f}"}
# fields by their importance, the first ones stay longest
IMPORTANCE = ("what", "count", "eta", "rate", "loss", "text", "bar", "lr", "update", "tokens/s", "targets/s")


def _importance(name: str) -> int:
    return IMPORTANCE.index(name)


def _draw(share: float, columns: int) -> str:
    """
    >>> _draw(0.5, 8)
    '━━━━╌╌╌╌'
    """
    filled = round(columns * share)
    return "━" * filled + "╌" * (columns - filled)


def _shown(name: str, value: float) -> str:
    """
    >>> _shown("targets/s", 1234.5), _shown("targets/s", 0.31), _shown("loss", 0.123456)
    ('1,234', '0.31', '0.1235')
    """
    if name.endswith("/s") and value < 10:
        return f"{value:.2g}"
    return FORMATS.get(name, "{:.4g}").format(value)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
