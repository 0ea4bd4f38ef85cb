"""The progress bar: one live line on a terminal, one plain line every few seconds elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

REFRESH_SECONDS = 0.25
PLAIN_SECONDS = 5.0
WIDTH = 24


class Terminal(Console):
    """Where a run speaks; it falls silent when whoever listened is gone, as `| head` is after a few lines."""

    def on_broken_pipe(self) -> None:
        # rich would end the program here, and with it a training of hours
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
        super().__init__(console=console, auto_refresh=False, transient=True, disable=not console.is_terminal)

    def step(self, text: str = "") -> None:
        """Counts a batch; draws only when it is time."""
        self.done += 1
        self.text = text
        now = time.monotonic()
        if now - self._shown >= (PLAIN_SECONDS if self.disable else REFRESH_SECONDS):
            self._shown = now
            self.show()

    def take(self, values: Mapping[str, float], update: int) -> None:
        """Takes the numbers that the loop logs: the newest stand in the line."""
        self.values.update({SHOWN[name]: value for name, value in values.items() if name in SHOWN}, update=update)
        if "tokens/s" in self.values:  # the model counts them, so the line needs no second rate
            self.values.pop("targets/s", None)

    def show(self) -> None:
        if self.disable:
            self.console.print(self.line(), markup=False, highlight=False, soft_wrap=True)
        else:
            self.refresh()

    def finish(self) -> None:
        """The last line, for those who read a file: all of it is done."""
        if self.disable and time.monotonic() - self.first >= PLAIN_SECONDS:
            self.show()

    def line(self) -> str:
        """`train epoch 1  120/500  loss 0.412  lr 1.00e-03  103.2 it/s  eta 0:03`."""
        seconds = max(time.monotonic() - self.first, 1e-9)
        rate = (self.done - self.before) / seconds
        parts = [self.what, f"{self.done}/{self.total}" if self.total else str(self.done)]
        parts += [f"{name} {_shown(name, value)}" for name, value in self.values.items()]
        parts += [self.text] if self.text else []
        parts.append(f"{rate:.1f} it/s")
        if self.total and rate:
            parts.append(f"eta {_clock(max(self.total - self.done, 0) / rate)}")
        return "  ".join(parts)

    def get_renderables(self) -> Any:
        if self.total:
            filled = round(WIDTH * min(self.done / self.total, 1))
            yield Text(f"{'━' * filled}{'╌' * (WIDTH - filled)}  {self.line()}", no_wrap=True, overflow="ellipsis")
        else:
            yield Text(self.line(), no_wrap=True, overflow="ellipsis")
        if self.tasks:  # tasks that a project has added keep rich's own columns
            yield self.make_tasks_table(self.tasks)


SHOWN = {"train/loss": "loss", "train/lr": "lr", "time/targets_per_s": "targets/s", "time/tokens_per_s": "tokens/s"}
FORMATS = {"lr": "{:.2e}", "update": "{:.0f}", "targets/s": "{:,.0f}", "tokens/s": "{:,.0f}"}


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
