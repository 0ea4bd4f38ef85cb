"""Collect what a report shows: the runs, their numbers, curves, media, configs and environments."""

from __future__ import annotations

import datetime
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import alchemy
from alchemy.analysis.compare import is_lower_better
from alchemy.analysis.groups import RunGroup, fold_seeds
from alchemy.analysis.series import label_groups
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row, drop_repeats
from alchemy.index.value_format import format_count, format_duration, format_names, format_time
from alchemy.records.failure import read_traceback
from alchemy.report.blocks import Block, build_list, build_text
from alchemy.report.classes import describe_classes
from alchemy.report.curves import build_clocks, build_curves, describe_curves
from alchemy.report.frames import shorten
from alchemy.report.media import collect_media
from alchemy.report.numbers import Numbers, build_numbers
from alchemy.report.origin import compare_code, describe_configs, describe_environments, describe_runs, open_sides

MOST_GROUPS, MOST_FAILURES = 12, 10
LONGEST_PURPOSE, LONGEST_CAUSE, LONGEST_TRACEBACK = 5_000, 1_000, 20_000  # characters
# the sections of media: the id, the title, and the kind of media
MEDIA = {
    "confusion": ("Confusions", "confusion"),
    "hardest": ("Hardest examples", "table"),
    "images": ("Images", "image"),
    "attention": ("Attention", "attention"),
    "histograms": ("Distributions", "histogram"),
    "texts": ("Texts", "text"),
    "tables": ("Tables", "table"),
}
OF_EXAMPLES = ("classes", "code", "environment")  # sections that show one run of each group, as media do


class Report(NamedTuple):
    """The contents of a page as JSON values, and remarks about what it does not show."""

    page: dict[str, Any]
    notes: list[str]


def build_report(index: RecordIndex, rows: Sequence[Row], *, title: str = "", media_bytes: int = 2_000_000) -> Report:
    """Collect the contents of a report. Runs that differ only in their seed are one group."""
    groups = _build_groups(index, rows)
    numbers = build_numbers(index, groups)
    runs = [drop_repeats(group.rows) for group in groups]
    curves, notes = build_curves(index, runs)
    examples = [choose_example(index, group) for group in groups]
    folders = [_list_folders(index, row) for row in examples]
    media, left_out = collect_media(folders, media_bytes)
    notes = [*numbers.notes, *notes, *left_out]
    sides = open_sides(index, examples, notes)
    environments = describe_environments(sides, notes)
    configs = describe_configs(examples, numbers.config)
    several, origin = len(groups) > 1, _describe_origin(groups, examples)
    sections = {
        "curves": ("Curves", [{}] if curves else []),
        "numbers": ("All numbers", numbers.all),
        "changes": ("What differs", configs if several else []),
        "classes": ("Scores by class", describe_classes(folders)),
        **{key: (name, _choose_media(media, key, kind)) for key, (name, kind) in MEDIA.items()},
        "code": ("Code", compare_code(sides, [group.label for group in groups], notes)),
        "runs": ("Runs", describe_runs(groups, examples)),
        "config": ("Config", [] if several else configs),
        "environment": ("Environment", environments),
        "remarks": ("Remarks", [build_list(notes)] if notes else []),
    }
    made = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    page = {
        "title": title or format_names(list(dict.fromkeys(row.tag or row.name for row in rows)), 3),
        "groups": [
            {
                "letter": group.label,
                "label": group.argument,
                "best": example.best_update,
                "clocks": build_clocks(index, rows),
            }
            for group, rows, example in zip(groups, runs, examples, strict=True)
        ],
        "head": _describe_head(groups, numbers),
        "curves": curves,
        "curve_note": describe_curves(curves),
        "sections": [
            {
                "id": key,
                "title": name,
                "note": origin if key in (*MEDIA, *OF_EXAMPLES) else None,
                "media" if key in MEDIA else "blocks": blocks,
            }
            for key, (name, blocks) in sections.items()
            if blocks
        ],
        "foot": [f"Made with alchemy {alchemy.__version__} on {made}. This file contains all that it shows."],
    }
    return Report(page, notes)


