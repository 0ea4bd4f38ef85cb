"""What the config of an untrusted record may name, as documented."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import alchemy
from alchemy.config import untrusted
from alchemy.config.load import prepare_cfg
from alchemy.config.part_source import parts
from alchemy.config.untrusted import is_allowed
from alchemy.context import Run
from alchemy.errors import AlchemyError, ConfigError
from alchemy.text import Words, load_tokenizer

ROOT = Path(alchemy.__file__).parent
PAGE = (ROOT.parent / "docs" / "security.md").read_text("utf-8")

GOOD = """
alchemy.optim.AdamW alchemy.scheduler.LineWarmup alchemy.task.AlchemyTask alchemy.util.ddp.accelerate.Trainer
alchemy.pipeline.processors.hot alchemy.generate.Limits torch.nn.Linear torch.nn.LSTM torch.nn.modules.linear.Linear
torch.optim.SGD torch.optim.adamw.AdamW torch.nn.functional.cross_entropy torch.utils.data.RandomSampler builtins.len
transformers.BertModel transformers.BertForSequenceClassification timm.create_model torchvision.models.resnet18
src.net.Net src.net.make src.net.Short src.below.deep.Deep
"""
BAD = """
os.system subprocess.Popen builtins.eval builtins.exec builtins.__import__ builtins.open torch.load torch.hub.load
torch.nn.Parameter torch.nn.Module.register_forward_hook torch.nn.modules.os.system torch.nn.functional.warnings
torch.nn.utils.clip_grad_norm_ torch.optim.lr_scheduler.partial torch.optim.swa_utils.deepcopy
torch.utils.data.DataLoader transformers.pipeline transformers.Trainer transformers.BertModel.from_pretrained
timm.models.create_model torchvision.models.system torchvision.io.read_file
alchemy.config.python_config.parse_code alchemy.files.os.system alchemy.files.write_atomic alchemy.runner.run
alchemy.load alchemy.checkpoint.torch_load.load_torch_file alchemy.plugins.backup.shutil alchemy.registry.resolve
alchemy.nothing.There alchemy.verify.trial_runs.Limit
src.net.system src.net.other src.net.Imported src.net.NOT_CODE src.net.missing src.link.Evil src.Net net.Net
__main__.X __mp_main__.X a..b .os.system os.system. torch.nn..Linear os
"""
# spaces, wide letters, and a Cyrillic one
TRICKS = [
    "os.system ",
    " os.system",
    "os. system",
    "os.system\n",
    "\uff4f\uff53.system",
    "torch.nn.Line\u0430r",
    "",
    "." * 5000,
    "alchemy" + ".a" * 5000,
    "src" + ".a" * 5000,
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with some code, and a library that is not installed."""
    for folder in ("src/below", "site/torchvision/models"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src" / "net.py").write_text(
        "from os import system\nfrom torch.nn import Linear as Imported\nother = system\nNOT_CODE = 1\n"
        "def make(): ...\n@Base.register('Short')\nclass Net: ...\n"
    )
    (tmp_path / "src" / "below" / "deep.py").write_text("class Deep: ...\n")
    (tmp_path / "evil.py").write_text("class Evil: ...\n")
    (tmp_path / "src" / "link.py").symlink_to(tmp_path / "evil.py")
    models = tmp_path / "site" / "torchvision" / "models"
    (models / "__init__.py").write_text("from .resnet import *\nfrom os import system\n")
    (models.parent / "__init__.py").write_text("")
    (models / "resnet.py").write_text("def resnet18(): ...\n")
    monkeypatch.chdir(tmp_path)
    # `src` of another test, left on the path, would win over the namespace package here
    clean = [path for path in sys.path if not any(Path(path, name).exists() for name in ("src", "src.py"))]
    monkeypatch.setattr(sys, "path", clean)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path


@pytest.mark.parametrize("name", GOOD.split())
def test_allowed(name: str, project: Path) -> None:
    assert is_allowed(name, "src")


@pytest.mark.parametrize("name", [*BAD.split(), *TRICKS])
def test_refused(name: str, project: Path) -> None:
    assert not is_allowed(name, "src")


def test_every_part_is_allowed() -> None:
    assert [part.path for part in parts() if not is_allowed(part.path, "src")] == []


