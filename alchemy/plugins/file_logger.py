"""The record folder of a run: made before training starts, closed with an honest status."""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from loguru import logger

from alchemy.config.secrets import as_written, contains_secret, hide, hide_words, mask_secrets, without_secrets
from alchemy.config.toml_writer import dumps
from alchemy.config.tree import Document, Table
from alchemy.constraints import DateFormat, Inside, LogFormat, PathName
from alchemy.errors import AlchemyError, Refused
from alchemy.files import hash_text, hash_tree, read_bytes, write_atomic
from alchemy.launch.process_group import get_rank_info
from alchemy.plugins.base import AlchemyPlugin
from alchemy.plugins.last_run_diff import compare_with_last
from alchemy.plugins.log_sinks import DATE_FORMAT, FILE_FORMAT, Level, file_log
from alchemy.records import Record
from alchemy.records.folder import INFO
from alchemy.records.symlinks import path_inside
from alchemy.trust import CONFIG, digest_of, trust

# environment variables that change what a run computes; nothing else of the environment is kept, it may hold secrets
TELLING = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED")


class Sources(NamedTuple):
    """What a run is made from: files of the record and fields of its `record.json`."""

    files: dict[str, str]
    fields: dict[str, object]


@AlchemyPlugin.register()
class FileLogger(AlchemyPlugin):
    """Keeps a record under `log_dir`: config, log, numbers, environment. With `--no-file` it writes nothing."""

    def __init__(
        self,
        *,
        log_dir: Annotated[str, PathName()],
        subdirs: list[Annotated[str, Inside()]] = [],
        create_readme: bool = True,
        backup_cfg: bool = True,
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
        self.record = self._create(os.path.expanduser(log_dir), str(tag), self._sources(backup_cfg))
        folder = self.record.path
        run.record = self.record
        run.record_dir = folder
        level = "DEBUG" if run.debug else level
        try:
            log = file_log(folder / "run.log", level, format=format, date_format=date_format)
            self.record.on_removal(run.exits.enter_context(log).reopen)
            # here and not in `exit`: a plugin that fails later in its constructor must not leave a record "running"
            run.exits.push(self._close)
            self._fill(folder, subdirs, create_readme)
        except OSError as error:
            raise AlchemyError(f"the record folder {folder} cannot be written: {error}") from error
        logger.info("record: {}", folder)
        if run.resume_from is None:
            compare_with_last(run.cfg, self.record.info, folder)

    def _create(self, log_dir: str, tag: str, sources: Sources) -> Record:
        run = self.run
        name = run.ctime.strftime("%Y-%m-%d_%H-%M-%S.%f")
        if CONFIG in sources.files:  # before it is written: a run that is killed in between can be resumed
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
                **sources.fields,
            )
        record = Record.reopen(run.resume_from)
        # not before the state was accepted: the next attempt must see the same changes
        record.when_resumed = functools.partial(_renew, record, sources)
        return record

    def _fill(self, folder: Path, subdirs: list[str], create_readme: bool) -> None:
        run = self.run
        for name in ("checkpt", *subdirs):
            path_inside(folder, name).mkdir(parents=True, exist_ok=True)
        run.symbols.set_global("checkpt_dir", folder / "checkpt")
        if create_readme and not (folder / "README.md").exists():  # of a resumed run it may have been edited
            parts = [f"# {hide(str(run.cfg.get('tag')))}", run.symbols.try_get_global("desc") or ""]
            if run.cfg.variant:
                delta = dumps(mask_secrets(Table(run.cfg.delta))).strip()
                parts.append(f"Variant `{run.cfg.variant}`:\n\n```toml\n{delta}\n```")
            write_atomic(folder / "README.md", "\n\n".join(part for part in parts if part) + "\n")

    def _sources(self, backup_cfg: bool) -> Sources:
        """Collects what the run is made from, before parts take keys out of its config."""
        run = self.run
        fields: dict[str, object] = {
            "cfg_hash": config_hash(run.cfg),
            "code_hash": hash_code(run.symbols.try_get_global("user_dir") or "src"),
            "versions": versions(),
        }
        files = {"env.json": json.dumps(environment(run.device_info or {}), indent=1, default=str) + "\n"}
        if backup_cfg:
            masked = mask_secrets(run.cfg)
            files["cfg.toml"], fields["cfg_values"] = _text_of(masked), values_hash(masked)
        return Sources(files, fields)

    def _tell_cost(self) -> None:
        """What all this writing has taken from the run."""
        assert self.record is not None
        run, series, saving = self.run, self.record.series, self.run.checkpoints.cost
        seconds = run.elapsed - series.seconds  # of this generation, as all that follows
        calling = {
            "numbers": run.progress.tracking_seconds,
            "ledger": run.ledger.cost["calling"],
            "checkpoints": saving["calling"],
        }
        writing = series.cost["writing"] + run.ledger.cost["writing"] + saving["writing"]
        parts = [f"{name} {_share(cost, seconds)}" for name, cost in calling.items()]
        parts.append(f"in threads beside it {_share(writing, seconds)}")
        logger.debug("kept from its work, of {:.1f} s: {}", seconds, "; ".join(parts))

    def _close(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self.record is not None
        if isinstance(error, Refused):
            self.record.undo_reopen()
            return
        status, reason = self.run.outcome(error)
        self._tell_cost()
        unsaved = self.run.checkpoints.unsaved
        if unsaved:
            self.record.remarks.append(f"the last state could not be saved: {unsaved}")
            logger.error("{}; `alchemy resume` continues from the previous one", self.record.remarks[-1])
        try:
            self.record.finish(status, reason, unsaved=unsaved)
        except OSError as error:  # the outcome of the run does not depend on it
            logger.error("{} could not be set to status {}: {}", self.record.path / INFO, status, error)
        for name, rows in (("metrics.jsonl", self.record.series), ("ledger.jsonl", self.run.ledger)):
            if rows.dropped:
                logger.warning("{} rows of {} could not be written: {}", rows.dropped, name, rows.error)
        # a failure has been logged
        level = "DEBUG" if status == "failed" else "INFO"
        logger.log(level, "{}{}: {}", status, f" ({reason})" if reason else "", self.record.path)


def _share(part: float, whole: float) -> str:
    return f"{part:.2f} s, {part / max(whole, 1e-9):.2%}"


def _renew(record: Record, sources: Sources) -> None:
    """Updates the sources in the record of a resumed run."""
    changed = [name for name, text in sources.files.items() if _keep_former(record.path, record.generation, name, text)]
    record.files, fields = sources.files, dict(sources.fields)
    if "cfg.toml" not in changed:  # the hash of a config without a seed differs from that of its cfg.toml
        del fields["cfg_hash"]
    record.note(**fields)


def _keep_former(folder: Path, gen: int, name: str, text: str) -> bool:
    """Writes a file of the record; if an earlier generation had another, that stays under its number."""
    path = folder / name
    former = read_bytes(path).decode("utf-8") if path.exists() else text
    if former != text:
        write_atomic(path.with_name(f"{path.stem}.{gen - 1}{path.suffix}"), former)
    write_atomic(path, text)
    return former != text


def _text_of(masked: Document) -> str:
    """A masked config as TOML, without its comments if one of them shows a secret."""
    text = dumps(masked)
    return dumps(masked.plain()) if contains_secret(text) else text


def hash_code(user_dir: str) -> str:
    """One hash of all modules below `user_dir`, imported or not."""
    return hash_tree(user_dir) if os.path.isdir(user_dir) else ""


def values_hash(cfg: Document) -> str:
    """The values of a config: a resume sees by it that somebody has edited `cfg.toml`."""
    return hash_text(json.dumps(as_written(cfg), sort_keys=True, default=str))


def config_hash(cfg: Document) -> str:
    """One hash for equal configs; a seed that was drawn for this run alone does not make it another config."""
    drawn = "seed" in cfg and cfg.origin_of("seed").kind == "drawn"
    values = {key: value for key, value in without_secrets(cfg).items() if not (drawn and key == "seed")}
    return hash_text(json.dumps(values, sort_keys=True, default=str))


def versions() -> dict[str, str]:
    return {"alchemy": version("alchemy"), "torch": version("torch"), "python": platform.python_version()}


def environment(device_info: dict[str, Any]) -> dict[str, Any]:
    """What the numbers of a run may depend on, beside its config and code."""
    packages = {dist.metadata["Name"]: dist.version for dist in distributions()}
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
        "env": {name: os.environ[name] for name in TELLING if name in os.environ},
        "packages": dict(sorted(packages.items(), key=lambda row: str(row[0]).lower())),
    }