def _build_groups(index: RecordIndex, rows: Sequence[Row]) -> list[RunGroup]:
    """Group the runs, each group with a letter and a label that tells it apart from the others."""
    groups = fold_seeds(rows)
    if len(groups) > MOST_GROUPS:
        hint = "use a narrower filter"
        raise AlchemyError(f"{len(groups)} configs are too many for a report, at most {MOST_GROUPS} fit", hint=hint)
    tags = [group[0].tag for group in groups]
    labels = tags if all(tags) and len(set(tags)) == len(tags) else label_groups(index, groups)
    names = index.shorten_ids(group[0] for group in groups)
    return [
        RunGroup(letter, label.removesuffix(f" ({format_count(len(group), 'run')})"), group, names[group[0].id])
        for letter, label, group in zip(string.ascii_uppercase, labels, groups, strict=False)
    ]


def choose_example(index: RecordIndex, group: RunGroup) -> Row:
    """Return the run whose media are shown: the one with the median of the monitored metric, to be representative.

    Of an even number of runs, it is the worse of the two in the middle.
    """
    known = sorted((row for row in group.rows if row.best_value is not None), key=lambda row: row.best_value or 0.0)
    if not known:
        return max(group.rows, key=lambda row: row.rank)
    lower = is_lower_better(index, [group], known[0].best_metric)
    return known[len(known) // 2 if lower else (len(known) - 1) // 2]


def _list_folders(index: RecordIndex, row: Row) -> list[Path]:
    """Return the folders with the media of a run: its own, and that of its latest test."""
    tests = [child for child in index.children(row) if child.kind == "test"]
    return [row.folder, *(child.folder for child in tests[-1:])]


def _choose_media(media: Sequence[Mapping[str, Any]], section: str, kind: str) -> list[Any]:
    def fits(item: Mapping[str, Any]) -> bool:
        hardest = item["name"].endswith("hardest")
        return item["kind"] == kind and (kind != "table" or hardest == (section == "hardest"))

    # what the task has logged comes before what [capture] has added
    return sorted(filter(fits, media), key=lambda item: item["name"].startswith("capture/"))


def _describe_head(groups: Sequence[RunGroup], numbers: Numbers) -> list[Block]:
    """Return what was tried, whether it worked, and the numbers."""
    rows = [row for group in groups for row in group.rows]
    purposes = list(dict.fromkeys(row.purpose for row in rows if row.purpose))
    lead = [build_text(shorten(purposes[0], LONGEST_PURPOSE), "lead")] if len(purposes) == 1 else []
    done = sum(row.status == "finished" for row in rows)
    if len(rows) == 1:
        took = format_duration(rows[0].elapsed)
        facts = [rows[0].status, f"{rows[0].updates or 0:,} updates", f"took {took}" if took else ""]
    else:
        facts = [f"{len(rows)} runs, {'all' if done == len(rows) else done} finished"]
        facts += [format_count(len(groups), "config")] if len(groups) > 1 else []
    started = format_time(min((row.started for row in rows if row.started), default=None))
    facts += [f"started {started}"] if started else []
    ended = [(group, row) for group in groups for row in group.rows if row.status not in ("finished", "running")]
    failures = [_describe_failure(group, row, len(rows) > 1) for group, row in ended]
    return [*lead, build_text(" · ".join(filter(None, facts)), "facts"), *failures[:MOST_FAILURES], *numbers.main]


def _describe_failure(group: RunGroup, row: Row, several: bool) -> Block:
    trace = read_traceback(row.folder)[-LONGEST_TRACEBACK:] if row.status == "failed" else ""
    cause = shorten(row.cause or row.reason or row.problem, LONGEST_CAUSE)
    name = f"{group.label} {row.name}: {row.status or 'unknown'}" if several else row.status or "unknown"
    return {"kind": "fail", "title": name, "value": cause, "traceback": trace or None}


def _describe_origin(groups: Sequence[RunGroup], examples: Sequence[Row]) -> str | None:
    """Return which runs stand for groups of several seeds; None if there are no such groups."""
    chosen = [
        f"{group.label} {row.name if row.seed is None else f'seed {row.seed}'}"
        for group, row in zip(groups, examples, strict=True)
        if len(group.rows) > 1
    ]
    return f"From the runs with the median score: {', '.join(chosen)}." if chosen else None
