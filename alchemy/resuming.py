"""Going on with a run that was interrupted: which record, with what, and that nothing has changed in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alchemy.config.known_tables import RUNNER_NAMES
from alchemy.config.load import prepare_cfg
from alchemy.config.secrets import missing_secrets
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError, ConfigError, Problem, Refused
from alchemy.files import locked
from alchemy.launch.device import alloc
from alchemy.launch.project_imports import add_to_path
from alchemy.pipeline.tokenizers import tokenizer_of
from alchemy.plugins.file_logger import config_hash
from alchemy.plugins.resume_changes import changes, refuse_changes
from alchemy.records.folder import LOCK, find, folders, read_info, read_newest_first, refuse_running
from alchemy.records.local_copies import config_of, use_own_tokenizers
from alchemy.registry import plain
from alchemy.result import RunResult, expect_a_look
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
    """Goes on with a record from its newest valid checkpoint, exactly as if it had never stopped.

    What differs from then is told; what would make it another run is refused unless `allow` names it.
    """
    folder = find(record)
    document = prepare_cfg(config_of(folder), overrides=overrides, user_dir=user_dir, record=True)
    add_to_path(user_dir)
    if str(document.get("runner")).rpartition(".")[2] in NO_TRAINING:
        raise AlchemyError(f"{folder} is a test or a prediction: there is no training to go on with")
    with locked(folder / LOCK) as free:
        if not free:
            raise AlchemyError(f"another process writes to {folder}", hint="wait for it, or end it with `alchemy stop`")
    found = changes(folder, document, alloc(device)[0], user_dir)
    _refuse_if_over(folder, changed=any(change.breaks or change.of_config for change in found))
    refuse_changes(found, allow)
    if missing := missing_secrets(document):
        raise ConfigError(missing)
    told = [f"since the record was written: {change.name} {change.text}" for change in found]
    if not any(text.partition("=")[0].strip().endswith("tokenizer") for text in overrides):
        why = "in the config is gone, or another one by now: that of the record is used"
        told += [f"the tokenizer of {field!r} {why}" for field in use_own_tokenizers(document, folder, _is_same)]
    # told by the run itself, once its log is open
    document.notes += [Problem(text, error=False) for text in told]
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
    return expect_a_look(result)


def _is_same(named: object, own: Path) -> bool:
    """Whether a config still names the tokenizer that a record has; one that is learnt is compared when it is."""
    if is_class(named):
        return True
    try:
        return tokenizer_of(plain(named)).digest == tokenizer_of(own).digest
    except AlchemyError:
        return False


def _refuse_if_over(folder: Path, *, changed: bool) -> None:
    info = read_info(folder)
    refuse_running(folder, info)
    if _is_over(info) and not changed:
        hint = "to train longer: --set sched.epochs=N --allow sched.epochs"
        raise AlchemyError(f"{folder} has finished: there is nothing to go on with", hint=hint)


def _is_over(info: Mapping[str, Any]) -> bool:
    """Whether a record cannot be resumed as it is; one whose last state could not be saved can."""
    return info["status"] == "running" or (info["status"] == "finished" and not info.get("unsaved"))


def unfinished(document: Document) -> Path | None:
    """The newest record of the same config, under its own log_dir, that has not come to its end; None without one.

    Records without a config, or killed before their versions were written, are skipped: they hold no training.
    """
    roots = [str(plugin.get("log_dir")) for plugin in document.get("plugins") or [] if plugin.get("log_dir")]
    wanted = config_hash(document)
    found = [folder for root in roots for folder in folders(Path(root).expanduser())]
    for folder, info in read_newest_first(found):
        whole = (folder / "cfg.toml").is_file()
        if whole and info["versions"] and info["cfg_hash"] == wanted and not _is_over(info):
            return folder
    return None
