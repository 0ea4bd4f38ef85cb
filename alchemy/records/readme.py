"""Read and edit the README of a record: its title, purpose, tags and notes.

    # title

    The purpose: all text up to the tags or the next heading.

    Tags: baseline, paper

    ## Notes

    - 2026-11-17 20:00: a note

The file belongs to the user, who may edit it freely. Anything that is not one of these parts is left unchanged.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from alchemy.errors import AlchemyError
from alchemy.files import lock_file, read_bytes, readable_size, write_atomic
from alchemy.records.symlinks import path_inside

NAME, EDIT_LOCK = "README.md", ".edit.lock"
LARGEST = 2**20  # bytes
_TAGS = re.compile(r"^Tags:[ \t]*(?P<tags>.*)$", re.MULTILINE)
# where the purpose ends: the tags, a heading, or the changes of a variant
_END = re.compile(r"^(?:Tags:|#{1,6} |Variant `)", re.MULTILINE)
_TITLE = re.compile(r"\A\s*# (?P<title>.*)\n?")
_NOTES = re.compile(r"^## Notes[ \t]*\n(?P<body>(?:(?!^#{1,2} ).*(?:\n|\Z))*)", re.MULTILINE)
_NOTE = re.compile(r"^- (?P<note>.*(?:\n  .*)*)", re.MULTILINE)
_WORD = re.compile(r"[^\s,:()\"]+")


class Readme(NamedTuple):
    """The parts of a README."""

    title: str = ""
    purpose: str = ""
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse(text: str) -> Readme:
    """Parse a README.

    >>> parse("# demo\\n\\nDoes dropout help?\\n\\nTags: paper, v2\\n\\n## Notes\\n\\n- yes\\n")
    Readme(title='demo', purpose='Does dropout help?', tags=('paper', 'v2'), notes=('yes',))
    """
    title, body = _split_title(text)
    tags, notes = _TAGS.search(body), _NOTES.search(body)
    found = _NOTE.findall(notes["body"]) if notes else []
    return Readme(
        title,
        body[: _purpose_end(body)].strip(),
        tuple(dict.fromkeys(_WORD.findall(tags["tags"]))) if tags else (),
        tuple(note.replace("\n  ", "\n") for note in found),
    )


def read_readme(record: Path) -> Readme:
    """Read the README of a record; all parts are empty if it is missing or cannot be read."""
    return parse(read_text(record))


def read_text(record: Path) -> str:
    """Return the text of the README, or an empty string if it is missing or cannot be read."""
    try:
        return read_bytes(path_inside(record, NAME), LARGEST).decode("utf-8", "replace").replace("\r\n", "\n")
    except (OSError, ValueError, AlchemyError):
        return ""


def set_purpose(record: Path, purpose: str) -> None:
    """Replace the purpose; raises an error if the text would end it early, for example with a heading."""
    purpose = purpose.strip()
    if _END.search(purpose):
        raise AlchemyError(
            "a purpose cannot contain headings, or lines that start with 'Tags:' or 'Variant `'",
            hint=f"edit {record / NAME} instead",
        )

    def edit(text: str) -> str:
        title, body = _split_title(text)
        rest = body[_purpose_end(body) :].strip()
        return _join(f"# {title}" if title else "", purpose, rest)

    _edit(record, edit)


def set_tags(record: Path, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
    """Add and remove tags; return the resulting tags."""
    add, remove = tuple(add), set(remove)
    for tag in add:
        if not _WORD.fullmatch(tag) or not tag.isprintable():
            raise AlchemyError(f"invalid tag {tag!r}", hint="a tag is one word without spaces, commas or colons")
    tags: tuple[str, ...] = ()

    def edit(text: str) -> str:
        nonlocal tags
        tags = tuple(tag for tag in dict.fromkeys((*parse(text).tags, *add)) if tag not in remove)
        line = f"Tags: {', '.join(tags)}" if tags else ""
        title, body = _split_title(text)
        old = _TAGS.search(body)
        end = _purpose_end(body)
        before, after = (body[: old.start()], body[old.end() :]) if old else (body[:end], body[end:])
        return _join(f"# {title}" if title else "", before.strip(), line, after.strip())

    _edit(record, edit)
    return tags


def add_note(record: Path, note: str) -> None:
    """Append a note with the current time."""
    time = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    entry = f"- {time}: " + "\n  ".join(note.strip().splitlines())

    def edit(text: str) -> str:
        notes = _NOTES.search(text)
        if notes is None:
            return _join(text.strip(), "## Notes", entry)
        body = _join(notes["body"].strip(), "").strip() + "\n" + entry
        return _join(text[: notes.start()].strip(), "## Notes", body.strip(), text[notes.end() :].strip())

    _edit(record, edit)


def _split_title(text: str) -> tuple[str, str]:
    match = _TITLE.match(text)
    return (match["title"].strip(), text[match.end() :]) if match else ("", text)


def _purpose_end(body: str) -> int:
    match = _END.search(body)
    return match.start() if match else len(body)


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _edit(record: Path, edit: Callable[[str], str]) -> None:
    """Rewrite the README under a lock, so that two edits at the same time are both kept."""
    import time

    try:
        for _ in range(200):
            with lock_file(path_inside(record, EDIT_LOCK)) as locked:
                if locked:
                    if os.path.lexists(record / NAME):  # raises if it cannot be read: its content must not be lost
                        read_bytes(path_inside(record, NAME), LARGEST).decode("utf-8")
                    _write(record, edit(read_text(record)))
                    return
            time.sleep(0.02)
    except OSError as error:
        raise AlchemyError(f"cannot edit {record / NAME}: {error.strerror or error}") from error
    except ValueError as error:
        raise AlchemyError(f"cannot edit {record / NAME}: {error}") from error
    raise AlchemyError(f"{record / NAME} is locked by another process", hint="try again")


def _write(record: Path, text: str) -> None:
    if (size := len(text.encode("utf-8"))) > LARGEST:  # readers ignore larger files
        limits = f"{readable_size(size)} are more than {readable_size(LARGEST)}"
        raise AlchemyError(f"{record / NAME} would become too large: {limits}", hint="put long texts in other files")
    write_atomic(record / NAME, text)
