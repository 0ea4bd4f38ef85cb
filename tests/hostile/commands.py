"""Every command with the arguments that make it read a record; `R` is the record."""

from __future__ import annotations

from typing import NamedTuple

from alchemy.cli import COMMANDS
from alchemy.cli.options import build_parser

CPU = ("--device", "-1")
CONFIG = "R/cfg.toml"


class Reading(NamedTuple):
    """A command line and its project: `texts` classifies, `pairs` translates."""

    words: tuple[str, ...]
    project: str = "texts"

    @property
    def reads_config_alone(self) -> bool:
        return CONFIG in self.words and self.words[0] != "run"  # a run also looks at the records next to its own


READING: dict[str, Reading] = {
    "run": Reading(("run", CONFIG, *CPU)),
    "run --resume": Reading(("run", "train.toml", "--resume", "auto", "--test", *CPU)),
    "resume": Reading(("resume", "R", *CPU)),
    "rerun": Reading(("rerun", "R", *CPU)),
    "test": Reading(("test", "R", *CPU)),
    "predict": Reading(("predict", "R", "--text", "a fine day", *CPU)),
    "predict --split": Reading(("predict", "R", "--split", "dev", "--out", "out/dev.jsonl", *CPU)),
    "generate": Reading(("generate", "R", "--input", "in.en", "--max-length", "4", *CPU), "pairs"),
    "export": Reading(("export", "R", "--format", "ctranslate2", "--lines", "in.en", *CPU), "pairs"),
    "score": Reading(("score", "R", "--source", "in.en", "--target", "in.de", *CPU), "pairs"),
    "check": Reading(("check", CONFIG, "--deep", *CPU)),
    "config show": Reading(("config", "show", CONFIG, "--defaults")),
    "config explain": Reading(("config", "explain", CONFIG, "optim.lr")),
    "config diff": Reading(("config", "diff", "train.toml", CONFIG)),
    "data peek": Reading(("data", "peek", CONFIG)),
    "find lr": Reading(("find", "lr", CONFIG, "--updates", "3", *CPU)),
    "find batch-size": Reading(("find", "batch-size", CONFIG, "--max", "2", *CPU)),
    "checkpoint ls": Reading(("checkpoint", "ls", "R")),
    "checkpoint show": Reading(("checkpoint", "show", "R")),
    "checkpoint show best": Reading(("checkpoint", "show", "R/state/best")),
    "checkpoint verify": Reading(("checkpoint", "verify", "R")),
    "checkpoint average": Reading(("checkpoint", "average", "R", "--last", "2", "--to", "out/average")),
    "mail": Reading(("mail", "--json")),
    "mail show": Reading(("mail", "show", "R")),
    "mail read": Reading(("mail", "read", "R")),
    "mail clear": Reading(("mail", "clear", "R")),
    "stop": Reading(("stop", "R")),
    "stop latest": Reading(("stop", "latest")),
    "replay": Reading(("replay", "R", "--update", "6", *CPU)),
    "trust": Reading(("trust", "R")),
    "verify resume": Reading(("verify", "resume", CONFIG, "--updates", "3", *CPU)),
    "verify parallel": Reading(("verify", "parallel", CONFIG, "--ranks", "1", *CPU)),
    "verify determinism": Reading(("verify", "determinism", CONFIG, "--updates", "2", *CPU)),
    "verify ledger": Reading(("verify", "ledger", "R")),
    "verify ledger latest": Reading(("verify", "ledger", "latest")),
    "ls": Reading(("ls", "--all", "--columns", "+reason,cmd,path")),
    "ls --csv": Reading(("ls", "--csv", "--each")),
    "index": Reading(("index", "--rebuild")),
    "show": Reading(("show", "R")),
    "show --json": Reading(("show", "R", "--json")),
    "search": Reading(("search", "classifier", "--all")),
    "tag": Reading(("tag", "R", "+paper", "--remove", "draft")),
    "note": Reading(("note", "R", "a note")),
    "purpose": Reading(("purpose", "R", "a purpose")),
    "open": Reading(("open", "R", "--config")),
    "du": Reading(("du", "R")),
    "rm": Reading(("rm", "R", "--yes")),
    "gc": Reading(("gc", "--filter", "id:2026-02*", "--keep", "best", "--yes")),
    "archive": Reading(("archive", "R", "-o", "out/run.tar.gz")),
    "diff": Reading(("diff", "R", "last~1")),
    "diff .": Reading(("diff", "R", ".")),
    "compare": Reading(("compare", "R", "last~1")),
    "plot": Reading(("plot", "R", "last~1", "--metric", "train/loss", "--x", "time", "--out", "out/plot.svg")),
    "plot in the terminal": Reading(("plot", "R")),
    "watch": Reading(("watch", "R", "--once")),
    "model": Reading(("model", "R", "--graph", "out/model.svg")),
    "report": Reading(("report", "R", "last~1", "--out", "out/report.html")),
    "table new": Reading(("table", "new", "main")),
    "table show": Reading(("table", "show", "t", "--format", "html")),
    "table show --json": Reading(("table", "show", "t", "--json")),
    "table link": Reading(("table", "link", "t", "linked", "dev/loss", "R")),
    "table save": Reading(("table", "save", "t")),
    "export-tb": Reading(("export-tb", "R", "out/tensorboard")),
    "__complete": Reading(("__complete", "run", CONFIG, f"{CONFIG}#")),
}

NOT_READING = {
    "checkpoint import": "reads a file that torch.save wrote",
    "config schema": "reads nothing",
    "data build": "reads texts",
    "data cache": "reads the cache",
    "data info": "reads corpora",
    "import": "reads an archive",
    "import-tb": "reads event files",
    "mail send": "reads the same mailbox, if the project is set up to send mail",
    "mail test": "reads settings",
    "parts": "reads the source of parts",
    **{f"queue {name}": "changes entries" for name in ("add", "hold", "release", "move", "rm", "stop")},
    **{f"queue {name}": "reads the records that its own runs have created" for name in ("ls", "start")},
    "queue logs": "reads a log",
    "sweep run": "reads the records that its own runs have created",
    **{f"sweep {name}": "reads the files of sweeps" for name in ("show", "ls", "rm")},
    "table ls": "reads tables",
    "table set": "reads a table",
    "new": "writes a project",
    "version": "reads nothing",
    "completion": "reads nothing",
}


def all_commands() -> set[str]:
    """Return the name of each command and of each action: `run`, `config show`, .."""
    actions = {name: list(build_parser(name).nested()) for name in COMMANDS}
    return {f"{name} {action}" for name, nested in actions.items() for action in nested} | {
        name for name, nested in actions.items() if not nested
    }