@pytest.fixture
def load(project: Path) -> Callable[[str], list[str]]:
    """Return the errors of a record's config with this text."""

    def errors(text: str) -> list[str]:
        Path("record").mkdir(exist_ok=True)
        Path("record", "cfg.toml").write_text(text)
        try:
            prepare_cfg("record/cfg.toml", record=True)
        except ConfigError as error:
            return [problem.message for problem in error.problems]
        return []

    return errors


@pytest.mark.parametrize(
    "text",
    [
        'type = "os.system"',
        'a = [[{ b = { type = "os.system" } }]]',
        'type = ["os.system"]',
        'fn = { x = "evil.Evil" }',
        'model = { encoder = "evil.Evil" }',
        'model = { encoder = "evil.no.such.Name" }',
        'model = { load = "weights.PT" }',
        "model = { trust_remote_code = true }",
        "model = { deep = [{ allow_pickle = 1 }] }",
        "precision = { compile = { backend = 'x' } }",
        'model = { type = "timm.create_model", model_name = "hf-hub:x/y" }',
        'model = { type = "timm.create_model", pretrained_cfg = { url = "http://x/y" } }',
        'plugins = [{ type = "alchemy.plugins.FileLogger", log_dir = "~/x" }]',
        'plugins = [{ type = "alchemy.plugins.file_logger.FileLogger", log_dir = "a/../../x" }]',
        'plugins = [{ type = "alchemy.plugins.Backup", paths = ["src", "/etc"] }]',
        'tag = { dyn = "env", name = "HOME" }',
        'base = "other.toml"',
        'model = { clock = "os.path" }',
        '[variant.x]\ntype = { dyn = "choice", values = ["os.system"] }',
        '[task.datasets."../x"]\nbatch_size = 1',
    ],
)
def test_each_is_refused_once(text: str, load: Callable[[str], list[str]]) -> None:
    assert len(load(f"{text}\n")) == 1


def test_what_is_harmless_passes(load: Callable[[str], list[str]]) -> None:
    Path("data").mkdir()
    text = """
    tag = "data.v2"
    criterion = { type = "ce" }
    model = { trust_remote_code = false, compile = true, path = "/somewhere/else", type = "src.net.Net" }
    plugins = [{ type = "alchemy.plugins.FileLogger", log_dir = "records/train" }]
    task = { datasets = { dev-2 = { pipes = [{ path = "data.csv", labels = ["sci.space", "a.b"] }] } } }
    evaluation = { files = ["test.csv", "random.tsv"] }
    """
    assert load(text) == []


def test_all_problems_are_told_at_once(load: Callable[[str], list[str]]) -> None:
    assert len(load('a = { type = "os.system" }\nb = { fn = "os.popen" }\nbase = "x.toml"\nc = "x.pkl"\n')) == 4


def test_an_override_replaces_a_foreign_value(load: Callable[[str], list[str]]) -> None:
    assert load('model = { type = "os.system" }\n')
    doc = prepare_cfg("record/cfg.toml", record=True, overrides=["model.type=os.path.join"])
    assert doc["model"]["type"] == "os.path.join"
    assert prepare_cfg(doc) == doc


def test_what_was_read_to_compare_is_vetted_before_it_runs(load: Callable[[str], list[str]]) -> None:
    load('model = { type = "os.system" }\n')
    doc = prepare_cfg("record/cfg.toml", record=True, compare=True)
    with pytest.raises(ConfigError, match=r"os\.system"):
        Run(doc)


def test_a_list_that_a_foreign_base_patches_is_foreign(load: Callable[[str], list[str]]) -> None:
    load('[pipes]\n0 = "os.system"\n')
    Path("record", "record.json").write_text("{}")
    Path("mine.toml").write_text('pipes = ["os.path.join"]\n')
    Path("both.toml").write_text('base = ["mine.toml", "record/cfg.toml"]\ntag = "x"\n')
    with pytest.raises(ConfigError, match=r"os\.system"):
        prepare_cfg("both.toml")
    assert prepare_cfg("mine.toml")["pipes"] == ["os.path.join"]


def test_a_foreign_value_is_vetted_for_the_part_that_is_chosen_last(load: Callable[[str], list[str]]) -> None:
    plugin = "plugins = [{ type = 'alchemy.plugins.BasicSetup', log_dir = '/tmp/x' }]\n"
    assert not load(plugin)
    Path("record", "record.json").write_text("{}")
    chosen = "type = { dyn = 'choice', values = ['FileLogger'] }\n"
    Path("mine.toml").write_text(f"base = 'record/cfg.toml'\n[plugins.BasicSetup]\n{chosen}")
    with pytest.raises(ConfigError, match="log_dir = '/tmp/x' points outside the working directory"):
        prepare_cfg("mine.toml")


