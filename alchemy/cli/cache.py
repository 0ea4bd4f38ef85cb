"""`alchemy data cache`: the samples that the pipe Cache has kept."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.data.cache.entries import Entry

EXAMPLES = """examples:
  alchemy data cache ls                       # what is kept, how large, how old, of what
  alchemy data cache rm 3f9a                  # by the beginning of its key
  alchemy data cache rm --older-than 30       # what nobody has read for 30 days
  alchemy data cache path"""
DAY = 86400


def add_cache(actions: Any) -> None:
    parser = actions.add_parser("cache", help="list and remove kept samples", epilog=EXAMPLES)
    add = parser.add_argument
    add("what", choices=("ls", "rm", "path"), metavar="ls|rm|path", help="list, remove, or print the folder")
    add("keys", nargs="*", metavar="KEY", help="of what is to be removed; its beginning is enough")
    add("--older-than", type=float, metavar="DAYS", help="rm: what nobody has read for so long")
    add("--all", action="store_true", help="rm: all of it")
    add("--json", action="store_true", help="ls: print JSON")


def cache(args: argparse.Namespace) -> int:
    from alchemy.data.cache.entries import cache_folder, entries

    options = {"--older-than": args.older_than is not None, "--all": args.all}
    removes = [*args.keys, *(name for name, given in options.items() if given)]
    if args.what != "rm" and removes:
        raise AlchemyError(f"'alchemy data cache {args.what}' takes no {removes[0]!r}", hint="only rm does")
    if args.json and args.what != "ls":
        raise AlchemyError(f"'alchemy data cache {args.what}' takes no '--json'", hint="only ls does")
    if args.what == "path":
        print(cache_folder())
    elif args.what == "ls":
        _list(entries(cache_folder()), args.json)
    else:
        _remove(args, entries(cache_folder()))
    return 0


def _list(found: list[Entry], as_json: bool) -> None:
    from alchemy.data.cache.entries import short, told_age, told_size

    if as_json:
        import json

        print(json.dumps([_row(entry) for entry in found], ensure_ascii=False, indent=1))
        return
    if not found:
        print("nothing is kept")
    for entry in found:
        age, used = (told_age(time.time() - moment) for moment in (entry.created, entry.used))
        of = ", ".join(entry.data[:3]) + (", .." if len(entry.data) > 3 else "")
        print(
            f"{short(entry.key)}  {entry.samples:>10,} samples  {told_size(entry.bytes):>8}  made {age} ago, "
            f"read {used} ago  {of or entry.chain[-1]}"
        )
    if found:
        print(f"{len(found)} kept, {told_size(sum(entry.bytes for entry in found))}")


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "samples": entry.samples,
        "bytes": entry.bytes,
        "created": entry.created,
        "used": entry.used,
        "chain": entry.chain,
        "data": entry.data,
        "path": str(entry.folder),
    }


def _remove(args: argparse.Namespace, found: list[Entry]) -> None:
    from alchemy.data.cache.entries import cache_folder, remove, told_size

    chosen = {entry.key: entry for entry in _chosen(args, found)}
    removed = remove(cache_folder(), chosen) if cache_folder().is_dir() else []
    print(f"{len(removed)} removed, {told_size(sum(chosen[key].bytes for key in removed))}")
    if len(removed) < len(chosen):
        print(f"{len(chosen) - len(removed)} stay: another process is writing them")


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
        what = "no entry" if not alike else f"{len(alike)} entries"
        raise AlchemyError(f"{what} of the cache begin with {key!r}", hint="`alchemy data cache ls` lists the keys")
    return alike[0]
