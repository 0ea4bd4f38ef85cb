"""`alchemy check`, and the messages of `alchemy run` before it starts."""

import json

import pytest

from alchemy.cli import main

WRONG = """base = "train.toml"
lr = 1

[sched]
epoch = 3

[variant.big.model]
hiden = 256
"""


@pytest.fixture
def wrong(project):
    (project / "wrong.toml").write_text(WRONG)


def test_all_errors_at_once_with_their_lines(wrong, capsys):
    assert main(["check", "wrong.toml"]) == 2
    out = capsys.readouterr().out
    assert "error: wrong.toml:5 [sched] LineWarmup has no option 'epoch'; did you mean 'epochs'?" in out
    assert "error: wrong.toml:8 [model] PointClassifier has no option 'hiden'; did you mean 'hidden'?" in out
    assert out.splitlines()[0].startswith("warning: wrong.toml:2")
    assert out.splitlines()[-1] == "2 errors, 1 warning"


def test_a_named_variant_is_checked_alone(wrong, capsys):
    assert main(["check", "train.toml#tiny"]) == 0
    assert main(["check", "train.toml#tinny"]) == 2
    assert "did you mean 'tiny'?" in capsys.readouterr().out


def test_problems_as_json(wrong, capsys):
    assert main(["check", "wrong.toml", "train.toml", "none.toml", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["errors"], report["warnings"]) == (False, 3, 1)
    assert {"where", "section", "message", "hint", "error", "note"} == set(report["problems"][0])


def test_warnings_alone_are_no_failure_unless_strict(project, capsys):
    (project / "odd.toml").write_text('base = "train.toml"\nnobody = 1\n')
    assert main(["check", "odd.toml"]) == 0
    assert "0 errors, 1 warning" in capsys.readouterr().out
    assert main(["check", "odd.toml", "--strict"]) == 2


def test_a_run_refuses_what_the_check_refuses(wrong, capsys):
    assert main(["run", "train.toml", "wrong.toml", "wrong.toml#big"]) == 2
    err = capsys.readouterr().err
    assert err.count("LineWarmup has no option 'epoch'") == 1
    assert err.splitlines()[-1] == "2 errors, 1 warning"


def test_an_override_is_named_as_the_place(project, capsys):
    assert main(["check", "train.toml", "--set", "model.hiden=3"]) == 2
    assert "PointClassifier has no option 'hiden'" in capsys.readouterr().out


def test_the_deep_check_tries_a_batch_and_tells_the_memory(project, capsys):
    assert main(["check", "train.toml#tiny", "--deep", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert report["notes"][0].startswith("train.toml#tiny: memory: parameters 188 B")


def test_the_deep_check_finds_what_only_building_shows(project, capsys):
    (project / "src" / "model.py").write_text(
        (project / "src" / "model.py").read_text().replace("super().__init__()", 'raise ValueError("no [weights]")')
    )
    assert main(["check", "train.toml#tiny"]) == 0
    assert main(["check", "train.toml#tiny", "--deep"]) == 2
    out = capsys.readouterr().out
    assert "[model] PointClassifier could not be built at src/model.py:10: ValueError: no [weights]" in out


def test_an_unread_key_is_named_once_by_both_checks(project, capsys):
    (project / "odd.toml").write_text('base = "train.toml#tiny"\nsede = 1\n[extra]\nx = 1\n')
    assert main(["check", "odd.toml", "--deep"]) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: odd.toml")]
    assert [line.partition(";")[0] for line in warnings] == [
        "warning: odd.toml:2 the key 'sede' is not used by any part",
        "warning: odd.toml:3 the table [extra] is not used by any part",
    ]
