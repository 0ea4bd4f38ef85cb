"""`alchemy show`: print what is known about a record on one screen."""

from __future__ import annotations

import argparse
from typing import Any

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, print_json
from alchemy.cli.record_names import add_record
from alchemy.cli.table_format import fit_table
from alchemy.errors import printable
from alchemy.files import readable_size
from alchemy.index.value_format import format_count, format_duration, format_names, format_number

EXAMPLES = """examples:
  alchemy show last
  alchemy show 'best(dev/f1, tag:trec)'
  alchemy show last --metrics                  # all metrics, with their extremes
  alchemy show last --json"""

TRACEBACK_LINES, METRICS, CHECKPOINTS, CHILDREN, MEDIA = 8, 12, 6, 5, 6  # shown without --metrics


def _arguments(parser: Parser) -> None:
    add_record(parser)
    parser.add_argument("--metrics", action="store_true", help="show all metrics, checkpoints and names of media")
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.analysis.describe_record import describe_record

    with open_index() as index:
        found = describe_record(index, index.find(args.record))
    if args.json:
        print_json(found)
        return 0
    blocks = [
        _head(found),
        _failure(found),
        _facts(found, len(found["media"]) if args.metrics else MEDIA),
        _metrics(found, None if args.metrics else METRICS),
        _checkpoints(found, None if args.metrics else CHECKPOINTS),
        ["notes", *(f"  - {note}".replace("\n", "\n    ") for note in found["notes"])] if found["notes"] else [],
        [f"  {command}" for command in found["next"]],
    ]
    print(printable("\n\n".join("\n".join(block) for block in blocks if block)))
    return 0


def _head(found: dict[str, Any]) -> list[str]:
    kind = "" if found["kind"] == "train" else f" ({found['kind']})"
    lines = [f"{found['tag'] or 'record'}{kind}: {found['status']}", found["path"]]
    lines += found["purpose"].splitlines()
    lines += [f"tags: {', '.join(found['tags'])}"] if found["tags"] else []
    return lines


def _failure(found: dict[str, Any]) -> list[str]:
    lines = [f"damaged: {found['problem']}"] if found["problem"] else []
    trace = found["traceback"].splitlines()
    if trace:
        left_out = max(0, len(trace) - TRACEBACK_LINES)
        count = format_count(left_out, "line")
        lines += [f"  .. {count}: --json or `alchemy open --log` shows them"] if left_out else []
        lines += [f"  {line}" for line in trace[left_out:]]
    elif found["reason"]:
        lines.append(f"{found['status']}: {found['reason']}")
    return lines


def _facts(found: dict[str, Any], media: int) -> list[str]:
    when = (found["started"] or "?").replace("T", " ")[:19]
    took = f", {format_duration(found['seconds'])}" if found["seconds"] is not None else ""
    updates = f", {format_count(found['updates'], 'update')}" if found["updates"] else ""
    resumed = f", resumed {format_count(found['generations'] - 1, 'time')}" if found["generations"] > 1 else ""
    git, memory = found["git"], found["peak_memory"]
    used = ", ".join(f"{name} {value:.0f} MiB" for name, value in memory.items() if isinstance(value, int | float))
    sizes = ", ".join(f"{kind} {readable_size(size)}" for kind, size in found["bytes"].items() if size)
    facts = {
        "started": f"{when}{took}{updates}{resumed}" + (f", on {found['host']}" if found["host"] else ""),
        "command": found["command"],
        "git": _git(git) if git else "",
        "seed": "" if found["seed"] is None else str(found["seed"]),
        "variant": _variant(found),
        "sweep": "{name}, point {point}".format_map(found["sweep"]) if found["sweep"] else "",
        "versions": ", ".join(f"{name} {value}" for name, value in found["versions"].items()),
        "memory": used,
        "best": _best(found["best"]),
        "parent": _relative(found["parent"]) if found["parent"] else "",
        "children": _relatives(found["children"]),
        "media": format_names([f"{name} ({count})" for name, count in found["media"].items()], media),
        "size": sizes,
        "files": "  ".join(found["files"]),
    }
    return [f"{name:<9} {value}" for name, value in facts.items() if value]


def _git(git: dict[str, Any]) -> str:
    branch = f" ({git['branch']})" if git.get("branch") else ""
    return f"{str(git.get('commit', ''))[:12]}{branch}" + (", with uncommitted changes" if git.get("dirty") else "")


def _variant(found: dict[str, Any]) -> str:
    delta = ", ".join(f"{key} = {value}" for key, value in found["delta"].items())
    return f"{found['variant']}{': ' if found['variant'] and delta else ''}{delta}"


def _best(best: dict[str, Any] | None) -> str:
    if best is None:
        return ""
    place = f" at update {best['update']}" if best["update"] is not None else ""
    return f"{best['metric']} {format_number(best['value'])}{place}"


def _relatives(children: list[dict[str, Any]]) -> str:
    more = f" and {len(children) - CHILDREN} more" if len(children) > CHILDREN else ""
    return ", ".join(_relative(child) for child in children[-CHILDREN:]) + more


def _relative(record: dict[str, Any]) -> str:
    return f"{record['kind']} {record['id']} ({record['status']})"


def _metrics(found: dict[str, Any], most: int | None) -> list[str]:
    names = list(found["metrics"])[:most]
    if not names:
        return []
    keys = {"at best": "at_best", "last": "last", "min": "lowest", "max": "highest"}
    rows = [[name, *(_number(found["metrics"][name][key]) for key in keys.values())] for name in names]
    more = len(found["metrics"]) - len(names)
    return [*fit_table(["metric", *keys], rows)[0], *([f".. {more} more: --metrics"] if more else [])]


def _number(value: float | None) -> str:
    return "" if value is None else format_number(value)


def _checkpoints(found: dict[str, Any], most: int | None) -> list[str]:
    chosen = found["checkpoints"][-most:] if most else found["checkpoints"]
    rows = []
    for one in chosen:
        score = "" if one.get("value") is None else f"{one['metric']} {format_number(one['value'])}"
        state = f"damaged: {one['problem']}" if one["problem"] else " ".join(one["links"])
        rows.append([one["name"], readable_size(one["bytes"]) if "bytes" in one else "", score, state])
    more = len(found["checkpoints"]) - len(chosen)
    table = fit_table(["checkpoint", "size", "metric", "links"], rows, wide=["metric", "links"])[0] if rows else []
    return table + ([f".. {more} earlier ones: --metrics"] if more else [])


COMMAND = Command(_arguments, _main, EXAMPLES)
