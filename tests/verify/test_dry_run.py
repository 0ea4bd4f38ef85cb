"""The deep check builds the parts, makes one step, and finds errors that only occur at run time."""

from pathlib import Path

import pytest

from alchemy.config.load import prepare_cfg
from alchemy.files import readable_size
from alchemy.verify.dry_run import dry_run
from alchemy.verify.memory import Memory

PROJECT = Path(__file__).parent / "project"

GOOD = """\
tag = "deep"
runner = "alchemy.runner.Trainer"
plugins = [{ type = "alchemy.plugins.FileLogger", log_dir = "records" }]

[task]
type = "alchemy.task.DefaultTask"
evalpipes = [{ type = "deepparts.Count" }]

[task.datasets.train]
batch_size = 4
collate_fn = { type = "alchemy.data.collate.Pad" }
pipes = [{ type = "deepparts.Numbers", datapipe = [1, 2, 3, 4, 5, 6] }]

[task.datasets.dev]
batch_size = 4
collate_fn = { type = "alchemy.data.collate.Pad" }
pipes = [{ type = "deepparts.Numbers", datapipe = [1, 2, 3, 4, 5, 6] }]

[model]
type = "deepparts.Net"
hidden = 16

[optim]
type = "alchemy.optim.AdamW"
lr = 0.001

[sched]
type = "alchemy.sched.Constant"
epochs = 1
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(PROJECT))


def deep(old: str = "", new: str = ""):
    assert old in GOOD
    Path("deep.toml").write_text(GOOD.replace(old, new) if old else GOOD)
    return dry_run(prepare_cfg("deep.toml"))


def test_good_config_is_measured_and_leaves_nothing_behind(tmp_path):
    found = deep()
    assert list(found) == []
    weights = (8 * 16 + 16 + 16 * 2 + 2) * 4
    assert found.memory.parameters == found.memory.gradients == weights
    assert found.memory.optimizer >= 2 * weights
    # the batch, the hidden layer after its activation, the output, the targets
    assert 4 * 16 * 4 <= found.memory.activations <= 2**11
    assert [p.name for p in tmp_path.iterdir()] == ["deep.toml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hidden = 16", 'wrong = "constructor"', "ValueError: no such vocabulary"),
        ("hidden = 16", 'wrong = "forward"', "one training step failed: IndexError: index out of range in self"),
        ("hidden = 16", 'wrong = "nan"', "the first loss is nan"),
        (
            '"deepparts.Count" }',
            '"deepparts.Count", wrong = true }',
            "one evaluation step of 'dev' failed: ZeroDivision",
        ),
        ("datapipe = [1, 2, 3, 4, 5, 6]", "datapipe = []", "empty"),
        ("lr = 0.001", "lr = 0.001\nbeta = 1", "has no option 'beta'"),
    ],
)
def test_errors_of_parts_become_problems(old, new, message):
    found = deep(old, new)
    assert any(message in str(p) and p.error for p in found), list(map(str, found))


def test_error_shows_the_line_of_the_project(tmp_path):
    found = deep("hidden = 16", 'wrong = "forward"')
    line = next(
        n for n, text in enumerate((PROJECT / "deepparts.py").read_text().splitlines(), 1) if "IndexError" in text
    )
    assert found[0].where.endswith(f"deepparts.py:{line}")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("unpicklable", "'split' of deepparts.Numbers cannot be sent to a worker"),
        ("tensors", "deepparts.Numbers returns tensors"),
    ],
)
def test_what_does_not_survive_a_worker(wrong, message):
    bad = f'datapipe = [1, 2, 3], wrong = "{wrong}" }}]\nnum_workers = 2'
    found = deep("datapipe = [1, 2, 3, 4, 5, 6] }]", bad)
    assert any(message in str(p) for p in found), list(map(str, found))
    alone = deep("datapipe = [1, 2, 3, 4, 5, 6] }]", bad.replace("num_workers = 2", ""))
    assert not any(message in str(p) for p in alone)


def test_tester_needs_no_training_parts():
    found = deep("runner.Trainer", "runner.Tester")
    assert not any(p.error for p in found)


def test_no_such_device():
    Path("deep.toml").write_text(GOOD)
    assert "no device 99" in str(dry_run(prepare_cfg("deep.toml"), 99)[0])


@pytest.mark.parametrize(
    ("memory", "remedy"),
    [
        (Memory(10, 10, 20, 100, free=100, batch_size=8), "batch_size = 4 with [backward] period = 2 fits"),
        (Memory(40, 40, 80, 1, free=100, batch_size=8), "the optimizer state is too large"),
        (Memory(400, 400, 800, 1, free=100, batch_size=8), "the model is too large"),
        (Memory(1, 1, 2, 200, free=100, batch_size=1), "one sample is too large"),
    ],
)
def test_remedy_fits(memory, remedy):
    assert not memory.fits
    assert remedy in memory.suggest_fix()
    assert readable_size(2**30 * 1.5) == "1.5 GiB"
