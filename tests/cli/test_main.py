"""The entry point: help, unknown commands, errors and exit codes."""

import json
import sys

import pytest

from alchemy import cli
from alchemy.cli import COMMANDS, PLANNED, main
from alchemy.cli.options import build_parser
from alchemy.errors import AlchemyError, ConfigError, Problem, RunFailed


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


def test_without_a_word_the_overview_is_a_users_error(capsys):
    assert main([]) == 2
    assert "usage: alchemy COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_has_purpose_options_and_examples(name, capsys):
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: alchemy {name}" in out
    assert COMMANDS[name][1:] in out
    assert 2 <= out.partition("examples:\n")[2].count("alchemy ") <= 6


def test_help_of_a_command_by_word(capsys):
    assert main(["help", "stop"]) == 0
    assert "usage: alchemy stop" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["rnu"], "unknown command 'rnu'; did you mean 'run'?"),
        (["--versoin"], "unknown option '--versoin'; did you mean '--version'?"),
        (["run"], "the following arguments are required: CFG; see 'alchemy run --help'"),
        (["run", "a.toml", "--devise", "0"], "alchemy run has no option '--devise'; did you mean '--device'?"),
        (["run", "a.toml", "--no-fil"], "alchemy run has no option '--no-fil'; did you mean '--no-file'?"),
        (["run", "a.toml", "--device", "gpu"], "invalid device 'gpu': -1 is the CPU"),
        (["run", "a.toml", "--device", "-2"], "invalid device '-2': -1 is the CPU, 0 the first GPU"),
        (["check", "a.toml", "--device", "-2"], "invalid device '-2'"),
        (["run", "a.toml", "--user-dir", "nope"], "argument --user-dir: 'nope' does not exist"),
        (["parts", "--user-dir", "/dev/null"], "argument --user-dir: '/dev/null' is not a folder"),
        (["new", "--kind", "image"], "the following arguments are required: PROJECT; see 'alchemy new --help'"),
        (["new", ""], "the project name is empty; run 'alchemy new demo'"),
        (["run", "a.toml", "--seeds", "1;2"], "expected integers such as 1,2,3, got '1;2'"),
        (["run", "a.toml", "--task-per-device", "0"], "--task-per-device must be at least 1"),
        (["run", "a.toml", "--processes", "0"], "--processes must be at least 1"),
        (["run", "a.toml", "--overfit", "-1"], "--overfit must not be negative"),
        (["run", "a.toml", "--background", "--pdb"], "--pdb needs a terminal"),
        (["config", "shw", "a.toml"], "'shw' is not a valid ACTION; did you mean 'show'?"),
        (["config", "show", "a.toml", "--jsn"], "alchemy config show has no option '--jsn'; did you mean '--json'?"),
        (["config", "show", "a.toml", "b.toml"], "alchemy config show does not accept 'b.toml'"),
        (["predict", "a", "--format", "cvs"], "'cvs' is not a valid --format; did you mean 'csv'?"),
        (["completion", "tcsh"], "'tcsh' is not a valid SHELL"),
        (["parts", "shed"], "unknown kind of part 'shed'; did you mean 'sched'?"),
    ],
)
def test_a_users_error_is_one_line_and_exit_code_2(words, text, capsys):
    assert main(words) == 2
    streams = capsys.readouterr()
    assert streams.err.startswith("error: ")
    assert text in streams.err
    assert streams.err.count("\n") == 1
    assert streams.out == ""


@pytest.mark.parametrize("name", PLANNED)
def test_a_planned_command_says_so_in_one_line(name, capsys):
    assert main([name, "--port", "1"]) == 2
    err = capsys.readouterr().err
    assert "is not available yet" in err
    assert err.count("\n") == 1


def test_options_and_configs_may_alternate():
    words = ["a.toml", "--device", "-1", "b.toml#x", "--device", "0", "--no-file", "--set", "a=1", "--set", "b.c=[2]"]
    args = build_parser("run").parse_intermixed_args(words)
    assert args.cfgs == ["a.toml", "b.toml#x"]
    assert args.device == [-1, 0]
    assert args.file is False
    assert args.overrides == ["a=1", "b.c=[2]"]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (AlchemyError("no such thing", where="a.toml:3"), 2, "error: a.toml:3 no such thing\n"),
        (RunFailed("the worker is gone"), 1, "error: the worker is gone\n"),
        (
            ConfigError([Problem("x", where="a.toml:1"), Problem("y", error=False)]),
            2,
            "warning: y\nerror: a.toml:1 x\n1 error, 1 warning\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_exit_codes(error, code, text, monkeypatch, capsys):
    def fail(words):
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert main(["version"]) == code
    assert capsys.readouterr().err == text


def test_an_unexpected_error_is_not_swallowed(monkeypatch):
    def fail(words):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(cli, "_dispatch", fail)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main(["version"])


def test_version_as_json(capsys):
    assert main(["version", "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)
    assert list(versions) == ["alchemy", "python", "torch"]
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert main(["--version"]) == 0
