"""Records whose config, or what it refers to, tries to run code or to write outside the record.

Each case turns a copy of a valid record into a hostile one. An attack that succeeds leaves a file or folder whose name
begins with that of `marker()`: the path in the environment variable HOSTILE_MARKER, else `hostile-marker` in the
working folder. The variable must be set before a case is applied, since the path is written into the record.
"""

from __future__ import annotations

import json
import os
import pickle
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alchemy.config.toml_writer import dumps

Edit = Callable[[dict[str, Any], Path], None]
CASES: dict[str, Callable[[Path], None]] = {}


def marker() -> Path:
    return Path(os.environ.get("HOSTILE_MARKER", "hostile-marker")).absolute()


def touch() -> str:
    return f"touch '{marker()}'"


def python() -> str:
    """Return Python code that leaves the marker."""
    return f"open({str(marker())!r}, 'w').close()\n"


class _Payload:
    """An object that leaves the marker when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (touch(),)


def case(edit: Edit) -> Edit:
    """Add a case that edits the config as data."""

    def apply(record: Path) -> None:
        config = tomllib.loads((record / "cfg.toml").read_text("utf-8"))
        edit(config, record)
        (record / "cfg.toml").write_text(dumps(config), "utf-8")

    CASES[edit.__name__] = apply
    return edit


def splits(config: dict[str, Any]) -> list[dict[str, Any]]:
    return list(config["task"]["datasets"].values())


def feed(config: dict[str, Any], lines: list[str], *pipes: dict[str, Any]) -> None:
    """Set the pipes of every split, with the lines as samples."""
    source = {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": lines}
    for split in splits(config):
        split["pipes"] = [source, *pipes]


# -- a function or class where a part belongs
@case
def model_is_os_system(config: dict[str, Any], record: Path) -> None:
    config["model"] = {"type": "os.system", "command": touch()}


@case
def model_is_getoutput(config: dict[str, Any], record: Path) -> None:
    config["model"] = {"type": "subprocess.getoutput", "cmd": touch()}


@case
def model_is_our_code_parser(config: dict[str, Any], record: Path) -> None:
    config["model"] = {"type": "alchemy.config.python_config.parse_code", "text": python(), "name": "x"}


@case
def model_is_a_module_of_a_library(config: dict[str, Any], record: Path) -> None:
    config["model"] = {"type": "torch.utils.cpp_extension.subprocess.getoutput", "cmd": touch()}


@case
def model_through_a_name_that_alchemy_imports(config: dict[str, Any], record: Path) -> None:
    config["model"] = {"type": "alchemy.files.os.system", "command": touch()}


@case
def model_through_torch_nn(config: dict[str, Any], record: Path) -> None:
    config["model"] = {"type": "torch.nn.modules.module.os.system", "command": touch()}


@case
def model_is_a_pickle(config: dict[str, Any], record: Path) -> None:
    (record / "evil.pt").write_bytes(pickle.dumps(_Payload()))
    config["model"] = {"type": "torch.load", "f": str(record / "evil.pt"), "weights_only": False}


@case
def loss_is_a_process(config: dict[str, Any], record: Path) -> None:
    config["criterion"] = {"type": "subprocess.Popen", "args": ["touch", str(marker())]}


@case
def optimizer_in_the_record(config: dict[str, Any], record: Path) -> None:
    config["optim"] = {"type": f"{_module(record)}.Part", "lr": 0.1}


# -- functions of the data
@case
def map_calls_os_system(config: dict[str, Any], record: Path) -> None:
    feed(config, [touch()] * 8, {"type": "alchemy.pipeline.lst.Map", "fn": "os.system"})


@case
def map_calls_exec(config: dict[str, Any], record: Path) -> None:
    feed(config, [python()] * 8, {"type": "alchemy.pipeline.lst.Map", "fn": "builtins.exec"})


@case
def map_calls_a_table(config: dict[str, Any], record: Path) -> None:
    fn = {"type": "subprocess.Popen", "args": ["touch", str(marker())]}
    feed(config, ["x"] * 8, {"type": "alchemy.pipeline.lst.Map", "fn": fn})


@case
def stream_filter_calls_eval(config: dict[str, Any], record: Path) -> None:
    text = f"__import__('os').system({touch()!r})"
    feed(config, [text] * 8, {"type": "alchemy.pipeline.itr.Filter", "fn": "builtins.eval"})


@case
def map_with_spaces_and_wide_letters(config: dict[str, Any], record: Path) -> None:
    pipes = [{"type": "alchemy.pipeline.lst.Map", "fn": fn} for fn in (" os.system", "ｏｓ.system", "os.system ")]
    feed(config, [touch()] * 8, *pipes)


@case
def collate_is_a_process(config: dict[str, Any], record: Path) -> None:
    feed(config, ["touch", str(marker())])
    for split in splits(config):
        split |= {"collate_fn": "subprocess.check_call", "batch_size": 2, "shuffle": False}


@case
def collate_has_a_process_inside(config: dict[str, Any], record: Path) -> None:
    inner = {"type": "subprocess.Popen", "args": ["touch", str(marker())]}
    for split in splits(config):
        split["collate_fn"] = {"type": "alchemy.data.collate.Pad", "fields": inner}


@case
def sampler_is_a_process(config: dict[str, Any], record: Path) -> None:
    for split in splits(config):
        split["sampler"] = {"type": "subprocess.Popen", "args": ["touch", str(marker())]}


@case
def worker_start_is_a_process(config: dict[str, Any], record: Path) -> None:
    for split in splits(config):
        start = {"type": "subprocess.Popen", "args": ["touch", str(marker())]}
        split |= {"num_workers": 1, "worker_init_fn": start}


# -- modules inside the record
def _module(record: Path) -> str:
    """Return the name of a module in the record, seen from the working folder."""
    (record / "evil.py").write_text(f"{python()}class Part:\n    def __init__(self, **options): pass\n")
    return os.path.relpath(record / "evil").replace(os.sep, ".")


@case
def runner_in_the_record(config: dict[str, Any], record: Path) -> None:
    config["runner"] = f"{_module(record)}.Part"


@case
def plugin_in_the_record(config: dict[str, Any], record: Path) -> None:
    config.setdefault("plugins", []).append({"type": f"{_module(record)}.Part"})


@case
def task_in_the_record(config: dict[str, Any], record: Path) -> None:
    config["task"]["type"] = f"{_module(record)}.Part"


@case
def module_under_any_key(config: dict[str, Any], record: Path) -> None:
    config["model"]["encoder_name"] = f"{_module(record)}.Part"


@case
def tokenizer_in_the_record(config: dict[str, Any], record: Path) -> None:
    folder = record / "words"
    folder.mkdir(exist_ok=True)
    manifest = {"format": 1, "type": f"{_module(record)}.Part", "options": {}, "files": {}}
    (folder / "alchemy.json").write_text(json.dumps(manifest))
    feed(config, ["x"] * 8, {"type": "alchemy.pipeline.encode.Encode", "tokenizer": str(folder)})


@case
def record_that_is_a_package(config: dict[str, Any], record: Path) -> None:
    for name in ("__init__.py", "torch.py", "numpy.py"):
        (record / name).write_text(python())


# -- files that loading would follow
@case
def base_names_the_code(config: dict[str, Any], record: Path) -> None:
    (record / "more.toml").write_text(dumps({"model": {"type": "os.system", "command": touch()}}))
    config["base"] = "more.toml"
    config.pop("model")


@case
def base_is_python(config: dict[str, Any], record: Path) -> None:
    (record / "more.py").write_text(python() + "seed = 1\n")
    config["base"] = "more.py"


@case
def type_is_drawn(config: dict[str, Any], record: Path) -> None:
    config["model"] = {"type": {"dyn": "choice", "values": ["os.system"]}, "command": touch()}


@case
def value_from_the_environment(config: dict[str, Any], record: Path) -> None:
    config["tag"] = {"dyn": "env", "name": "HOME"}


# -- keys that let a library run code
@case
def remote_code(config: dict[str, Any], record: Path) -> None:
    config["model"]["trust_remote_code"] = True


@case
def compiler_is_a_program(config: dict[str, Any], record: Path) -> None:
    config["precision"] = {"compile": {"options": {"cpp.cxx": [f"touch '{marker()}'"]}}}


# -- paths outside the record
def _logger(config: dict[str, Any]) -> dict[str, Any]:
    plugins = config.setdefault("plugins", [])
    found = [row for row in plugins if row["type"].endswith("FileLogger")]
    if not found:
        plugins.append({"type": "alchemy.plugins.FileLogger"})
    return (found or plugins[-1:])[0]


@case
def records_elsewhere(config: dict[str, Any], record: Path) -> None:
    _logger(config)["log_dir"] = str(marker())


@case
def records_above(config: dict[str, Any], record: Path) -> None:
    _logger(config)["log_dir"] = os.path.relpath(marker())
    if not _logger(config)["log_dir"].startswith(".."):
        _logger(config)["log_dir"] = os.path.join("..", Path.cwd().name, os.path.relpath(marker()))


@case
def predictions_elsewhere(config: dict[str, Any], record: Path) -> None:
    pipe = {"type": "alchemy.pipeline.output.SaveAppend", "filename": f"{marker()}.jsonl", "step_tag": False}
    config["task"].setdefault("outputpipes", []).append(pipe)


@case
def split_with_a_path(config: dict[str, Any], record: Path) -> None:
    datasets = config["task"]["datasets"]
    datasets[f"../../../../{marker()}"] = next(iter(datasets.values()))


@case
def log_format_follows_attributes(config: dict[str, Any], record: Path) -> None:
    plugins = config.setdefault("plugins", [])
    plugins.append({"type": "alchemy.plugins.BasicSetup", "format": "{message} {level.__init__.__globals__[sys]}"})


@case
def date_format_closes_its_field(config: dict[str, Any], record: Path) -> None:
    _logger(config).update(log_dir="records", date_format="HH}{level.__init__.__globals__[sys]}{time:HH")


@case
def best_elsewhere(config: dict[str, Any], record: Path) -> None:
    config["task"].setdefault("evalpipes", []).append({"type": "alchemy.pipeline.eval.SaveBest", "name": str(marker())})


@case
def records_through_a_link(config: dict[str, Any], record: Path) -> None:
    (record / "backup").mkdir(exist_ok=True)
    (record / "backup" / "out").symlink_to(marker().parent, target_is_directory=True)
    _logger(config)["log_dir"] = os.path.relpath(record / "backup" / "out" / marker().name)


# -- the file itself
def _linked(record: Path) -> None:
    CASES["model_is_os_system"](record)
    outside = record.parent / f"{record.name}.toml"
    (record / "cfg.toml").rename(outside)
    (record / "cfg.toml").symlink_to(outside)


def _without_info(record: Path) -> None:
    CASES["model_is_os_system"](record)
    (record / "record.json").unlink(missing_ok=True)


CASES |= {"config_is_a_link": _linked, "no_record_json": _without_info}