def test_a_user_dir_of_another_name_is_the_project_s(load: Callable[[str], list[str]]) -> None:
    Path("src").rename("parts")
    assert load('model = { type = "parts.net.Net" }\n')
    prepare_cfg("record/cfg.toml", record=True, user_dir="parts")
    Path("parts").rename("record/parts")
    Path("record", "record.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"parts\.net\.Net"):
        prepare_cfg("record/cfg.toml", user_dir="record/parts")


def test_a_tokenizer_folder_names_no_other_module(project: Path) -> None:
    Words.train(["a b"]).save("words")
    assert load_tokenizer("words").encode("a")
    manifest = Path("words", "alchemy.json")
    manifest.write_text(manifest.read_text().replace("alchemy.text.Words", "evil.Evil"))
    with pytest.raises(AlchemyError, match="is not a tokenizer from alchemy or this project"):
        load_tokenizer("words")
    assert "evil" not in sys.modules


# functions that import a name given as text, and its source; a new one must be vetted, or use a constant
IMPORTS = {"import_module", "resolve", "resolve_registered_module", "from_registry", "import_named", "import_function"}
KNOWN = {
    "type": """cli/generate.py:get_task_table cli/predict_images.py:reads_images data/import_named.py:_build_nested
        nn/build_net.py:build_net nn/losses.py:_find_external pipeline/image_transforms.py:build_transforms
        optim/build.py:_class_of
        optim/optimizers.py:__init__ pipeline/__init__.py:_build_pipe pipeline/__init__.py:resolve_pipe
        plain_model.py:_maker plain_model.py:build_model predictor.py:_keeps predict_inputs.py:takes_rows
        records/local_copies.py:_use_own_sides registry.py:build tasks/pairs.py:_reads_text
        tasks/relation.py:_reads_marks verify/trial_runs.py:_class_of""",
    "runner": "runner.py:_runner_class verify/dry_run.py:check",
    "NAMES_CODE": """data/loader.py:get_dataloader pipeline/itr.py:function_of predict_inputs.py:__init__
        predict_inputs.py:_find_collate""",
    "any key: importable text": "tasks/learn_tokenizer.py:learn_tokenizer tasks/learn_tokenizer.py:has_size_option",
    "a manifest, by is_known": "text/base.py:load_tokenizer",
    "the caller": """data/import_named.py:_resolve data/import_named.py:import_function model.py:from_registry
        registry.py:_import registry.py:from_registry task.py:from_registry""",
    "constants": """cli/options.py:load_command export/exporter.py:find_exporter optional_packages.py:import_package
        lazy.py:fetch lazy.py:lazy model.py:backward queue/executor.py:find_executor records/__init__.py:__call__
        pipeline/__init__.py:__getattr__ sched/base.py:_add_capture text/base.py:_import_path""",
    "no import": "config/load.py:_prepare",  # another function of that name
}


def test_every_import_by_name_is_known() -> None:
    found = set()
    for file in sorted(ROOT.rglob("*.py")):
        nodes = ast.walk(ast.parse(file.read_text("utf-8")))
        for node in (node for node in nodes if isinstance(node, ast.FunctionDef)):
            calls = [call for call in ast.walk(node) if isinstance(call, ast.Call) and call.args]
            if {ast.unparse(call.func).rpartition(".")[2] for call in calls} & IMPORTS:
                found.add(f"{file.relative_to(ROOT).as_posix()}:{node.name}")
    assert found == {place for places in KNOWN.values() for place in places.split()}


def test_the_docs_list_what_is_allowed() -> None:
    rows = re.findall(r"^(builtins|torch\.nn\.functional|torch\.utils\.data): (.+)$", PAGE, re.MULTILINE)
    listed = {f"{package}.{name}" for package, names in rows for name in names.split()}
    assert listed | {"timm.create_model"} == {name for name in untrusted.NAMES if not name.startswith("alchemy.")}
    for word in (
        *untrusted.CLASSES,
        *untrusted.UNSAFE,
        *untrusted.COMPILER,
        *untrusted.PATHS,
        *untrusted.PICKLES,
        *untrusted.LOADS,
    ):
        assert f"`{word}`" in PAGE, word
