"""An argparse parser as a config."""

import argparse
from pathlib import Path

import pytest

from alchemy.config import dumps
from alchemy.config.argparse_config import from_parser
from alchemy.config.formats import parse


def make():
    parser = argparse.ArgumentParser(prog="run.py")
    parser.add_argument("--data_dir", required=True, type=Path, help="The input data dir.")
    parser.add_argument("--learning_rate", default=5e-5, type=float, help="The initial learning rate.")
    parser.add_argument("--do_train", action="store_true")
    parser.add_argument("--filter_sizes", nargs="+", type=int, default=[3, 4, 5])
    parser.add_argument("--tag", action="append", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("go").add_argument("--steps", type=int, default=3)
    return parser


def test_every_option_is_a_key_with_its_origin():
    parser = make()
    doc = from_parser(parser, ["--data_dir", "d", "--do_train", "--tag", "a", "go", "--steps", "5"])
    assert doc == {
        "data_dir": "d", "learning_rate": 5e-5, "do_train": True, "filter_sizes": [3, 4, 5], "tag": ["a"],
        "command": "go", "steps": 5,
    }  # fmt: skip
    assert (doc.where("learning_rate"), doc.where("do_train"), doc.where("steps")) == (
        "default",
        "command line",
        "command line",
    )
    assert parser.get_default("learning_rate") == 5e-5
    assert from_parser(parser, ["--data_dir", "d", "go"])["steps"] == 3


def test_the_help_is_written_as_comments():
    text = dumps(from_parser(make(), ["--data_dir", "d"]))
    assert "# The initial learning rate.\nlearning_rate = 5e-05\n" in text
    assert parse(text, ".toml", "t.toml").data["tag"] is None


def test_mistakes_end_as_with_argparse(capsys):
    with pytest.raises(SystemExit, match="2"):
        from_parser(make(), [])
    assert "--data_dir" in capsys.readouterr().err
