"""Comparisons of runs, over seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from alchemy.analysis.compare import GroupComparison, compare_groups
from alchemy.analysis.groups import build_groups
from alchemy.cli import main
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from tests.analysis.fake_curves import change_info
from tests.analysis.fake_runs import write_run


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_group(root: Path, lr: float, scores: dict[int, float], metric: str = "dev/f1", **config: object) -> None:
    for seed, score in scores.items():
        number = len(list(root.glob("2026*")))
        write_run(root, number, {metric: score}, {"optim": {"lr": lr}, **config}, seed=seed)


def compare(*arguments: str, **options: object) -> GroupComparison:
    with RecordIndex.open() as index:
        return compare_groups(index, build_groups(index, arguments or ("lr=0.1", "lr=0.2")), **options)  # type: ignore[arg-type]


def test_a_clear_difference_over_matching_seeds(project: Path) -> None:
    write_group(project, 0.1, {1: 0.80, 2: 0.82, 3: 0.78})
    write_group(project, 0.2, {3: 0.81, 2: 0.85, 1: 0.8301}, sweep={"optim": {"lr": [0.1, 0.2]}})
    found = compare()
    assert found.config == {"optim.lr": ["0.1", "0.2"]}  # the values of a sweep are not those of the run
    (verdict,) = found.verdicts
    assert verdict.startswith("B is better than A on dev/f1 by 0.03 (standard error ")
    assert verdict.endswith("p < 0.0001, paired over 3 seeds)")
    assert not found.notes


def test_equal_differences_are_no_evidence(project: Path) -> None:
    write_group(project, 0.1, {1: 0.80, 2: 0.82})
    write_group(project, 0.2, {1: 0.83, 2: 0.85})
    (verdict,) = compare().verdicts
    assert verdict.startswith("B is ahead of A on dev/f1 by 0.03 with every seed, but no statement is possible")


def test_other_seeds_are_compared_with_welch_and_noise_is_called_noise(project: Path) -> None:
    write_group(project, 0.1, {1: 0.80, 2: 0.90, 3: 0.70})
    write_group(project, 0.2, {4: 0.81, 5: 0.93})
    (verdict,) = compare().verdicts
    assert verdict.startswith("no clear difference between A and B on dev/f1: B - A = +0.07 (standard error ")
    assert "Welch's test, 3 and 2 runs) is within the noise of the seeds" in verdict


@pytest.mark.parametrize(("metric", "config"), [("dev/loss", {}), ("dev/x", {"checkpoint": {"mode": "min"}})])
def test_lower_is_better_by_name_or_by_config(project: Path, metric: str, config: dict[str, object]) -> None:
    write_group(project, 0.1, {1: 0.2, 2: 0.3}, metric, **config)
    write_group(project, 0.2, {1: 0.1, 2: 0.2001}, metric, **config)
    for folder in project.glob("2026*"):
        change_info(folder, best={"metric": metric, "value": 0.1, "update": 2})
    (verdict,) = compare().verdicts
    assert verdict.startswith(f"B is better than A on {metric} by 0.0999 (standard error ")


def test_one_run_allows_no_statement(project: Path) -> None:
    write_group(project, 0.1, {1: 0.8, 2: 0.9})
    write_group(project, 0.2, {1: 0.95})
    (verdict,) = compare().verdicts
    assert verdict.startswith("dev/f1: B - A = +0.1, but no statement is possible: B has 1 run; run more seeds")


def test_runs_without_spread(project: Path) -> None:
    write_group(project, 0.1, {1: 0.8, 2: 0.8})
    write_group(project, 0.2, {1: 0.8, 2: 0.8})
    assert compare().verdicts == ["A and B have the same dev/f1 (paired over 2 seeds)"]


def test_a_failed_run_does_not_count_if_its_code_was_fixed(project: Path) -> None:
    write_group(project, 0.1, {1: 0.2})
    change_info(max(project.glob("2026*")), status="failed", code_hash="broken")
    write_group(project, 0.1, {1: 0.8, 2: 0.9})
    found = compare("lr=0.1", "tag:demo")
    assert [value for _, value in found.metrics[0].values[0]] == [0.8, 0.9]


def test_what_makes_a_comparison_doubtful_is_noted(project: Path) -> None:
    write_group(project, 0.1, {1: 0.8, 2: 0.9})
    write_group(project, 0.1, {2: 0.7})  # again: the later run counts
    write_group(project, 0.2, {1: 0.85})
    change_info(max(project.glob("2026*")), status="failed")
    found = compare("lr=0.1", "tag:demo")
    assert found.groups[0].seeds == ["1", "2"]
    assert [value for _, value in found.metrics[0].values[0]] == [0.8, 0.7]
    assert found.notes == [
        "A: 1 run left out, since another run has the same config and seed",
        "the runs of B differ in more than their seed: optim.lr",
        "B: 1 run left out, since another run has the same config and seed",
        "B: 1 run failed",
        "A and B share 3 runs",
    ]


def test_a_later_run_with_other_code_does_not_replace_a_run(project: Path, capsys) -> None:
    write_group(project, 0.1, {1: 0.8, 2: 0.9})
    write_group(project, 0.2, {1: 0.7, 2: 0.6})
    write_group(project, 0.1, {2: 0.3})
    for folder in project.glob("2026*"):
        change_info(folder, code_hash=("b" if folder == max(project.glob("2026*")) else "a") * 64)
    found = compare()
    assert [value for _, value in found.metrics[0].values[0]] == [0.8, 0.9, 0.3]
    assert found.notes == [f"A mixes runs of 2 versions of the code: {'a' * 10}, {'b' * 10}"]
    assert main(["compare", "lr=0.1", "lr=0.2"]) == 0
    out = capsys.readouterr().out
    assert out.index("note: A mixes runs") < out.index("no clear difference between A and B")


def test_metrics_that_are_missing_huge_or_unknown(project: Path) -> None:
    write_group(project, 0.1, {1: 1e308, 2: -1e308})
    write_group(project, 0.2, {1: 1.0, 2: 2.0})
    assert compare("lr=0.2", "lr=0.1").verdicts == ["B has no value of dev/f1"]
    write_run(project, 20, {"dev/acc": 0.1}, {"optim": {"lr": 0.4}})
    assert "B has no value of dev/f1" in compare("lr=0.2", "lr=0.4").verdicts
    with pytest.raises(AlchemyError, match="none of these runs has a metric 'dev/f2'; did you mean 'dev/f1'"):
        compare(metrics=["dev/f2"])


def test_many_tests_get_a_caution(project: Path) -> None:
    for place, lr in enumerate((0.1, 0.2, 0.3, 0.4)):
        write_group(project, lr, {1: 0.8 + place / 100, 2: 0.8})
    found = compare("lr=0.1", "lr=0.2", "lr=0.3", "lr=0.4")
    assert len(found.verdicts) == 3
    assert found.notes == ["3 tests were made: expect about one in 20 to be positive by chance"]
