"""Projects with a trained record, copied for every damage, and checks of what a command does to them."""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from alchemy.checkpoint.manifest import checkpoints, parse_name
from alchemy.config.load import prepare_cfg
from alchemy.config.toml_writer import dumps
from alchemy.files import hash_file
from tests.docs import zygote
from tests.hostile.commands import Reading
from tests.tasks import pairs, texts

LIMIT = 60  # timeout of a command in seconds
OLDER, NEWER = "2026-01-01_00-00-00.000000", "2026-02-01_00-00-00.000000"
MODULES = (
    "alchemy.data.corpus.mapped_corpus", "alchemy.generate", "alchemy.models.encoders", "alchemy.optim.optimizers",
    "alchemy.pipeline.corpora", "alchemy.plugins.file_logger", "alchemy.sched.schedules", "alchemy.text.words",
    "alchemy.verify.finders", "alchemy.verify.gradient_check", "alchemy.verify.dry_run", "alchemy.predictor",
    "ctranslate2", "alchemy.text.external", "tests.hostile.warm",
)  # fmt: skip
TABLE = f"""\
metric = "dev/loss"
filter = "status:finished or not status:finished"
rows_by = "tag"
columns_by = "model.type"

[[columns]]
name = "dev/loss"

[[rows]]
name = "linked"
cells."dev/loss" = {{ record = "{NEWER}" }}
"""
Entry = tuple[int, int, int, str]  # mode, size, time, and content or target


@dataclass
class Outcome:
    code: int
    output: str
    touched: list[str]


@dataclass
class Sandbox:
    """The folder of damaged copies of the projects, one for each command."""

    programs: Path
    projects: Path
    work: Path

    def run(self, reading: Reading, damage: Callable[[Path], None]) -> Outcome | None:
        """Return what a command does with a damaged record; the record itself and new ones may change.

        None for a command that reads only the config, if that is intact: it behaves as with a valid record.
        """
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.projects / reading.project, self.work / "project", symlinks=True)
        for name in ("outside/secret.txt", "home/.bashrc"):
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_text("# untouched\n")
        for name in ("tmp", "project/out"):
            (self.work / name).mkdir()
        record = self.work / "project" / "records" / NEWER
        os.environ["HOSTILE_MARKER"] = str(self.work / "marker")  # created by code in a record if an attack succeeds
        damage(record)
        if reading.reads_config_alone and is_whole(record / "cfg.toml", self.projects / reading.project):
            return None
        before = snapshot(self.work)
        words = [word.replace("R", str(record.relative_to(self.work / "project")), 1) if word[:1] == "R" else word
                 for word in reading.words]  # fmt: skip
        code, output = self.ask(words, self.work / "project")
        return Outcome(code, output, self._touched(before, snapshot(self.work)))

    def ask(self, words: list[str], folder: Path) -> tuple[int, str]:
        output = self.programs.parent / "output.txt"
        home = self.work / "home"
        places = {"HOME": home, "XDG_CONFIG_HOME": home / ".config", "TMPDIR": self.work / "tmp"}
        env = {**os.environ, **{name: str(path) for name, path in places.items()}}
        address = self.programs.parent / "socket"
        code = zygote.ask(address, words, folder=folder, env=env, output=output, limit=LIMIT)
        return code, output.read_text("utf-8", "replace")

    def _touched(self, before: dict[str, Entry], after: dict[str, Entry]) -> list[str]:
        """Return what was changed, created or removed outside the allowed places."""
        changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        return sorted(name for name in changed if not self._is_own(name, new=name not in before))

    def _is_own(self, name: str, *, new: bool) -> bool:
        if name.startswith(
            (f"project/records/{NEWER}/", "project/out/", "project/tables/", "tmp/", "project/.alchemy")
        ):
            return True
        record = name.startswith("project/records/20") and not name.startswith(f"project/records/{OLDER}")
        return new and (record or "__pycache__" in name or is_store(name))


def is_whole(config: Path, project: Path) -> bool:
    """Return whether a record has its original config."""
    return config.is_file() and filecmp.cmp(config, project / "records" / NEWER / "cfg.toml", shallow=False)


def is_store(name: str) -> bool:
    """Return whether a file is the store of trusted configs."""
    return name.startswith("home/.") and "alchemy" in name


def snapshot(root: Path) -> dict[str, Entry]:
    """Return every entry below a folder except folders, whose times change with their content."""
    found: dict[str, Entry] = {}
    for folder, names, files in os.walk(root):
        for path in (Path(folder, name) for name in [*names, *files]):
            info = path.lstat()
            if stat.S_ISDIR(info.st_mode):
                continue
            content = os.readlink(path) if stat.S_ISLNK(info.st_mode) else ""
            if stat.S_ISREG(info.st_mode) and info.st_size < 2**20:
                content = hash_file(path)
            found[str(path.relative_to(root))] = (info.st_mode, info.st_size, info.st_mtime_ns, content)
    return found


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Sandbox]:
    """Train the projects, once for all damages."""
    (folder / "zygote").mkdir()
    with zygote.started(folder / "zygote", *MODULES) as programs:
        sandbox = Sandbox(programs, folder / "projects", folder / "work")
        for name in ("texts", "pairs"):
            make_project(sandbox, name)
        yield sandbox


def make_project(sandbox: Sandbox, name: str) -> None:
    """A project with a finished record and a later one that was killed at two thirds."""
    root = sandbox.projects / name
    (root / "src").mkdir(parents=True)
    (root / "src" / "__init__.py").touch()
    (root / "tables").mkdir()
    (root / "tables" / "t.toml").write_text(TABLE)
    with contextlib.chdir(root):
        if name == "pairs":
            pairs.build_corpora(Path())
            (root / "in.en").write_text("a dog\nsmall cat\n")
            (root / "in.de").write_text("ein hund\nkleiner kater\n")
            cfg = pairs.config(Path(), Path())
            del cfg["sched"]["pipes"]
        else:
            cfg = texts.config(Path(), "classes")
            cfg["task"]["datasets"]["test"] = cfg["task"]["datasets"]["dev"]
        cfg["sched"]["epochs"] = 3
        cfg["checkpoint"] = {
            "asynchronous": False,
            "every": {"epochs": 1},
            "last": 9,
            "monitor": "dev/loss",
            "mode": "min",
        }
        (root / "train.toml").write_text(dumps(prepare_cfg(cfg)))
    for record in (OLDER, NEWER):
        code, output = sandbox.ask(["run", "train.toml", "--device", "-1"], root)
        assert code == 0, output
        (made,) = (path for path in (root / "records").iterdir() if path.name not in (OLDER, NEWER))
        made.rename(made.with_name(record))
    _rewind(root / "records" / NEWER)


def _rewind(record: Path) -> None:
    """Make a record look like a run that was killed in its last epoch."""
    states = checkpoints(record / "state")
    last = [path for path in states if parse_name(path)[0] == parse_name(states[-1])[0]]
    for path in (*last, record / "state" / "last", record / "state" / "best"):
        shutil.rmtree(path)
    for name in ("last", "best"):
        shutil.copytree(states[-len(last) - 1], record / "state" / name)
    info = json.loads((record / "record.json").read_text())
    info |= {"status": "killed", "reason": "its process is gone", "best": None, "id": record.name}
    (record / "record.json").write_text(json.dumps(info))
