"""`alchemy data cache`: list, verify and remove cached samples."""

from __future__ import annotations

import argparse
import math
import time
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import print_json
from alchemy.errors import AlchemyError
from alchemy.files import readable_size

if TYPE_CHECKING:
    from alchemy.data.cache.entries import Entry

EXAMPLES = """examples:
  alchemy data cache ls                       # entries with size, age and source
  alchemy data cache verify                   # also verify the contents; exit code 1 if any is damaged
  alchemy data cache rm 3f9a                  # by the first characters of its key
  alchemy data cache rm --older-than 30       # entries not read for 30 days
  alchemy data cache path"""
DAY = 86400


def add_cache(subparsers: Any) -> None:
    parser = subparsers.add_parser("cache", help="list, verify and remove cached samples", epilog=EXAMPLES)
    add = parser.add_argument
    actions = ("ls", "verify", "rm", "path")
    text = "list entries, verify their contents, remove entries, or print the cache folder"
    add("what", choices=actions, metavar="|".join(actions), help=text)
    add("keys", nargs="*", metavar="KEY", help="rm: keys to remove; the first characters are enough")
    add("--older-than", type=float, metavar="DAYS", help="rm: entries not read for this many days")
    add("--all", action="store_true", help="rm: all entries")
    add("--json", action="store_true", help="ls, verify: print JSON")


def run_cache(args: argparse.Namespace) -> int:
    from alchemy.data.cache.entries import cache_folder, list_entries

    _check(args)
    if args.what == "path":
        print(cache_folder())
    elif args.what == "rm":
        _remove(args, list_entries(cache_folder()))
    else:
        found = list_entries(cache_folder(), "sizes" if args.what == "ls" else "all")
        print_json([_row(entry) for entry in found]) if args.json else _print_entries(found)
        return int(args.what == "verify" and any(entry.damage for entry in found))
    return 0


def _check(args: argparse.Namespace) -> None:
    options = {"--older-than": args.older_than is not None, "--all": args.all}
    removes = [*args.keys, *(name for name, given in options.items() if given)]
    if args.what != "rm" and removes:
        raise AlchemyError(f"'alchemy data cache {args.what}' does not accept {removes[0]!r}", hint="only rm does")
    if args.json and args.what not in ("ls", "verify"):
        raise AlchemyError(f"'alchemy data cache {args.what}' does not accept '--json'", hint="only ls and verify do")
    if args.older_than is not None and not 0 <= args.older_than < math.inf:
        text = f"--older-than must be a number of days >= 0, got {args.older_than}"
        raise AlchemyError(text, hint="for example --older-than 30")


def _print_entries(found: list[Entry]) -> None:
    from alchemy.data.cache.entries import short

    if not found:
        print("the cache is empty")
    for entry in found:
        text = (
            f"{'':>20}{readable_size(entry.bytes):>10}  damaged: {entry.damage}" if entry.damage else _describe(entry)
        )
        print(f"{short(entry.key)}  {text}")
    if found:
        noun = "entry" if len(found) == 1 else "entries"
        print(f"{len(found)} {noun}, {readable_size(sum(entry.bytes for entry in found))}")


def _describe(entry: Entry) -> str:
    created, used = (time.strftime("%Y-%m-%d %H:%M", time.localtime(moment)) for moment in (entry.created, entry.used))
    of = ", ".join(entry.data[:3]) + (", .." if len(entry.data) > 3 else "")
    size = f"{entry.samples:>10,} samples  {readable_size(entry.bytes):>10}"
    return f"{size}  created {created}, last read {used}  {of or entry.chain[-1]}"


def _row(entry: Entry) -> dict[str, Any]:
    row = {"key": entry.key, "bytes": entry.bytes, "used": entry.used, "path": str(entry.folder)}
    if entry.damage:
        return {**row, "damaged": entry.damage}
    return {**row, "samples": entry.samples, "created": entry.created, "chain": entry.chain, "data": entry.data}


def _remove(args: argparse.Namespace, found: list[Entry]) -> None:
    from alchemy.data.cache.entries import cache_folder, remove

    chosen = {entry.key: entry for entry in _select(args, found)}
    try:
        removed = remove(cache_folder(), chosen) if cache_folder().is_dir() else []
    except OSError as error:
        raise AlchemyError(f"{error.filename} cannot be removed: {error.strerror}") from error
    print(f"{len(removed)} removed, {readable_size(sum(chosen[key].bytes for key in removed))}")
    if len(removed) < len(chosen):
        stay = len(chosen) - len(removed)
        print(f"{stay} kept: being written by another process")


def _select(args: argparse.Namespace, found: list[Entry]) -> list[Entry]:
    if bool(args.keys) + (args.older_than is not None) + args.all != 1:
        raise AlchemyError("nothing selected to remove", hint="pass keys, --older-than DAYS, or --all")
    if args.all:
        return found
    if args.older_than is not None:
        return [entry for entry in found if time.time() - entry.used > args.older_than * DAY]
    return [_find_by_key(key, found) for key in dict.fromkeys(args.keys)]


def _find_by_key(key: str, found: list[Entry]) -> Entry:
    matches = [entry for entry in found if entry.key.startswith(key)]
    if len(matches) != 1:
        what = f"{len(matches)} cache keys start" if matches else "no cache key starts"
        raise AlchemyError(f"{what} with {key!r}", hint="list the keys with `alchemy data cache ls`")
    return matches[0]
