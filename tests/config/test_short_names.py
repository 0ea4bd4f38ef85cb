"""Short names of alchemy's parts: found by kind, expanded at load time, with suggestions when unknown."""

import pytest

from alchemy.config.check import check
from alchemy.config.load import prepare_cfg
from alchemy.config.part_source import KINDS, parts
from alchemy.config.short_names import HOMES, resolve_name

SHORT = {
    "runner": "Trainer",
    "plugins": [{"type": "BasicSetup"}, {"type": "FileLogger", "log_dir": "records"}],
    "task": {
        "type": "Translation",
        "search": {"type": "BeamSearch", "beam": 2},
        "evalpipes": [{"type": "BLEU"}],
        "datasets": {
            "train": {
                "pipes": [{"type": "ParallelText", "path": "a.tsv"}, {"type": "HoldOut"}],
                "collate_fn": {"type": "Pad", "fields": {"source": {"type": "Padded"}}},
            }
        },
    },
    "model": {"type": "Translator", "network": {"type": "Transformer", "dim": 8}},
    "criterion": {"type": "CrossEntropy"},
    "optim": {"type": "AdamW", "lr": 0.1},
    "sched": {"type": "Cosine", "epochs": 1, "pipes": [{"type": "EvalEEPipeline"}]},
    "stop": {"any": [{"type": "Patience", "monitor": "dev/loss"}]},
    "ema": {"type": "SWA"},
}


def types(node):
    """Return every `type` of a tree, including the runner."""
    if isinstance(node, dict):
        found = [value for key, value in node.items() if key in ("type", "runner")]
        return found + [name for value in node.values() for name in types(value)]
    return [name for item in node for name in types(item)] if isinstance(node, list) else []


def test_every_part_has_a_short_name_by_its_kind():
    assert HOMES.keys() == KINDS.keys()
    for part in parts():
        short = part.path.rpartition(".")[2]
        for kind in part.kinds:
            found = resolve_name(short, kind)
            assert found == part.path or (
                found == short and part.module in ("alchemy.pipeline.itr", "alchemy.pipeline.lst")
            )


def test_short_names_become_import_paths_wherever_a_part_is_named():
    doc = prepare_cfg(SHORT)
    assert len(types(doc)) == len(types(SHORT))
    assert all(name.startswith("alchemy.") for name in types(doc))
    assert doc["task"]["search"]["type"] == "alchemy.generate.BeamSearch"
    assert doc["model"]["network"]["type"] == "alchemy.nn.transformer.Transformer"


@pytest.mark.parametrize(
    ("section", "table", "message"),
    [
        ("optim", {"type": "SGDD"}, "[optim] alchemy has no optimizer 'SGDD'; did you mean 'SGD'?"),
        ("optim", {"type": "RMSprop"}, "[optim] alchemy has no optimizer 'RMSprop'; write 'torch.optim.RMSprop'"),
        (
            "sched",
            {"type": "AdamW"},
            "[sched] alchemy has no schedule 'AdamW'; 'alchemy.optim.AdamW' is an optimizer",
        ),
        ("model", {"type": "Net"}, "refer to your own part as 'src.module.Net'"),
        ("runner", "Trainr", "alchemy has no runner 'Trainr'; did you mean 'Trainer'?"),
        (
            "model",
            {"type": "TextClassifier", "encoder": {"type": "Embeding"}},
            "[model.encoder] alchemy has no encoder 'Embeding'; did you mean 'Embedding'?",
        ),
        (
            "task",
            {"type": "Classification", "datasets": {"train": {"pipes": [{"type": "Map"}]}}},
            "'Map' is ambiguous: 2 parts have this name; "
            "write 'alchemy.pipeline.itr.Map' or 'alchemy.pipeline.lst.Map'",
        ),
        (
            "task",
            {"type": "Classification", "data": {"train": "t.csv", "processor": "TextClass"}},
            "[task.data] alchemy has no data pipe 'TextClass'; did you mean 'TextClassification'?",
        ),
    ],
)
def test_a_short_name_that_stands_for_no_part_is_explained(section, table, message):
    problems = check(prepare_cfg({**SHORT, section: table}))
    assert [str(problem) for problem in problems if message in str(problem)]


def test_a_criterion_that_an_old_model_reads_itself_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("from alchemy.model import AlchemyModel\nclass Net(AlchemyModel):\n    pass\n")
    assert prepare_cfg({"model": {"type": "own.Net"}, "criterion": {"type": "MSE"}})["criterion"]["type"] == "MSE"
    inner = {"type": "own.Net", "encoder": {"type": "Transformer"}}
    assert prepare_cfg({"model": inner})["model"]["encoder"]["type"] == "Transformer"


def test_a_tokenizer_is_a_class_unless_there_is_such_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = {"type": "Classification", "tokenizer": "Words"}
    assert prepare_cfg({"task": task})["task"]["tokenizer"] == "alchemy.text.Words"
    (tmp_path / "Words").mkdir()
    assert prepare_cfg({"task": task})["task"]["tokenizer"] == "Words"


def test_a_variant_may_spell_a_type_either_way(tmp_path):
    (tmp_path / "f.toml").write_text(
        '[[plugins]]\ntype = "FileLogger"\nlog_dir = "a"\n'
        '[variant.v.plugins.FileLogger]\ntype = "alchemy.plugins.FileLogger"\nlog_dir = "b"\n'
        '[variant.w]\nplugins = { delete = true }\n[variant.w.optim]\ntype = { dyn = "choice", values = ["SGD"] }\n'
    )
    doc = prepare_cfg(tmp_path / "f.toml", variant="v")
    assert doc["plugins"] == [{"type": "alchemy.plugins.FileLogger", "log_dir": "b"}]
    assert prepare_cfg(tmp_path / "f.toml", variant="w")["optim"]["type"] == "alchemy.optim.SGD"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tokenizer": "BPEE"}, "tokenizer folder not found: 'BPEE'; did you mean 'BPE'?"),
        ({"source_tokenizer": "alchemy.text.BPEE"}, "module 'alchemy.text' has no 'BPEE'; did you mean 'BPE'?"),
        ({"tokenizer": "BPE", "learn": {"sise": 5}}, "BPE has no training option 'sise'; did you mean 'size'?"),
    ],
)
def test_the_tokenizers_of_a_translation_are_checked(keys, message):
    data = {"train": "train.tsv", "source": 0, "target": 1}
    doc = prepare_cfg({"task": {"type": "Translation", "data": data, **keys}, "model": {"type": "Translator"}})
    assert [problem for problem in check(doc) if message in str(problem)]
