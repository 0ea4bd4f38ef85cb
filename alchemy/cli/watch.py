"""`alchemy watch`: follow the curves of a running record in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from alchemy.cli.options import Command, Parser
from alchemy.cli.record_names import RECORD, find_record
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.analysis.watch import RecordWatch

EXAMPLES = """examples:
  alchemy watch                                           # the run that is active, or the next one
  alchemy watch last                                      # the loss, and the monitored metric
  alchemy watch last --metric train/loss --metric dev/f1,dev/accuracy
  alchemy watch last --every 10
  alchemy watch last --once                               # print the current state, and exit

keys: q or Ctrl-C ends the display; the run goes on"""

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # another screen without a cursor, and back
POLL = 0.1  # seconds after which a key or a new size of the terminal is noticed


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("record", nargs="?", metavar="RECORD", help=f"{RECORD} (default: the latest that is running, or the next run)")
    add("--metric", action="append", default=[], metavar="NAME,..", help="metrics of one plot; may be repeated")
    add("--log", action="store_true", help="logarithmic y-axis")
    add("--every", type=float, default=1.0, metavar="SECONDS", help="time between two readings (default: 1)")
    add("--once", action="store_true", help="print the current state, and exit")


def _main(args: argparse.Namespace) -> int:
    from alchemy.analysis.screen import measure_screen
    from alchemy.analysis.watch import RecordWatch
    from alchemy.launch.signals import signal_number

    if not 0.1 <= args.every <= 86400:
        raise AlchemyError(f"--every must be between 0.1 and 86400 seconds, got {args.every:g}")
    names = [[name.strip() for name in text.split(",") if name.strip()] for text in args.metric]
    live = measure_screen().live and not args.once
    record = find_record(args.record) if args.record else _find_running(live)
    if record is None:
        return 0
    watch = RecordWatch(record.absolute(), [group for group in names if group], log=args.log)
    watch.refresh()
    if watch.is_running and live:
        try:
            _follow(watch, args.every)
        except KeyboardInterrupt as error:
            if signal_number(error) != signal.SIGINT:
                raise
    if not watch.is_running or args.once:
        watch.check_metrics()
    print("\n".join(watch.draw(measure_screen())))
    return 0


def _find_running(live: bool) -> Path | None:
    """Return the latest record that is running; in a terminal, wait for one, or return None if the user quits."""
    if found := _query_running():
        return found
    if not live:
        raise AlchemyError("no run is active", hint="pass a record, such as 'last'")
    with _take_over_terminal():
        sys.stdout.write("no run is active, waiting for one to start; q quits\n")
        sys.stdout.flush()
        while (found := _query_running()) is None:
            if _read_key(1.0) == "q":
                return None
    return found


def _query_running() -> Path | None:
    from alchemy.cli.index import open_index

    with open_index() as index:
        rows = index.query("status:running", limit=1)
    return rows[0].folder if rows else None


def _follow(watch: RecordWatch, every: float) -> None:
    """Show the record until its run ends or a key is pressed."""
    from alchemy.analysis.screen import measure_screen, paint

    with _take_over_terminal():
        while watch.is_running:
            screen = measure_screen()
            hint = "q quits" if not screen.color else "\x1b[2mq quits\x1b[0m"
            sys.stdout.write(paint([*watch.draw(screen), hint]))
            sys.stdout.flush()
            deadline = time.monotonic() + every
            while time.monotonic() < deadline and measure_screen() == screen:
                if _read_key(min(POLL, every)) == "q":
                    return
            watch.refresh()


@contextlib.contextmanager
def _take_over_terminal() -> Iterator[None]:
    """Switch to another screen, and read keys without echo; both are undone at the end, also after a signal."""
    from alchemy.launch.signals import handle_signals

    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    before = termios.tcgetattr(keyboard) if keyboard is not None else None
    try:
        with handle_signals(lambda number: False):
            sys.stdout.write(ENTER)
            yield
    finally:
        if keyboard is not None and before is not None:
            with contextlib.suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


def _read_key(seconds: float) -> str:
    """Return the key that is pressed within some time, or an empty string."""
    if sys.stdin is None or not sys.stdin.isatty():
        time.sleep(seconds)
        return ""
    tty.setcbreak(sys.stdin, termios.TCSANOW)  # each time: a shell changes it when the program is suspended
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1).decode("latin-1").lower() if ready else ""


COMMAND = Command(_arguments, _main, EXAMPLES)
