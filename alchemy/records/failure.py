"""The failure of a record: its traceback, and a signature that is equal for runs that failed for the same reason."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from alchemy.errors import AlchemyError
from alchemy.files import hash_text, open_to_read, read_table
from alchemy.records.symlinks import path_inside

LOG, MAIL = "run.log", "mail.json"
LARGEST_MAIL = 4 * 2**20  # bytes
LARGEST_TAIL = 2**18  # bytes read from the end of a log
LONGEST_CAUSE = 300  # characters
INNERMOST = 5  # frames in a signature: the outer ones depend on how a run was started
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
_FRAME = re.compile(r'^[> ] +File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_PLACE_NOTE = re.compile(r"^(?:in epoch|in update|while evaluating|the first to fail|to inspect it)\b")
_UPDATE = re.compile(r"\bupdate (\d{1,12}), step")
_LIBRARY = re.compile(r"^<|[/\\](?:alchemy|site-packages|dist-packages|lib[/\\]python3[\d.]*)[/\\]")
# what differs between runs that fail for the same reason; longer patterns first
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[_T ]\d\d[-:]\d\d[-:]\d\d(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)?"), "TIME"),
    (re.compile(r"0x[0-9a-fA-F]+"), "ADDRESS"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "HASH"),
    (re.compile(r"(?<![\w.+@=-])(?:[A-Za-z]:\\|~?/|\.{1,2}/)?(?:[\w.+@=-]+[/\\]+)+[\w.+@=-]*"), "PATH"),
    (re.compile(r"(?<![\w.])-?\d+(?:x\d+)*(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[A-Za-z]{0,3}\b|\W|$)"), "N"),
    (re.compile(r"N(?:, N)+"), "N"),
)


class Cause(NamedTuple):
    """Why a run ended: one line for people, and the signature that groups equal causes."""

    text: str = ""
    signature: str = ""


def find_cause(status: str, reason: str, trace: str = "") -> Cause:
    """Return the cause of a run that ended early: from its traceback, if it has one, otherwise from `reason`."""
    if trace:
        message, frames = _message(trace), _frames(trace)
        where = next((f" ({name})" for name in reversed(frames) if ":" in name), "")
        return Cause(_shorten(message[0], LONGEST_CAUSE) + where, _sign([*frames, *message]))
    lines = _without_places(reason.replace("; in epoch", "\nin epoch"))
    return Cause(_shorten(lines[0], LONGEST_CAUSE) if lines else status, _sign([status, *lines]))


def read_traceback(folder: Path) -> str:
    """Return the traceback of a failed run, from `mail.json` or the end of `run.log`; empty if there is none."""
    try:
        found = read_table(path_inside(folder, MAIL), LARGEST_MAIL).get("traceback")
        if isinstance(found, str) and _TRACEBACK.search(found):
            return found[-LARGEST_TAIL:]
    except (OSError, ValueError, AlchemyError):
        pass
    return split_log(read_log_end(folder))[1]


def read_log_end(folder: Path) -> str:
    """Return the end of the log of a run, or an empty string if it cannot be read."""
    try:
        with open_to_read(path_inside(folder, LOG)) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LARGEST_TAIL))
            return file.read(LARGEST_TAIL).decode("utf-8", "replace")
    except (OSError, AlchemyError):
        return ""


def split_log(log: str) -> tuple[str, str]:
    """Split a log at its last traceback: the text before it, and the traceback, which ends at an empty line.

    >>> split_log("12:00 failed\\nTraceback (most recent call last):\\nValueError: bad\\n\\n12:01 done\\n")
    ('12:00 failed\\n', 'Traceback (most recent call last):\\nValueError: bad')
    """
    starts = [match.start() for match in _TRACEBACK.finditer(log)]
    if not starts:
        return log, ""
    frames = [match.end() for match in _FRAME.finditer(log, starts[-1])]
    end = log.find("\n\n", frames[-1] if frames else starts[-1])
    return log[: starts[-1]], log[starts[-1] : end if end >= 0 else len(log)].rstrip()


def find_failed_updates(folder: Path, reason: str) -> list[int]:
    """Return the updates in which a run failed, based on the files in `bad` and the reason in its record."""
    left = [path.stem[1:] for path in (folder / "bad").glob("u*.json")]
    return sorted({int(update) for update in left + _UPDATE.findall(reason) if update.isdecimal()})


def normalize_message(text: str) -> str:
    """Replace what differs between runs that fail for the same reason: times, addresses, hashes, paths and numbers.

    >>> normalize_message("cannot read /data/a-3/train.csv:12: expected 3 columns, got [1, 2, 5]")
    'cannot read PATH:N: expected N columns, got [N]'
    >>> normalize_message("mat1 and mat2 shapes cannot be multiplied (32x2 and 3x64) at 0x7f01, float16")
    'mat1 and mat2 shapes cannot be multiplied (N and N) at ADDRESS, float16'
    """
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return text


def _frames(trace: str) -> list[str]:
    """Return the innermost frames: the functions of libraries, and `file:function` in the project."""
    found, matches = [], list(_FRAME.finditer(trace))
    caught = max((place for place, match in enumerate(matches) if match[0][0] == ">"), default=0)  # loguru's mark
    for match in matches[caught:][-INNERMOST:]:
        file, function = match["file"], match["function"]
        found.append(function if _LIBRARY.search(file) else f"{os.path.basename(file)}:{function}")
    return found


def _message(trace: str) -> list[str]:
    """Return the lines of the exception after the innermost frame, without the notes on where in the data it was."""
    frames = list(_FRAME.finditer(trace))
    rest = trace[frames[-1].end() :] if frames else trace.partition("\n")[2]
    lines = [line for line in rest.splitlines() if line.strip() and not line.startswith("    ")]
    return _without_places("\n".join(lines))[:INNERMOST] or ["unknown error"]


def _without_places(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not _PLACE_NOTE.match(line)]


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 2]}.."


def _sign(lines: list[str]) -> str:
    text = normalize_message("\n".join(line[:2000] for line in lines))
    return hash_text(text.encode("utf-8", "replace").decode("utf-8"))[:16]  # JSON may contain lone surrogates
