"""Invalid numbers on the command line: rejected before training starts."""

import pytest

from alchemy.cli import main

RESUME, RATE = ["verify", "resume", "train.toml"], ["find", "lr", "train.toml"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*RESUME, "--kill-at", "9", "--updates", "5"], "--kill-at is 9 and --updates is 5: the run must be killed"),
        ([*RESUME, "--kill-at", "9", "--updates", "5"], "use --kill-at below 5, or --updates above 9"),
        ([*RESUME, "--kill-at", "5", "--updates", "5"], "--kill-at is 5 and --updates is 5"),
        ([*RESUME, "--kill-at", "20"], "--kill-at is 20 and without --updates there are at most 20 updates"),
        ([*RESUME, "--workers", "-1"], "--workers must be at least 0, got -1"),
        ([*RESUME, "--workers", "0,2,-2"], "--workers must be at least 0, got -2"),
        ([*RATE, "--updates", "0"], "--updates must be at least 2, got 0"),
        ([*RATE, "--first", "nan"], "the rate cannot grow from nan to 1.0; use rates > 0"),
        ([*RATE, "--first", "0"], "the rate cannot grow from 0.0 to 1.0; use rates > 0"),
        ([*RATE, "--last", "inf"], "the rate cannot grow from 1e-07 to inf; use rates > 0"),
        ([*RATE, "--first", "1", "--last", "0.1"], "from 1.0 to 0.1; use rates > 0 with --first below --last"),
        ([*RATE, "--first", "1", "--last", "1"], "the rate cannot grow from 1.0 to 1.0"),
    ],
)
def test_it_is_one_line_at_the_door(project, capsys, words, message):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1  # one line: nothing was started
    assert message in err
