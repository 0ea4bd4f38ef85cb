"""Open the record or config passed to `test`, `predict` and similar commands."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from alchemy.cli.derived_config import Derived
    from alchemy.config.tree import Document


class Trained(NamedTuple):
    """A config and, if it comes from a record, the record and its weights."""

    document: Document
    model_path: Path | None = None
    record: Path | None = None


def open_target(args: argparse.Namespace, *, quiet: bool = False, weights: bool = True) -> Trained:
    """Add the project to the import path and load the config or record `args.target`.

    Without the folder `args.user_dir`, the code in the record is used. With `quiet`, the tokenizers are not reported.
    Without `weights`, no checkpoint is needed.
    """
    from alchemy.config.load import prepare_cfg
    from alchemy.launch.project_imports import add_to_path
    from alchemy.records.local_copies import config_of, find_code, use_local_copies, warn_of_other_code

    options = {"overrides": args.overrides, "allow_code": args.allow_code}
    if os.path.isfile(args.target.partition("#")[0]):
        document = prepare_cfg(args.target, user_dir=args.user_dir, **options)
        add_to_path(args.user_dir)
        return Trained(document)
    record = _find_record(args.target)
    wanted, args.user_dir = args.user_dir, find_code(record, args.user_dir)
    if args.user_dir != wanted:
        print(f"{wanted} not found: using the code in {args.user_dir}", file=sys.stderr)
    document = prepare_cfg(config_of(record), record=True, user_dir=args.user_dir, **options)
    add_to_path(args.user_dir)
    if text := warn_of_other_code(record, args.user_dir):
        print(printable(f"warning: {text}"), file=sys.stderr)
    fields = use_local_copies(document, record, args.overrides)
    if fields and not quiet:
        print(f"using the tokenizers of {record}: {', '.join(fields)}", file=sys.stderr)
    if not weights or any(text.replace(" ", "").startswith("model.model_path=") for text in args.overrides):
        return Trained(document, None, record)
    return Trained(document, _select_weights(record, args.checkpoint), record)


def start_derived(target: Trained, derived: Derived, args: argparse.Namespace, verb: str, **more: Any) -> int:
    """Check and run a derived config; return the exit code."""
    from alchemy.cli.launch import check_documents, raise_on_errors, start_runs
    from alchemy.cli.summary import summarize

    if derived.left_out:
        print(f"not needed: {', '.join(derived.left_out)}", file=sys.stderr)
    raise_on_errors(check_documents([derived.document], args))
    args.desc = args.desc or (f"{verb} of {target.record}" if target.record else "")
    return summarize([derived.document], start_runs([derived.document], args, **more))


def _select_weights(record: Path, name: str | None) -> Path:
    """Return the named weights; by default the best checkpoint, or the last one if there is no best checkpoint."""
    from alchemy.records.local_copies import best_checkpoint, has_best

    if name is None and not has_best(record) and (record / "state" / "last").exists():
        print(f"{record} has no checkpoint 'best': using 'last'", file=sys.stderr)
        name = "last"
    return best_checkpoint(record, name or "best")


def _find_record(name: str) -> Path:
    from alchemy.cli.options import check_record_name
    from alchemy.cli.record_names import find_record

    if name == "latest":
        return _find_latest()
    # records from older versions have a config but no record.json
    if name and (Path(name) / "cfg.toml").is_file():
        return Path(name)
    if name.endswith((".toml", ".json", ".ini", ".py")):
        raise AlchemyError(f"config file not found: {name!r}")
    return find_record(check_record_name(name))


def _saved_weights(folder: Path) -> list[Path]:
    return [*(folder / "checkpt").glob("[!.]*"), *(folder / "state").glob("[!.]*")]


def _find_latest() -> Path:
    """Return the latest record with weights, preferring training runs: a test may have saved weights too."""
    from alchemy.records.folder import folders, read_newest_first

    saved = [folder for folder in folders(Path(".")) if any(_saved_weights(folder))]
    trained = [folder for folder in saved if (folder / "ledger.jsonl").exists()]
    for folder, _ in read_newest_first(trained or saved):
        return folder
    raise AlchemyError(
        "no record with weights below this folder", hint="the runs may have ended before their first save"
    )
