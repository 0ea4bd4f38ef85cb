"""`alchemy du`: show how much disk space records use."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, add_limit, print_json
from alchemy.cli.record_names import add_records, choose_records
from alchemy.cli.table_format import fit_table
from alchemy.files import readable_size

if TYPE_CHECKING:
    from alchemy.index.row import Row
    from alchemy.records.disk_usage import DiskUsage

EXAMPLES = """examples:
  alchemy du                                   # the largest records, and the total
  alchemy du last best(dev/f1)
  alchemy du --filter 'status:failed' --json
Hard links, such as state/best and state/last, are counted once."""


def _arguments(parser: Parser) -> None:
    add_records(parser)
    add_limit(parser, 20, "records, the largest ones")
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.records.disk_usage import KINDS, measure_usage

    with open_index() as index:
        named = args.records or args.filter is not None
        rows = choose_records(index, args.records, args.filter) if named else index.query(sort="created")
        ids, home = index.shorten_ids(rows), index.settings.home
    seen: set[tuple[int, int]] = set()
    found = sorted(((row, measure_usage(row.folder, seen)) for row in rows), key=lambda pair: -pair[1].total)
    if args.json:
        print_json([_as_data(row, usage) for row, usage in found])
        return 0
    chosen = found[: args.limit]
    sums = {kind: sum(usage.bytes[kind] for _, usage in found) for kind in KINDS}
    used = [kind for kind in KINDS if sums[kind]]
    cells = [[ids[row.id], row.kind, row.tag, *_sizes(usage.bytes, used)] for row, usage in chosen]
    cells.append([f"{len(found)} records", "", "", *_sizes(sums, used)])
    optional = ["kind", "code", "other", "logs", "tag"]
    lines, _ = fit_table(["id", "kind", "tag", "total", *used], cells, wide=["tag"], optional=optional)
    print("\n".join(lines))
    for folder in () if named else (home / "bin", home / "cache"):
        if folder.is_dir():
            print(f".alchemy/{folder.name}: {readable_size(measure_usage(folder, seen).total)}")
    return 0


def _sizes(sizes: Mapping[str, int], kinds: Sequence[str]) -> list[str]:
    """Return the cells with the total, and with the size of each kind of file."""
    return [readable_size(sum(sizes.values())), *(readable_size(sizes[kind]) if sizes[kind] else "" for kind in kinds)]


def _as_data(row: Row, usage: DiskUsage) -> dict[str, object]:
    about = {"id": row.name, "path": row.path, "kind": row.kind, "tag": row.tag, "status": row.status}
    return {**about, "total": usage.total, "files": usage.files, "bytes": usage.bytes}


COMMAND = Command(_arguments, _main, EXAMPLES)
