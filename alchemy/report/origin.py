"""Where the runs of a report come from: commands, configs, code and environments, and how they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alchemy.analysis.code_files import FileChange
from alchemy.analysis.describe_record import format_command
from alchemy.analysis.diff import PACKAGES, Section, Side, diff_records
from alchemy.analysis.groups import RunGroup
from alchemy.errors import AlchemyError
from alchemy.files import read_bytes
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row
from alchemy.index.value_format import format_count, format_duration, format_number, format_time
from alchemy.records.readme import read_readme
from alchemy.records.status import try_read_info
from alchemy.records.symlinks import path_inside
from alchemy.report.blocks import Block, Cell, build_fold, build_list, build_pre, build_table, build_text, name_group
from alchemy.report.frames import shorten

LARGEST_CONFIG = 100_000  # characters
LARGEST_DIFF = 200_000  # characters of all files
MOST_NOTES, LONGEST_NOTE = 20, 2_000
SHORT_DIFF = 60  # lines that are shown without unfolding them


def describe_runs(groups: Sequence[RunGroup], examples: Sequence[Row]) -> list[Block]:
    """Return a table of all runs, and for each group the command, commit, tags and notes of one run."""
    rows: list[list[Cell]] = []
    for place, group in enumerate(groups):
        for row in group.rows:
            best = "" if row.best_value is None else f"{row.best_metric} {format_number(row.best_value)}"
            best += f" at update {row.best_update:,}" if best and row.best_update is not None else ""
            updates = "" if row.updates is None else f"{row.updates:,}"
            times = format_time(row.started), format_duration(row.elapsed)
            rows.append([name_group(place, brief=True), row.seed, row.name, row.status, best, updates, *times])
    found = [build_table(["", "seed", "record", "status", "best", "updates", "started", "duration"], rows, tall=True)]
    for place, row in enumerate(examples):
        info, readme = try_read_info(row.folder), read_readme(row.folder)
        facts = [_describe_git(info.get("git")), f"on {row.host}" if row.host else ""]
        facts += [f"tags: {', '.join(row.tag_list)}"] if row.tag_list else []
        found += [{"kind": "group", "value": place}] if len(groups) > 1 else []
        found += [build_pre(shorten(format_command(info, row), 2_000), wrap=True)] if info.get("cmd") else []
        found.append(build_text(" · ".join(filter(None, facts)), "note"))
        notes = [shorten(note, LONGEST_NOTE) for note in readme.notes[-MOST_NOTES:]]
        found += [build_list(notes)] if notes else []
    return found


def _describe_git(git: object) -> str:
    if not isinstance(git, dict) or not git.get("commit"):
        return ""
    return f"git {str(git['commit'])[:12]}" + (", with uncommitted changes" if git.get("dirty") else "")


def describe_configs(rows: Sequence[Row], changed: Mapping[str, Sequence[str | None]]) -> list[Block]:
    """Return what differs between the configs, and the config files. Runs mask secrets before they write them."""
    found = []
    if len(rows) > 1:
        head: list[Cell] = ["key", *(name_group(place) for place in range(len(rows)))]
        lines = [
            [key, *("–" if value is None else shorten(value, 300) for value in values)]
            for key, values in changed.items()
        ]
        same = build_text("The configs are identical, apart from seeds and folders.")
        found.append(build_table(head, lines, tall=True) if lines else same)
    for place, row in enumerate(rows):
        if text := _read_text(row.folder, "cfg.toml"):
            title = name_group(place) if len(rows) > 1 else "cfg.toml"
            found.append(build_fold(title, build_pre(shorten(text, LARGEST_CONFIG))))
    return found


def _read_text(folder: Path, name: str) -> str:
    try:
        return read_bytes(path_inside(folder, name)).decode("utf-8", "replace").replace("\r\n", "\n")
    except (OSError, ValueError, AlchemyError):
        return ""


def open_sides(index: RecordIndex, rows: Sequence[Row], notes: list[str]) -> list[Side]:
    """Return the records for a comparison; none, and a note, if one of them contains links that point outside."""
    try:
        return [Side(index, row) for row in rows]
    except AlchemyError as error:
        notes.append(f"code and environment are not shown: {error}")
        return []


def describe_environments(sides: Sequence[Side], notes: list[str]) -> list[Block]:
    """Return the machines, versions and packages, with marks where the records differ."""
    tables = [_read_environment(side, notes) for side in sides]
    head = ["", *(name_group(place) if len(sides) > 1 else "" for place in range(len(sides)))]
    found = []
    for title, packages in (("Machine and versions", False), ("Installed packages", True)):
        keys = dict.fromkeys(key for table in tables for key in table if key.startswith(PACKAGES) == packages)
        texts = [[key.removeprefix(PACKAGES), *(_format(table.get(key)) for table in tables)] for key in keys]
        rows = sorted((row for row in texts if any(row[1:])), key=lambda row: len(set(row[1:])) == 1)
        marked = [place for place, row in enumerate(rows) if len(set(row[1:])) > 1]
        more = f": {format_count(len(marked), 'difference')}" if len(sides) > 1 else ""
        found += [build_fold(f"{title}{more}", build_table(head, rows, marked=marked, tall=True))] if rows else []
    return found


def _read_environment(side: Side, notes: list[str]) -> Mapping[str, Any]:
    try:
        return side.environment()
    except AlchemyError:
        notes.append(f"{side.row.name} has no environment to show: its env.json is missing or damaged")
        return {}


def _format(value: object) -> str:
    return "" if value is None else shorten(str(value), 200)


def compare_code(sides: Sequence[Side], letters: Sequence[str], notes: list[str]) -> list[Block]:
    """Return how the code of the first record differs from that of each other one; a note if that is unknown."""
    found, left = [], LARGEST_DIFF
    for place, side in enumerate(sides[1:], 1):
        section = diff_records(sides[0], side, ["code"])[0]
        if section.identical is None:
            notes.append(f"the code of {letters[0]} and {letters[place]} {section.text}")
            continue
        found += [{"kind": "group", "value": place}, build_text(_summarize(section, letters[0]))]
        for block, size in _show_files(section.files, left, (letters[0], letters[place])):
            left -= size
            found.append(block)
    return found


def _summarize(section: Section, first: str) -> str:
    same = f"identical ({section.text})" if section.text else "identical"
    changes = "".join(f"; {name} {_shorten_hash(one)} → {_shorten_hash(other)}" for name, one, other in section.changes)
    return f"Compared with {first}: {same if section.identical else section.text}{changes}"


def _shorten_hash(value: object) -> str:
    return "none" if value is None else str(value)[:12]


def _show_files(files: Sequence[FileChange], left: int, letters: tuple[str, str]) -> Iterator[tuple[Block, int]]:
    """Yield a block for each file that differs, with the size of its diff, in at most `left` characters."""
    for number, file in enumerate(files):
        size = len(file.diff)
        if file.diff and size <= left:
            left -= size
            is_open = number == 0 and file.diff.count("\n") < SHORT_DIFF
            yield build_fold(file.file, {"kind": "diff", "value": file.diff}, is_open=is_open), size
        else:
            change = dict(zip(("only in A", "only in B"), (f"only in {letter}" for letter in letters))).get(file.change)
            why = file.note or ("its diff is too long for the report" if file.diff else "")
            yield build_text(f"{file.file}: {change or file.change}" + (f" ({why})" if why else ""), "note"), 0
