"""Resume an interrupted run, after checking that nothing relevant has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alchemy.config.known_tables import RUNNER_NAMES
from alchemy.config.load import prepare_cfg
from alchemy.config.secrets import missing_secrets
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError, ConfigError, Problem, Refused
from alchemy.files import lock_file
from alchemy.launch.device import alloc
from alchemy.launch.project_imports import add_to_path
from alchemy.pipeline.tokenizers import tokenizer_of
from alchemy.plugins.config_hash import config_hash
from alchemy.plugins.resume_changes import changes, refuse_changes
from alchemy.records.folder import LOCK, find, folders, read_newest_first
from alchemy.records.local_copies import config_of, use_own_tokenizers
from alchemy.records.status import read_info, refuse_running
from alchemy.registry import plain
from alchemy.result import RunResult, fail_if_ignored
from alchemy.runner import run
from alchemy.tasks.learn_tokenizer import is_class

NO_TRAINING = (*RUNNER_NAMES["Tester"], *RUNNER_NAMES["InferenceRunner"])


def resume(
    record: str | Path,
    device: Sequence[int] | None = None,
    user_dir: str = "src",
    *,
    overrides: Sequence[str] = (),
    allow: Sequence[str] = (),
    debug: bool = False,
    raise_errors: bool = False,
    strict: bool = False,
) -> RunResult:
    """Resume a record from its latest valid checkpoint, with the same result as an uninterrupted run.

    Differences are logged. A difference that would make it a different run raises an error unless listed in `allow`.
    """
    folder = find(record)
    document = prepare_cfg(config_of(folder), overrides=overrides, user_dir=user_dir, record=True)
    add_to_path(user_dir)
    if str(document.get("runner")).rpartition(".")[2] in NO_TRAINING:
        raise AlchemyError(f"{folder} is a test or inference run: only training can be resumed")
    with lock_file(folder / LOCK) as free:
        if not free:
            hint = "wait for it, or stop it with `alchemy stop`"
            raise AlchemyError(f"another process is writing to {folder}", hint=hint)
    differences = changes(folder, document, alloc(device)[0], user_dir)
    _check_resumable(folder, changed=any(change.breaks or change.of_config for change in differences))
    refuse_changes(differences, allow)
    if missing := missing_secrets(document):
        raise ConfigError(missing)
    notes = [f"since the record was written: {change.name} {change.text}" for change in differences]
    if not any(text.partition("=")[0].strip().endswith("tokenizer") for text in overrides):
        why = "in the config is missing or has changed: using the tokenizer of the record"
        notes += [f"the tokenizer of {field!r} {why}" for field in use_own_tokenizers(document, folder, _is_same)]
    # logged by the run itself, once its log is open
    document.notes += [Problem(text, error=False) for text in notes]
    (result,) = run(
        [document],
        device=device,
        user_dir=user_dir,
        debug=debug,
        strict=strict,
        raise_errors=raise_errors,
        resume_from=folder,
        allowed=allow,
    )
    if isinstance(result.exception, Refused):
        raise result.exception
    return fail_if_ignored(result)


def _is_same(named: object, own: Path) -> bool:
    """Return whether a config still uses the record's tokenizer; a learned one is compared once it is trained."""
    if is_class(named):
        return True
    try:
        return tokenizer_of(plain(named)).digest == tokenizer_of(own).digest
    except AlchemyError:
        return False


def _check_resumable(folder: Path, *, changed: bool) -> None:
    info = read_info(folder)
    refuse_running(folder, info)
    if _is_finished(info) and not changed:
        hint = "to train longer: --set sched.epochs=N --allow sched.epochs"
        raise AlchemyError(f"{folder} has finished: nothing to resume", hint=hint)


def _is_finished(info: Mapping[str, Any]) -> bool:
    """Return whether a record is running or finished; if its last checkpoint was not saved, it is unfinished."""
    return info["status"] == "running" or (info["status"] == "finished" and not info.get("unsaved"))


def find_unfinished(document: Document) -> Path | None:
    """Return the latest unfinished record of the same config in its `log_dir`, or None.

    Records without a config or versions are skipped, because their runs were killed before training started.
    """
    roots = [str(plugin.get("log_dir")) for plugin in document.get("plugins") or [] if plugin.get("log_dir")]
    wanted = config_hash(document)
    candidates = [folder for root in roots for folder in folders(Path(root).expanduser())]
    for folder, info in read_newest_first(candidates):
        has_config = (folder / "cfg.toml").is_file()
        if has_config and info["versions"] and info["cfg_hash"] == wanted and not _is_finished(info):
            return folder
    return None
