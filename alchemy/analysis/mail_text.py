"""The full text of a mail: what happened, why, the last lines of the log, and how to run it again."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from alchemy.analysis.describe_record import format_command
from alchemy.analysis.mailbox import Mail, MailGroup
from alchemy.errors import AlchemyError
from alchemy.files import read_table, shorten_path
from alchemy.index.row import Row
from alchemy.index.value_format import format_duration, format_number, format_time
from alchemy.records.failure import read_log_end, read_traceback, split_log
from alchemy.records.status import INFO
from alchemy.records.symlinks import path_inside

LOG_LINES, TRACE_LINES, OTHERS = 10, 24, 20
LONGEST_LINE = 300  # characters
_CHAINED = ("direct cause of the following exception:", "another exception occurred:")  # end a traceback, one follows
MOST_NUMBERS = 12


def describe_mails(mails: Sequence[Mail], numbers: Mapping[str, float]) -> str:
    """Describe the newest of several mails with the same cause in full, and list the others."""
    mail, *others = mails
    row, ended_early = mail.row, mail.row.status != "finished"
    lasted = f" after {format_duration(row.seconds)}" if row.seconds is not None else ""
    fields = {
        "record": shorten_path(row.path),
        "purpose": _cut(" ".join(row.purpose.split())),
        "when": f"{format_time(mail.when)}{lasted}" + (f" on {row.host}" if row.host else ""),
        "reason": (row.reason or mail.cause) if ended_early else "",
        "numbers": ", ".join(f"{name} {format_number(numbers[name])}" for name in list(numbers)[:MOST_NUMBERS]),
        "again": repeat_command(row) if ended_early else "",
        "resume": resume_command(row),
    }
    # the reason contains the cause, which the traceback need not repeat
    parts = [mail.title if ended_early else mail.subject]
    parts.append("\n".join(f"{name + ':':<9}{text}" for name, text in fields.items() if text))
    if ended_early:
        parts += _describe_files(row.folder, row.status, fields["reason"])
    if others:
        named = [f"  {other.row.name}  {format_time(other.when)}  {_cut(other.cause)}" for other in others[:OTHERS]]
        more = [f"  .. and {len(others) - OTHERS} more"] if len(others) > OTHERS else []
        parts.append("\n".join([f"{len(others)} more like this:", *named, *more]))
    return "\n\n".join(parts)


def write_digest(groups: Sequence[MailGroup]) -> tuple[str, str]:
    """Return the subject and the text of one message about several groups of mails."""
    counts = Counter(mail.kind for group in groups for mail in group.mails)
    tags = list(dict.fromkeys(mail.row.tag for group in groups for mail in group.mails))
    parts = []
    for group in groups:
        mail = group.newest
        count = f"{len(group.mails)} runs, the last one" if len(group.mails) > 1 else "one run,"
        lines = [group.subject, f"  {count} at {format_time(mail.when)}: {mail.row.path}"]
        if mail.row.status == "failed":
            lines += [f"  {_cut(line)}" for line in _end_of(read_traceback(mail.row.folder))]
        parts.append("\n".join(lines))
    subject = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return f"{subject}: {', '.join(tags)}", "\n\n".join(parts)


def _describe_files(folder: Path, status: str, reason: str) -> list[str]:
    before, logged = split_log(read_log_end(folder))
    while logged and before.rstrip().endswith(_CHAINED):
        before, earlier = split_log(before)
        logged = f"{earlier}\n\n{logged}"
    trace = read_traceback(folder) if status == "failed" else ""
    parts = []
    if frames := _end_of(trace, reason):
        parts.append(_block("end of the traceback:", frames))
    lines = (before if trace and logged else before + logged).splitlines()[-LOG_LINES:]
    return [*parts, _block(f"last lines of {shorten_path(str(folder / 'run.log'))}:", lines)] if lines else parts


def repeat_command(row: Row) -> str:
    """Return the shell command that started a run, with its working directory; empty if it is not known."""
    command, place = format_command(_read(row.folder, INFO), row), _read(row.folder, "env.json").get("cwd")
    elsewhere = isinstance(place, str) and os.path.abspath(place) != os.getcwd()
    return f"cd {shlex.quote(str(place))} && {command}" if command and elsewhere else command


def resume_command(row: Row) -> str:
    """Return the command that resumes a training run, or an empty string if it has finished or saved no state."""
    can_resume = row.status != "finished" and (row.folder / "state" / "last").exists()
    return f"alchemy resume {shlex.quote(shorten_path(row.path))}" if can_resume else ""


def _read(folder: Path, name: str) -> dict[str, object]:
    try:
        return read_table(path_inside(folder, name))
    except (OSError, ValueError, AlchemyError):
        return {}


def _end_of(trace: str, reason: str = "") -> list[str]:
    """Return the last lines of a traceback, without marks below a line, and without a message that `reason` contains.

    >>> _end_of('  File "a.py", line 1, in f\\n    x\\n    ^\\nmy.Error: bad\\n', "Error: bad; in epoch 1")
    ['  File "a.py", line 1, in f', '    x']
    """
    lines = [line for line in trace.splitlines() if line.strip(" ^~") or not line.strip()]
    while lines and not lines[-1].startswith(" ") and (lines[-1].partition(": ")[2] or lines[-1]) in reason:
        lines.pop()
    return lines[-TRACE_LINES:]


def _block(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"  {_cut(line)}" for line in lines)])


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}.."
