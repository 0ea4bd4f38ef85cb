"""Defaults of a config file: a tag, a runner, and plugins for the console and a record."""

import pytest

from alchemy.config.check import check
from alchemy.config.load import explain, prepare_cfg
from alchemy.errors import ConfigError

BODY = """\
[task]
type = "DefaultTask"
[model]
type = "torch.nn.Identity"
"""
CONSOLE, RECORD = {"type": "alchemy.plugins.BasicSetup"}, {"type": "alchemy.plugins.FileLogger", "log_dir": "records"}


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text="", **options):
        (tmp_path / "news.toml").write_text(BODY + text if text.startswith("[") else text + BODY, "utf-8")
        return prepare_cfg("news.toml", **options)

    return write


def test_a_file_gets_a_tag_a_runner_and_plugins(load, tmp_path):
    doc = load()
    assert list(doc)[:3] == ["tag", "runner", "plugins"]
    assert (doc["tag"], doc["runner"]) == ("news", "alchemy.runner.Trainer")
    assert doc["plugins"] == [CONSOLE, RECORD]
    assert explain(doc, "tag").endswith("default, since the config has no 'tag'")
    assert not [problem for problem in check(doc) if "tag" in str(problem) or "runner" in str(problem)]
    (tmp_path / "src").mkdir()
    assert load()["plugins"][2] == {"type": "alchemy.plugins.Backup", "paths": ["src"]}


def test_what_a_file_says_stays(load):
    doc = load('tag = "mine"\nrunner = "Tester"\nplugins = []\n')
    assert (doc["tag"], doc["runner"], doc["plugins"]) == ("mine", "alchemy.runner.Tester", [])


def test_a_table_changes_the_default_plugins(load):
    patch = '[plugins.FileLogger]\nlog_dir = "there"\n[plugins.Seeding]\ntype = "Seeding"\nseed = 3\n'
    doc = load(f'{patch}[variant.here]\nplugins.FileLogger.log_dir = "here"\n', variant="here")
    assert doc["tag"] == "news-here"
    assert doc["plugins"] == [CONSOLE, {**RECORD, "log_dir": "here"}, {"type": "alchemy.plugins.Seeding", "seed": 3}]
    assert load(overrides=["plugins.FileLogger.log_dir=x"])["plugins"][1]["log_dir"] == "x"
    with pytest.raises(ConfigError, match="the list plugins has no 'Backpu'"):
        load("[plugins.Backpu]\npaths = []\n")


def test_a_mapping_a_base_and_a_record_are_taken_as_they_are(load, tmp_path):
    assert prepare_cfg({"task": {"type": "DefaultTask"}, "model": {"type": "torch.nn.Identity"}}).keys() == {
        "task", "model", "seed",
    }  # fmt: skip
    (tmp_path / "base.toml").write_text("seed = 1\n[optim]\nlr = 1.0\n")
    assert list(prepare_cfg("base.toml")) == ["seed", "optim"]
    doc = load()
    del doc["plugins"]
    assert "plugins" not in prepare_cfg(doc)
    assert "plugins" not in load(record=True, compare=True)
