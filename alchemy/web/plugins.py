"""Write a notification, `mail.json`, when a run ends."""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from alchemy.config.secrets import hide
from alchemy.files import write_atomic
from alchemy.plugins.base import AlchemyPlugin
from alchemy.records.status import now

FORMAT = 1
# omitted: timings are in metrics.jsonl
LEFT_OUT = ("time/", "system/")


@AlchemyPlugin.register()
class MailOnFinish(AlchemyPlugin):
    """Write `mail.json` when the run ends, with its last metrics or the traceback of its failure.

    With `send_ok = false`, only failed runs write it. Runs without a record write nothing.
    """

    aside = True

    def __init__(self, *, send_ok: bool = True) -> None:
        super().__init__()
        self.send_ok = send_ok
        self.numbers: dict[str, Any] = {}

    def log(self, values: Mapping[str, float], update: int) -> None:
        self.numbers.update((name, value) for name, value in values.items() if not name.startswith(LEFT_OUT))

    def exit(self) -> None:
        folder = self.run.record_dir
        status, reason = self.run.outcome(sys.exception())
        if folder is None or (status == "finished" and not self.send_ok):
            return
        tag = hide(str(self.run.cfg.get("tag", "")))
        mail = {
            "format": FORMAT,
            "subject": f"{status}: {tag}" + (f": {reason}" if reason else ""),
            "status": status,
            "reason": reason,
            "tag": tag,
            "record": str(folder),
            "when": now(),
            "numbers": {name: _plain(value) for name, value in {**self.numbers, **_numbers(self.run.ret)}.items()},
            "traceback": _traceback(),
        }
        write_atomic(folder / "mail.json", json.dumps(mail, ensure_ascii=False, indent=1) + "\n")


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
