"""The marks of mails, such as read or cleared: lines appended to `.alchemy/mail/read.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal, get_args

from alchemy.errors import AlchemyError
from alchemy.files import append_lines, open_to_read, parse_json
from alchemy.records.status import now

FILE = Path("mail", "read.jsonl")
LONGEST_LINE = 2**16  # bytes
IDS_PER_LINE = 100
Mark = Literal["read", "cleared", "sent"]


class MailMarks:
    """The ids of the mails with each mark. Marks are only ever added, so that several processes can write them."""

    def __init__(self, home: Path) -> None:
        """Read the marks in an `.alchemy` folder; damaged lines are skipped."""
        self._path = home / FILE
        self._ids: dict[str, set[str]] = {mark: set() for mark in get_args(Mark)}
        try:
            with open_to_read(self._path) as file:
                while line := file.readline(LONGEST_LINE):
                    self._parse(line)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise AlchemyError(f"{self._path} cannot be read: {error.strerror or error}") from error

    def _parse(self, line: bytes) -> None:
        try:
            row = parse_json(line)
        except ValueError:
            return
        mark, ids = (row.get("mark"), row.get("ids")) if isinstance(row, dict) else ("", [])
        if isinstance(mark, str) and mark in self._ids and isinstance(ids, list):
            self._ids[mark].update(name for name in ids if isinstance(name, str))

    def __getitem__(self, mark: Mark) -> Collection[str]:
        return self._ids[mark]

    def add(self, mark: Mark, ids: Iterable[str]) -> int:
        """Mark mails; return how many did not have the mark yet. Raises an error if the marks cannot be written."""
        new = [name for name in dict.fromkeys(ids) if name not in self._ids[mark]]
        parts = [new[start : start + IDS_PER_LINE] for start in range(0, len(new), IDS_PER_LINE)]
        rows = [{"mark": mark, "ids": part, "when": now()} for part in parts]
        if rows:
            self._append("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        self._ids[mark].update(new)
        return len(new)

    def _append(self, text: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            append_lines(self._path, text)
        except OSError as error:
            raise AlchemyError(f"cannot mark mails in {self._path}: {error.strerror or error}") from error
