"""Create the record folder of a run, and close it with the final status."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from loguru import logger

from alchemy.config.secrets import contains_secret, hide, hide_words, mask_secrets
from alchemy.config.toml_writer import dumps
from alchemy.config.tree import Document, Table
from alchemy.constraints import DateFormat, Inside, LogFormat, NonNegativeFloat, PathName
from alchemy.errors import AlchemyError, Refused
from alchemy.files import hash_file, hash_tree, read_bytes, write_atomic
from alchemy.launch.project_imports import import_roots, imported_files
from alchemy.launch.ranks import get_rank_info
from alchemy.plugins.base import AlchemyPlugin
from alchemy.plugins.code_state import read_alchemy, read_git, zip_alchemy
from alchemy.plugins.config_hash import config_hash, fold_hash, values_hash
from alchemy.plugins.last_run_diff import compare_with_last
from alchemy.plugins.log_sinks import DATE_FORMAT, FILE_FORMAT, Level, file_log
from alchemy.records import Record
from alchemy.records.create_folder import read_sweep
from alchemy.records.environment import ENV_NAMES, installed_packages
from alchemy.records.media_file import MAX_MB
from alchemy.records.status import INFO
from alchemy.records.symlinks import path_inside
from alchemy.trust import CONFIG, digest_of, record_of, trust

DIFFS = ("git.diff", "alchemy.diff")


class Sources(NamedTuple):
    """Config, code and environment of a run, as files of the record and fields of its `record.json`."""

    files: dict[str, str]
    fields: dict[str, object]
    diffs: dict[str, str] = {}  # files that a run can do without, if they cannot be written


@AlchemyPlugin.register()
class FileLogger(AlchemyPlugin):
    """Plugin that writes a record to `log_dir`: config, log, metrics, media, environment. `--no-file` disables it.

    `max_media_mb` bounds the size of images and other media; 0 disables them.
    """

    def __init__(
        self,
        *,
        log_dir: Annotated[str, PathName()],
        subdirs: list[Annotated[str, Inside()]] = [],
        create_readme: bool = True,
        backup_cfg: bool = True,
        max_media_mb: NonNegativeFloat = MAX_MB,
        level: Level = "DEBUG",
        format: Annotated[str, LogFormat()] = FILE_FORMAT,
        date_format: Annotated[str, DateFormat()] = DATE_FORMAT,
    ) -> None:
        super().__init__()
        self.record: Record | None = None
        run = self.run
        if run.symbols.try_get_global("no_file", False) or not run.group.is_main:
            run.record_dir = None
            run.symbols.set_global("checkpt_dir", None)
            return
        tag = run.cfg.get("tag")
        if not tag:
            raise AlchemyError(
                "a record needs a tag", where=run.cfg.path, hint='add tag = "..." at the top of the config'
            )
        sources = self._collect_sources(backup_cfg)
        self.record = self._create(os.path.expanduser(log_dir), str(tag), sources)
        folder = self.record.path
        run.record = self.record
        run.record_dir = folder
        self.record.media.max_mb = max_media_mb
        if max_media_mb:
            run.media.sinks.append(self.record.media.write)
        self._watch_gpus()
        level = "DEBUG" if run.debug else level
        try:
            log = file_log(folder / "run.log", level, format=format, date_format=date_format)
            self.record.on_removal(run.exits.enter_context(log).reopen)
            # not in `exit`: if a later plugin fails in its constructor, the record must not stay "running"
            run.exits.push(self._close)
            self._fill(folder, subdirs, create_readme)
            if run.resume_from is None:
                _write_diffs(self.record, sources.diffs)
        except OSError as error:
            raise AlchemyError(f"cannot write the record folder {folder}: {error}") from error
        logger.info("record: {}", folder)
        if run.resume_from is None and not record_of(self._user_dir):  # a rerun is compared with its record at the end
            compare_with_last(run.cfg, self.record.info, folder)

    def _create(self, log_dir: str, tag: str, sources: Sources) -> Record:
        run = self.run
        name = run.ctime.strftime("%Y-%m-%d_%H-%M-%S.%f")
        if CONFIG in sources.files:  # before the file is written, so that a run killed in between can be resumed
            trust(digest_of(sources.files[CONFIG].encode()), (run.resume_from or Path(log_dir, name)) / CONFIG)
        if run.resume_from is None:
            return Record.create(
                log_dir,
                name=name,
                tag=tag,
                purpose=run.symbols.try_get_global("desc") or "",
                files=sources.files,
                seed=run.seed,
                parent=run.cfg.parent or None,
                variant=run.cfg.variant,
                delta=mask_secrets(Table(run.cfg.delta)).plain(),
                sweep=read_sweep(),
                **sources.fields,
            )
        record = Record.reopen(run.resume_from)
        # only once the state is accepted: until then, the next attempt must see the same changes
        record.when_resumed = functools.partial(_update_sources, record, sources)
        return record

    def _fill(self, folder: Path, subdirs: list[str], create_readme: bool) -> None:
        run = self.run
        for name in ("checkpt", *subdirs):
            path_inside(folder, name).mkdir(parents=True, exist_ok=True)
        run.symbols.set_global("checkpt_dir", folder / "checkpt")
        if create_readme and not (folder / "README.md").exists():  # in a resumed run, the user may have edited it
            parts = [f"# {hide(str(run.cfg.get('tag')))}", run.symbols.try_get_global("desc") or ""]
            if run.cfg.variant:
                delta = dumps(mask_secrets(Table(run.cfg.delta))).strip()
                parts.append(f"Variant `{run.cfg.variant}`:\n\n```toml\n{delta}\n```")
            write_atomic(folder / "README.md", "\n\n".join(part for part in parts if part) + "\n")

    def _collect_sources(self, backup_cfg: bool) -> Sources:
        """Collect config, code and environment of the run, before parts remove keys from its config."""
        run = self.run
        user_dir = self._user_dir
        git, own = read_git(Path(import_roots(user_dir)[0])), read_alchemy()
        fields: dict[str, object] = {
            "kind": run.kind,
            "cfg_hash": config_hash(run.cfg),
            "fold_hash": fold_hash(run.cfg),
            "code_hash": hash_code(user_dir),
            "versions": versions(),
            "git": git.fields,
            "alchemy": own.fields,
        }
        machine = json.dumps(environment(run.device_info or {}), indent=1, default=str)
        files = {"env.json": f"{machine}\n"}
        if backup_cfg:
            masked = mask_secrets(run.cfg)
            files["cfg.toml"], fields["cfg_values"] = _to_toml(masked), values_hash(masked)
        return Sources(files, fields, {**git.files, **own.files})

    @property
    def _user_dir(self) -> str:
        return str(self.run.symbols.try_get_global("user_dir") or "src")

    def _watch_gpus(self) -> None:
        """Measure the use of the GPUs; the processes of a distributed run have one each."""
        device = self.run.device
        if self.record is not None and device is not None and device.type == "cuda":
            if torch.cuda.is_initialized():  # an earlier run in this process
                torch.cuda.reset_peak_memory_stats(device)
            self.record.usage.watch_gpus(self.run.group.size, lambda: torch.cuda.max_memory_allocated(device) / 2**20)

    def _log_overhead(self) -> None:
        """Log the tracking overhead."""
        assert self.record is not None
        run, series, saving = self.run, self.record.series, self.run.checkpoints.cost
        seconds = run.elapsed - series.seconds  # since the run was last started or resumed, like the costs below
        calling = {
            "metrics": run.progress.tracking_seconds,
            "ledger": run.ledger.cost["calling"],
            "checkpoints": saving["calling"],
        }
        writing = series.cost["writing"] + run.ledger.cost["writing"] + saving["writing"]
        parts = [f"{name} {_format_share(cost, seconds)}" for name, cost in calling.items()]
        parts.append(f"background threads {_format_share(writing, seconds)}")
        logger.debug("tracking overhead in {:.1f} s: {}", seconds, "; ".join(parts))

    def _close(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self.record is not None
        if isinstance(error, Refused):
            self.record.undo_reopen()
            return
        status, reason = self.run.outcome(error)
        self._log_overhead()
        self.run.media.close()
        unsaved = self.run.checkpoints.unsaved
        if unsaved:
            self.record.remarks.append(f"the last state could not be saved: {unsaved}")
            logger.error("{}; `alchemy resume` continues from the previous one", self.record.remarks[-1])
        code = self.record.info["code"] or hash_files(imported_files(self._user_dir))  # tests save no state
        try:
            self.record.finish(status, reason, unsaved=unsaved, code=code)
        except OSError as error:  # does not change the outcome of the run
            logger.error("{} could not be set to status {}: {}", self.record.path / INFO, status, error)
        for name, rows in (("metrics.jsonl", self.record.series), ("ledger.jsonl", self.run.ledger)):
            if rows.dropped:
                logger.warning("{} rows of {} could not be written: {}", rows.dropped, name, rows.error)
        # a failure has already been logged
        level = "DEBUG" if status == "failed" else "INFO"
        logger.log(level, "{}{}: {}", status, f" ({reason})" if reason else "", self.record.path)


def _format_share(part: float, whole: float) -> str:
    return f"{part:.2f} s, {part / max(whole, 1e-9):.2%}"


def _update_sources(record: Record, sources: Sources) -> None:
    """Update the sources in the record of a resumed run."""
    changed = [
        name for name, text in sources.files.items() if _write_versioned(record.path, record.generation, name, text)
    ]
    _write_diffs(record, sources.diffs)
    record.files, fields = sources.files, dict(sources.fields)
    if "cfg.toml" not in changed:  # without a seed, the hashes of the config and of its cfg.toml differ
        del fields["cfg_hash"]
    record.note(**fields)


def _write_diffs(record: Record, diffs: Mapping[str, str]) -> None:
    """Write what the commits of the project and of alchemy lack; an error is only a warning."""
    try:
        for name in DIFFS:
            text, path = diffs.get(name, ""), path_inside(record.path, name)
            if text or path.is_file():
                _write_versioned(record.path, record.generation, name, text)
            if not text:
                path.unlink(missing_ok=True)
        if archive := zip_alchemy():
            write_atomic(record.path / "alchemy.zip", archive)
    except (OSError, ValueError, AlchemyError) as error:
        logger.warning("the uncommitted changes of the code are not in the record: {}", error)


def _write_versioned(folder: Path, gen: int, name: str, text: str) -> bool:
    """Write a file in the record; if its content has changed, keep the previous version, named after its generation."""
    path = folder / name
    previous = read_bytes(path).decode("utf-8") if path.exists() else text
    if previous != text:
        write_atomic(path.with_name(f"{path.stem}.{gen - 1}{path.suffix}"), previous)
    write_atomic(path, text)
    return previous != text


def _to_toml(masked: Document) -> str:
    """Return a masked config as TOML, without comments if one of them contains a secret."""
    text = dumps(masked)
    return dumps(masked.plain()) if contains_secret(text) else text


def hash_code(user_dir: str) -> str:
    """Return a hash of all modules in `user_dir`, imported or not."""
    return hash_tree(user_dir) if os.path.isdir(user_dir) else ""


def hash_files(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the hash of each file; files that have been removed are left out."""
    found = {}
    for name, path in files.items():
        with contextlib.suppress(OSError):
            found[name] = hash_file(path)
    return found


def versions() -> dict[str, str]:
    """Return the versions of alchemy, torch and Python."""
    return {"alchemy": version("alchemy"), "torch": version("torch"), "python": platform.python_version()}


def environment(device_info: dict[str, Any]) -> dict[str, Any]:
    """Return everything that results may depend on, apart from config and code."""
    return {
        "format": 1,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": get_rank_info().size,
        "device": device_info,
        "cwd": os.getcwd(),
        "argv": hide_words(sys.argv),
        "env": {name: os.environ[name] for name in ENV_NAMES if name in os.environ},
        "packages": installed_packages(),
    }
