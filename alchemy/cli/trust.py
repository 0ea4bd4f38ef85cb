"""`alchemy trust`: allow the configs of records created by others to refer to any code."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from alchemy.cli.options import Command, add_json, add_user_dir, print_json
from alchemy.errors import AlchemyError, ConfigError, printable

EXAMPLES = """examples:
  alchemy trust records/from-anna              # read its cfg.toml first: the code it names will run
  alchemy trust shared/records --json          # all records below the folder
  alchemy trust records/from-anna --remove
  alchemy trust --list"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("records", nargs="*", metavar="RECORD|DIR", help="a record, a folder of records, or a config file in one")
    add("--remove", action="store_true", help="stop trusting them")
    add("--list", action="store_true", help="list trusted configs with the paths they had when trusted")
    add_json(parser)
    add_user_dir(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.trust import entries

    if args.list == bool(args.records):
        raise AlchemyError("pass either records or --list", hint="see 'alchemy trust --help'")
    if args.list:
        rows = [{"digest": digest, "config": path} for digest, path in entries().items()]
    else:
        rows = [_update_trust(config, args) for name in args.records for config in _configs(name)]
    if args.json:
        print_json(rows)
    elif args.list:
        lines = [f"{row['digest'][:12]}  {row['config']}" for row in rows]
        print(printable("\n".join(lines)) if rows else "no trusted configs")
    else:
        for row in rows:
            print("\n  ".join([f"{row['config']}: {row['status']}", *row["names"]]))
    return 0


def _configs(name: str) -> list[Path]:
    """Return the config of a record, or of all records below a folder."""
    from alchemy.cli.record_names import find_record
    from alchemy.records.folder import folders
    from alchemy.records.local_copies import config_of

    folder = Path(name)
    if os.path.isfile(folder):  # any config file of a record, such as a copy in backup/
        return [folder]
    if os.path.isdir(folder) and not (folder / "record.json").exists() and not (folder / "cfg.toml").exists():
        found = [below / "cfg.toml" for below in sorted(folders(folder)) if (below / "cfg.toml").is_file()]
        if not found:
            raise AlchemyError(f"no record found in {name}", hint="pass a record folder, or a folder of records")
        return found
    return [config_of(folder if (folder / "cfg.toml").is_file() else find_record(name))]


def _update_trust(config: Path, args: argparse.Namespace) -> dict[str, Any]:
    from alchemy.config.formats import content_of, read_file
    from alchemy.trust import BACKUP, CONFIG, digest_of, digest_of_folder, distrust, entries, is_trusted, store, trust

    digests = {digest_of(content_of(str(config))): config}
    backup = config.with_name(BACKUP)
    if config.name == CONFIG and backup.is_dir():
        digests[digest_of_folder(backup)] = backup
    row = {"config": str(config), "digest": next(iter(digests)), "names": []}
    if args.remove:
        distrust(digests)
        return row | {"status": "not trusted"}
    if all(map(is_trusted, digests)):
        return row | {"status": "already trusted"}
    if store() is None:
        raise AlchemyError("no home directory for the trust store", hint="set HOME or XDG_CONFIG_HOME")
    read_file(str(config))  # raises an error if it is not a config
    names = _untrusted_settings(config, args.user_dir)
    names += [f"the code in {backup}" for path in digests.values() if path == backup]
    for digest, path in digests.items():
        trust(digest, path)
    if not all(digest in entries() for digest in digests):
        raise AlchemyError(f"cannot use the trust store {store()}", hint="it must be a file that only you can write to")
    return row | {"status": "trusted; these settings need trust:" if names else "trusted", "names": names}


def _untrusted_settings(config: Path, user_dir: str) -> list[str]:
    from alchemy.config.load import prepare_cfg

    try:
        prepare_cfg(config, record=True, user_dir=user_dir)
    except ConfigError as error:
        return [f"{problem.where.rpartition(':')[2]}: {problem.message}" for problem in error.problems]
    return []


COMMAND = Command(_arguments, _main, EXAMPLES)
