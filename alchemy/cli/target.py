"""What `test` and `predict` are pointed at: a record, or a config."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.cli.derived_config import Derived
    from alchemy.config.tree import Document


class Trained(NamedTuple):
    """A config, and where it came out of a record also the weights to use."""

    document: Document
    model_path: Path | None = None
    record: Path | None = None


def open_target(args: argparse.Namespace, *, quiet: bool = False) -> Trained:
    """Makes the project importable, and reads the config or the record that `args.target` names.

    `quiet` says only what is wrong.
    """
    from alchemy.config.load import prepare_cfg
    from alchemy.launch.project_imports import add_to_path
    from alchemy.records.local_copies import config_of, use_local_copies

    options = {"overrides": args.overrides, "allow_code": args.allow_code, "user_dir": args.user_dir}
    if os.path.isfile(args.target.partition("#")[0]):
        document = prepare_cfg(args.target, **options)
        add_to_path(args.user_dir)
        return Trained(document)
    record = _find(args.target)
    document = prepare_cfg(config_of(record), record=True, **options)
    add_to_path(args.user_dir)
    fields = use_local_copies(document, record, args.overrides)
    if fields and not quiet:
        print(f"encoded with the tokenizers of {record}: {', '.join(fields)}", file=sys.stderr)
    if any(text.replace(" ", "").startswith("model.model_path=") for text in args.overrides):
        return Trained(document, None, record)
    return Trained(document, _weights(record, args.checkpoint), record)


def start_derived(target: Trained, derived: Derived, args: argparse.Namespace, verb: str, **more: Any) -> int:
    """Checks and runs the config that was derived for a test or for predictions; returns the exit code."""
    from alchemy.cli.launch import check_documents, raise_on_errors, start_runs
    from alchemy.cli.summary import summarize

    if derived.left_out:
        print(f"not needed here: {', '.join(derived.left_out)}", file=sys.stderr)
    raise_on_errors(check_documents([derived.document], args))
    args.desc = args.desc or (f"{verb} of {target.record}" if target.record else "")
    return summarize([derived.document], start_runs([derived.document], args, **more))


def _weights(record: Path, name: str | None) -> Path:
    """The weights asked for; unasked the best, and the last where there are no best."""
    from alchemy.records.local_copies import best_checkpoint, has_best

    if name is None and not has_best(record) and (record / "state" / "last").exists():
        print(f"{record} has no checkpoint 'best': its 'last' is used", file=sys.stderr)
        name = "last"
    return best_checkpoint(record, name or "best")


def _find(name: str) -> Path:
    from alchemy.cli.options import check_record_name
    from alchemy.records import find

    if name == "latest":
        return _latest()
    # records of older versions have a config but no record.json
    if name and (Path(name) / "cfg.toml").is_file():
        return Path(name)
    if name.endswith((".toml", ".json", ".ini", ".py")):
        raise AlchemyError(f"there is no config file {name!r}")
    return find(check_record_name(name))


def _kept(folder: Path) -> list[Path]:
    return [*(folder / "checkpt").glob("[!.]*"), *(folder / "state").glob("[!.]*")]


def _latest() -> Path:
    """The newest training that has weights; a pipe of a project may have saved some in a test, too."""
    from alchemy.records.folder import folders, read_newest_first

    kept = [folder for folder in folders(Path(".")) if any(_kept(folder))]
    trained = [folder for folder in kept if (folder / "ledger.jsonl").exists()]
    for folder, _ in read_newest_first(trained or kept):
        return folder
    raise AlchemyError("there is no record below this folder with weights", hint="did the runs end before a save?")
