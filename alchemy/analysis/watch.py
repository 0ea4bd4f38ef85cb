"""What `alchemy watch` shows of a record: its status, progress, curves and latest scores."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from alchemy.analysis.plot_text import cut, draw_panel
from alchemy.analysis.screen import Screen
from alchemy.analysis.series import Panel, Plot, PlotLine, build_line, choose_metrics
from alchemy.errors import AlchemyError, did_you_mean, display_width
from alchemy.index.curves import Curves, to_buckets
from alchemy.index.read_curves import CurveFollower
from alchemy.index.value_format import format_duration, format_names, format_number
from alchemy.metrics.scalars import show_epoch
from alchemy.progress import draw_bar, format_clock
from alchemy.records.metrics_file import MACHINE_PREFIXES
from alchemy.records.record_config import read_config
from alchemy.records.status import try_read_info

NARROWEST, TINIEST = 56, 38  # columns of a plot beside another one: if the terminal is high, and if it is low
HEIGHTS = (4, 20)  # rows of a plot, without its axes and legend
LOW = 8  # rows; plots are put side by side rather than being lower
AXES = 3  # rows around a plot: its title and its x-axis
PLAIN_HEIGHT = 12  # rows of a plot if the output is not a terminal
GAP = 2  # columns between two plots
RECENT = 200  # rows that the speed is measured over
SILENT = 60  # seconds without new metrics that are worth mentioning
BAR = (8, 24)  # minimum and maximum width of the bar in columns
LONGEST_TAG, MOST_SPLITS = 40, 5
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
COLORS = {"running": 32, "finished": 36, "stopped": 33}  # of a status; any other is red


class RecordWatch:
    """The state of a record that a run may be writing to; `refresh` reads what is new."""

    def __init__(self, folder: Path, metrics: Sequence[Sequence[str]] = (), *, log: bool = False) -> None:
        self.folder, self._chosen, self._log = folder, metrics, log
        self._follower = CurveFollower(folder / "metrics.jsonl")
        self._curves, self._info = Curves(), dict[str, Any]()
        self._updates, self._epochs = _read_length(folder)

    def refresh(self) -> None:
        """Read the status and the new metrics; raise an error if the record is gone."""
        if not self.folder.is_dir():
            raise AlchemyError(f"{self.folder} is gone", hint="it was moved or removed")
        self._info = try_read_info(self.folder) or self._info
        try:
            self._curves = self._follower.read()
        except OSError:  # no metrics yet
            self._curves = Curves()

    @property
    def status(self) -> str:
        return str(self._info.get("status", "unknown"))

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    def check_metrics(self) -> None:
        """Raise an error if a chosen metric was never logged, which is certain only after the end of the run."""
        known = self._curves.metrics
        for name in (name for names in self._chosen for name in names if name not in known):
            hint = did_you_mean(name, known) or f"it has {format_names(sorted(known), 8) or 'no metrics'}"
            raise AlchemyError(f"{self.folder.name} has not logged {name}", hint=hint)

    def draw(self, screen: Screen) -> list[str]:
        """Return the lines that describe the record; in a terminal, they fit it."""
        width, unicode = screen.columns, screen.unicode
        head = [self._draw_head(screen), *self._draw_progress(screen)]
        scores = [cut(line, width, unicode) for line in self._describe_scores()]
        room = screen.rows - 4 - len(head) - len(scores) if screen.live else None
        lines = [*head, "", *self._draw_plots(screen, room), "", *scores]
        return lines[: screen.rows - 2] if screen.live else lines

    def _draw_head(self, screen: Screen) -> str:
        reason = str(self._info.get("reason") or "").partition("\n")[0]
        status = self.status
        tag = cut(
            str(self._info.get("tag") or "run"), min(LONGEST_TAG, screen.columns - len(status) - 4), screen.unicode
        )
        room = screen.columns - 2 - _width(tag, status)
        rest = cut(f"{f': {reason}' if reason else ''}  {self.folder.name}", room, screen.unicode)
        if not screen.color:
            return f"{tag}  {status}{rest}"
        return f"\x1b[1m{tag}\x1b[0m  \x1b[1;{COLORS.get(self.status, 31)}m{status}\x1b[0m\x1b[2m{rest}\x1b[0m"

    def _draw_progress(self, screen: Screen) -> list[str]:
        """Return a line with a bar and as many facts as fit; none if there are no metrics yet."""
        clock = self._curves.clocks.get("time")
        if not clock:
            return []
        update, seconds = self._curves.updates, clock.values[-1]
        ends = self._curves.clocks["epoch"]
        epoch = int(ends.values[-1]) if len(ends) else 0
        total = self._updates or self._guess_total()
        parts = [f"epoch {show_epoch(epoch, self._epochs)}", f"update {update:,}" + (f"/{total:,}" if total else "")]
        parts.append(f"time {format_clock(seconds)}")
        if self.is_running:
            parts += self._describe_speed(total)
        while len(parts) > 1 and len("  ".join(parts)) > screen.columns:
            parts.pop()
        room = screen.columns - len("  ".join(parts)) - 2
        if total and screen.unicode and room >= BAR[0]:
            parts.insert(0, draw_bar(min(update / total, 1.0), min(room, BAR[1])))
        return [cut("  ".join(parts), screen.columns, screen.unicode)]

    def _describe_speed(self, total: int | None) -> Iterator[str]:
        """Yield the time left and the updates per second, measured over the last rows."""
        clock, update = self._curves.clocks["time"], self._curves.updates
        start = max(0, len(clock) - RECENT)
        updates, seconds = update - clock.updates[start], clock.values[-1] - clock.values[start]
        if updates > 0 and seconds > 0:
            rate = updates / seconds
            if total:
                yield f"eta {format_clock(max(total - update, 0) / rate)}"
            yield f"{rate:.3g} updates/s"
        silence = time.time() - _changed(self.folder / "metrics.jsonl")
        if silence > SILENT:
            yield f"no metrics for {format_duration(silence)}"

    def _guess_total(self) -> int | None:
        """Return the number of updates of all epochs, assuming that they are as long as those completed."""
        ends = self._curves.clocks["epoch"]
        if self._epochs is None or not len(ends) or ends.values[-1] <= 0:
            return None
        return math.ceil(self._epochs * ends.updates[-1] / ends.values[-1] - 1e-9)

    def _draw_plots(self, screen: Screen, room: int | None) -> Iterator[str]:
        known = self._curves.metrics
        best = self._info.get("best")
        monitored = str(best.get("metric")) if isinstance(best, dict) else ""
        groups = [[name for name in names if name in known] for names in self._chosen]
        groups = [names for names in groups if names] or ([] if self._chosen else choose_metrics(known, [monitored]))
        waiting = [name for names in self._chosen for name in names if name not in known]
        if not groups:
            yield cut(_explain_empty(sorted(known), waiting), screen.columns, screen.unicode)
            return
        panels = [Panel(f"{', '.join(names)} by update", list(map(self._build_line, names))) for names in groups]
        plot = Plot(panels, "", self._log)
        across, height = _arrange(panels, screen.columns, room)
        width = (screen.columns + GAP) // across - GAP
        for start in range(0, len(panels), across):
            yield from [""] if start else []
            look = {"color": screen.color, "unicode": screen.unicode}
            row = panels[start : start + across]
            yield from _join([list(draw_panel(panel, plot, width, height, **look)) for panel in row], width)
        if waiting:
            yield cut(f"not logged yet: {format_names(waiting, 4)}", screen.columns, screen.unicode)

    def _build_line(self, name: str) -> PlotLine:
        return build_line(name, to_buckets(self._curves.metrics[name]))

    def _describe_scores(self) -> Iterator[str]:
        """Yield the latest values of each split, and the best value of the monitored metric."""
        splits: dict[str, list[str]] = {}
        for name, curve in self._curves.metrics.items():
            if not name.startswith(MACHINE_PREFIXES):
                split, _, short = name.rpartition("/")
                splits.setdefault(split, []).append(f"{short} {format_number(curve.values[-1])}")
        longest = max(map(display_width, splits), default=0)
        for split, texts in list(splits.items())[:MOST_SPLITS]:
            yield f"{split:<{longest}}  {'  '.join(texts)}"
        best = self._info.get("best")
        if isinstance(best, dict) and isinstance(value := best.get("value"), int | float):
            yield f"best checkpoint: {best.get('metric')} {format_number(value)} at update {best.get('update')}"


def _read_length(folder: Path) -> tuple[int | None, float | None]:
    """Return the number of updates and of epochs that the config asks for; None if it does not say."""
    sched = read_config(folder).get("sched")
    table: Mapping[str, Any] = sched if isinstance(sched, dict) else {}
    updates, epochs = table.get("num_training_steps"), table.get("epochs")
    return (
        updates if type(updates) is int and 0 < updates < 2**53 else None,
        epochs if isinstance(epochs, int | float) and 0 < epochs < 2**53 else None,
    )


def _arrange(panels: Sequence[Panel], columns: int, room: int | None) -> tuple[int, int]:
    """Return the number of panels in a row, and the height of each: low ones are rather put side by side."""
    legend = max(len(panel.lines) for panel in panels)
    for narrowest in (NARROWEST, TINIEST):
        across = max(1, min(len(panels), (columns + GAP) // (narrowest + GAP)))
        if room is None:
            return across, PLAIN_HEIGHT
        rows = math.ceil(len(panels) / across)
        height = (room - rows + 1) // rows - AXES - legend
        if height >= LOW:
            break
    return across, min(max(height, HEIGHTS[0]), HEIGHTS[1])


def _explain_empty(known: Sequence[str], waiting: Sequence[str]) -> str:
    if waiting:
        return f"not logged yet: {format_names(waiting, 4)}"
    if known:
        return f"no loss and no monitored metric; choose with --metric: {format_names(known, 8)}"
    return "no metrics yet"


def _join(blocks: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Put blocks of lines side by side."""
    for parts in zip_longest(*blocks, fillvalue=""):
        yield (" " * GAP).join(part + " " * (width - _width(part)) for part in parts).rstrip()


def _width(*texts: str) -> int:
    """Return the columns of texts whose only escape sequences are colors."""
    return sum(display_width(_COLOR.sub("", text)) for text in texts)


def _changed(path: Path) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return time.time()
