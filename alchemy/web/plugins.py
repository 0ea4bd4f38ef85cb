"""Write a notification, `mail.json`, when a run ends, and send it if the project is set up to."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.config.secrets import hide
from alchemy.errors import AlchemyError
from alchemy.files import write_json
from alchemy.plugins.base import AlchemyPlugin
from alchemy.records.status import now
from alchemy.web.send_mail import SECONDS, MailSettings, Message, deliver, load_mail_settings, run_in_thread

FORMAT = 1
TRACE_LINES = 30  # of a traceback in a message
# omitted: timings are in metrics.jsonl
LEFT_OUT = ("time/", "system/")


@AlchemyPlugin.register()
class MailOnFinish(AlchemyPlugin):
    """Write `mail.json` when the run ends, with its last metrics or the traceback of its failure.

    With `send_ok = false`, only failed runs write it. Runs without a record write nothing. The mail is also sent if
    `[mail]` in `.alchemy/config.toml` says where to.
    """

    aside = True

    def __init__(self, *, send_ok: bool = True) -> None:
        super().__init__()
        self.send_ok = send_ok
        self.numbers: dict[str, Any] = {}
        self._settings = _load_settings() if self.run.group.is_main else None

    def log(self, values: Mapping[str, float], update: int) -> None:
        self.numbers.update((name, value) for name, value in values.items() if not name.startswith(LEFT_OUT))

    def exit(self) -> None:
        folder = self.run.record_dir
        status, reason = self.run.outcome(sys.exception())
        if folder is None or (status == "finished" and not self.send_ok):
            return
        tag, best = hide(str(self.run.cfg.get("tag", ""))), self.run.progress.best
        mail = {
            "format": FORMAT,
            "subject": f"{status}: {tag}" + (f": {reason}" if reason else ""),
            "status": status,
            "reason": reason,
            "tag": tag,
            "record": str(folder),
            "gen": self.run.record.generation,
            "when": now(),
            "numbers": {name: _plain(value) for name, value in {**self.numbers, **_numbers(self.run.ret)}.items()},
            "traceback": _traceback(),
            "sent": [],
        }
        _write(folder, mail)
        if (settings := self._settings) is not None:
            watched = (best.metric, best.value) if best is not None and status == "finished" else None
            # not a daemon: the process waits for it when it ends, at most SECONDS
            args = (settings, folder.absolute(), mail, watched)
            threading.Thread(target=_send, args=args, name="alchemy-send-mail").start()


def _load_settings() -> MailSettings | None:
    try:
        return load_mail_settings()
    except AlchemyError as error:  # never fails the run
        logger.warning("no mail will be sent: {}", error)
        return None


def _send(settings: MailSettings, folder: Path, mail: dict[str, Any], best: tuple[str, float] | None) -> None:
    """Send a mail within `SECONDS`; a failure is logged once and never reaches the run."""
    try:
        deadline = time.monotonic() + SECONDS
        kind, subject = mail["status"], mail["subject"]
        if best is not None and "new best" in settings.events:
            former, _ = run_in_thread(lambda: _find_former_best(folder, *best))(SECONDS / 2)
            if former is not None:
                kind, subject = "new best", f"new best: {mail['tag']}: {best[0]} {best[1]:.6g}, before {former:.6g}"
        if kind not in settings.events:
            return
        message = Message(subject, _describe(mail), {**mail, "kind": kind})
        results = deliver(settings, message, deadline - time.monotonic())
        errors = [f"{name}: {error}" for name, error in results.items() if error]
        if errors:
            logger.warning("the mail about {} was not sent: {}", folder, "; ".join(errors))
        if len(errors) < len(results):
            _write(folder, {**mail, "sent": [name for name, error in results.items() if not error]})
    except Exception as error:
        logger.warning("the mail about {} was not sent: {}: {}", folder, type(error).__name__, error)


def _find_former_best(folder: Path, metric: str, value: float) -> float | None:
    from alchemy.analysis.mailbox import find_former_best
    from alchemy.index.record_index import RecordIndex

    with RecordIndex.open() as index:
        return find_former_best(index, os.path.abspath(folder), metric, value)


def _describe(mail: Mapping[str, Any]) -> str:
    lines = [f"{mail['status']} at {mail['when']} on {socket.gethostname()}", f"record: {mail['record']}"]
    lines += [f"reason: {mail['reason']}"] if mail["reason"] else []
    lines += ["", *(f"{name}: {value}" for name, value in mail["numbers"].items())] if mail["numbers"] else []
    lines += ["", *mail["traceback"].splitlines()[-TRACE_LINES:]] if mail["traceback"] else []
    return "\n".join(lines)


def _write(folder: Path, mail: Mapping[str, Any]) -> None:
    write_json(folder / "mail.json", mail)


def _numbers(values: object) -> dict[str, Any]:
    rows = values.items() if isinstance(values, Mapping) else ()
    return {str(name): value for name, value in rows if isinstance(value, int | float)}


def _plain(value: float) -> Any:
    """Convert NaN and infinities to strings, since JSON has no such numbers."""
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else str(number)


def _traceback() -> str | None:
    error = sys.exc_info()[1]
    return None if error is None else hide("".join(traceback.format_exception(error)))
