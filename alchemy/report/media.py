"""Choose the media of a report: as many as fit, the newest first, then evenly spaced over the updates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.index.value_format import format_count, format_names
from alchemy.report.frames import Frame, FrameSource, list_frames

MOST_FRAMES = 60  # of one series
MOST_SERIES = 200


class FrameSeries(NamedTuple):
    """What one group has logged under a name, in the order of updates."""

    group: int
    entries: list[FrameSource]


def collect_media(folders: Sequence[Sequence[Path]], budget: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the media of each group of `folders`, in at most `budget` bytes, and notes on what was left out."""
    series = _list_series(folders)
    embeddings = [name for kind, name in series if kind == "embedding"]
    series = {key: each for key, each in series.items() if key[0] != "embedding"}
    names = format_names(embeddings, 4)
    notes = [f"embeddings are not shown, open them in TensorBoard: {names}"] if embeddings else []
    if len(series) > MOST_SERIES:
        notes.append(f"{len(series) - MOST_SERIES} of {len(series)} names of media are not shown")
        series = dict(list(series.items())[:MOST_SERIES])
    shown: dict[tuple[str, str], list[list[Frame]]] = {key: [[] for _ in folders] for key in series}
    spent = damaged = kept = 0
    for key, group, entry in _alternate(series):
        if spent >= budget:
            break
        frame = entry.load()
        size = 0 if frame is None else len(json.dumps(frame))
        damaged += frame is None
        if frame is not None and spent + size <= budget:
            spent, kept = spent + size, kept + 1
            shown[key][group].append({"update": entry.update, **frame})
    total = sum(len(each.entries) for all_series in series.values() for each in all_series)
    if left_out := total - kept - damaged:
        limits = f"--max-mb {budget / 1e6:g}, and at most {MOST_FRAMES} of each name"
        notes.append(f"{left_out:,} of {total:,} images, texts, tables and other media are left out ({limits})")
    notes += [f"{format_count(damaged, 'damaged file')} of media cannot be shown"] if damaged else []
    return [_describe(key, frames) for key, frames in shown.items() if any(frames)], notes


def _list_series(folders: Sequence[Sequence[Path]]) -> dict[tuple[str, str], list[FrameSeries]]:
    """Return the entries of all groups by kind and name."""
    found: dict[tuple[str, str], dict[int, list[FrameSource]]] = {}
    for group, records in enumerate(folders):
        for folder in records:
            for entry in list_frames(folder):
                kind = "image" if entry.kind in ("images", "figure") else entry.kind
                found.setdefault((kind, entry.name), {}).setdefault(group, []).append(entry)
    return {
        key: [
            FrameSeries(group, sorted(entries, key=lambda entry: entry.update or 0))
            for group, entries in groups.items()
        ]
        for key, groups in found.items()
    }


def _alternate(series: dict[tuple[str, str], list[FrameSeries]]) -> Iterator[tuple[tuple[str, str], int, FrameSource]]:
    """Yield the entries of all series in turns, so that each of them gets its share of the space."""
    queues = [
        (key, each.group, [each.entries[place] for place in spread(len(each.entries), MOST_FRAMES)])
        for key, all_series in series.items()
        for each in all_series
    ]
    for turn in range(max((len(queue) for _, _, queue in queues), default=0)):
        for key, group, queue in queues:
            if turn < len(queue):
                yield key, group, queue[turn]


def spread(count: int, most: int) -> list[int]:
    """Return up to `most` of `count` places: the last, the first, and then the middle of the widest gaps.

    >>> spread(9, 5)
    [8, 0, 4, 2, 6]
    """
    found = dict.fromkeys([count - 1, 0]) if count else {}
    parts = 2
    while len(found) < min(count, most):
        for part in range(1, parts, 2):
            found[(count - 1) * part // parts] = None
        parts *= 2
    return list(found)[:most]


def _describe(key: tuple[str, str], frames: list[list[Frame]]) -> dict[str, Any]:
    ordered = [sorted(group, key=lambda frame: frame["update"] or 0) for group in frames]
    return {"kind": key[0], "name": key[1], "groups": ordered}
