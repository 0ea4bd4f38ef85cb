"""`alchemy data cache`: the samples that the pipe Cache has kept."""

from __future__ import annotations

import argparse
import math
import time
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import print_json
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.data.cache.entries import Entry

EXAMPLES = """examples:
  alchemy data cache ls                       # what is kept, how large, how old, of what
  alchemy data cache verify                   # and whether it is as it was written; 1 if not
  alchemy data cache rm 3f9a                  # by the beginning of its key
  alchemy data cache rm --older-than 30       # what nobody has read for 30 days
  alchemy data cache path"""
DAY = 86400


def add_cache(actions: Any) -> None:
    parser = actions.add_parser("cache", help="list and remove kept samples", epilog=EXAMPLES)
    add = parser.add_argument
    words = ("ls", "verify", "rm", "path")
    told = "list, list and compare all contents with what was written, remove, or print the folder"
    add("what", choices=words, metavar="|".join(words), help=told)
    add("keys", nargs="*", metavar="KEY", help="of what is to be removed; its beginning is enough")
    add("--older-than", type=float, metavar="DAYS", help="rm: what nobody has read for so long")
    add("--all", action="store_true", help="rm: all of it")
    add("--json", action="store_true", help="ls, verify: print JSON")


def cache(args: argparse.Namespace) -> int:
    from alchemy.data.cache.entries import cache_folder, list_entries

    _check(args)
    if args.what == "path":
        print(cache_folder())
    elif args.what == "rm":
        _remove(args, list_entries(cache_folder()))
    else:
        found = list_entries(cache_folder(), "sizes" if args.what == "ls" else "all")
        print_json([_row(kept) for kept in found]) if args.json else _list(found)
        return int(args.what == "verify" and any(entry.damage for entry in found))
    return 0


def _check(args: argparse.Namespace) -> None:
    options = {"--older-than": args.older_than is not None, "--all": args.all}
    removes = [*args.keys, *(name for name, given in options.items() if given)]
    if args.what != "rm" and removes:
        raise AlchemyError(f"'alchemy data cache {args.what}' takes no {removes[0]!r}", hint="only rm does")
    if args.json and args.what not in ("ls", "verify"):
        raise AlchemyError(f"'alchemy data cache {args.what}' takes no '--json'", hint="only ls and verify do")
    if args.older_than is not None and not 0 <= args.older_than < math.inf:
        text = f"--older-than is a number of days of at least 0, not {args.older_than}"
        raise AlchemyError(text, hint="as in --older-than 30")


def _list(found: list[Entry]) -> None:
    from alchemy.data.cache.entries import format_size, short

    if not found:
        print("nothing is kept")
    for kept in found:
        told = f"{'':>19}{format_size(kept.bytes):>9}  damaged: {kept.damage}" if kept.damage else _told(kept)
        print(f"{short(kept.key)}  {told}")
    if found:
        print(f"{len(found)} kept, {format_size(sum(kept.bytes for kept in found))}")


def _told(entry: Entry) -> str:
    from alchemy.data.cache.entries import format_size

    made, used = (time.strftime("%Y-%m-%d %H:%M", time.localtime(moment)) for moment in (entry.created, entry.used))
    of = ", ".join(entry.data[:3]) + (", .." if len(entry.data) > 3 else "")
    size = f"{entry.samples:>10,} samples  {format_size(entry.bytes):>8}"
    return f"{size}  made {made}, read {used}  {of or entry.chain[-1]}"


def _row(entry: Entry) -> dict[str, Any]:
    row = {"key": entry.key, "bytes": entry.bytes, "used": entry.used, "path": str(entry.folder)}
    if entry.damage:
        return {**row, "damaged": entry.damage}
    return {**row, "samples": entry.samples, "created": entry.created, "chain": entry.chain, "data": entry.data}


def _remove(args: argparse.Namespace, found: list[Entry]) -> None:
    from alchemy.data.cache.entries import cache_folder, format_size, remove

    chosen = {entry.key: entry for entry in _chosen(args, found)}
    try:
        removed = remove(cache_folder(), chosen) if cache_folder().is_dir() else []
    except OSError as error:
        raise AlchemyError(f"{error.filename} cannot be removed: {error.strerror}") from error
    print(f"{len(removed)} removed, {format_size(sum(chosen[key].bytes for key in removed))}")
    if len(removed) < len(chosen):
        stay = len(chosen) - len(removed)
        print(f"{stay} {'stays' if stay == 1 else 'stay'}: written by another process at this moment")


def _chosen(args: argparse.Namespace, found: list[Entry]) -> list[Entry]:
    if bool(args.keys) + (args.older_than is not None) + args.all != 1:
        raise AlchemyError("say what to remove", hint="give keys, or --older-than DAYS, or --all")
    if args.all:
        return found
    if args.older_than is not None:
        return [entry for entry in found if time.time() - entry.used > args.older_than * DAY]
    return [_named(key, found) for key in dict.fromkeys(args.keys)]


def _named(key: str, found: list[Entry]) -> Entry:
    alike = [entry for entry in found if entry.key.startswith(key)]
    if len(alike) != 1:
        what = f"{len(alike)} keys of the cache begin" if alike else "no key of the cache begins"
        raise AlchemyError(f"{what} with {key!r}", hint="`alchemy data cache ls` lists the keys")
    return alike[0]
