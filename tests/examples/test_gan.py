"""The example gan, run as by a user, on a few generated images."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from alchemy.records.metrics_file import comparable
from tests.idx_files import write_idx

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples" / "gan"
CPU = "--device=-1"
QUICK = ["--set=sched.num_training_steps=4", "--set=sched.pipes.EvalESPipeline.period=2", "--set=model.width=8"]
# the example holds out a twelfth: too little of 512 images
HELD = ["--set=task.datasets.train.pipes.HoldOut.share=0.25", "--set=task.datasets.dev.batch_size=64"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Path:
    """A copy of the example with generated images and a trained classifier."""
    folder = tmp_path_factory.mktemp("example") / "gan"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("records", "mnist", "__pycache__"))
    write_idx(folder / "mnist")
    run(programs / "alchemy", folder, "run", "classifier.toml", CPU, "--set=sched.epochs=2", *HELD)
    return folder


def run(program: Path, folder: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_parts_are_those_of_a_new_project() -> None:
    template = ROOT / "alchemy" / "cli" / "template_gan" / "src"
    for path in sorted((SOURCE / "src").glob("*.py")):
        assert path.read_text() == (template / path.name).read_text()


@pytest.mark.parametrize("name", ["gan.toml", "classifier.toml"])
def test_the_configs_pass_the_check(project: Path, programs: Path, name: str) -> None:
    assert run(programs / "alchemy", project, "check", name, "--strict").strip() == "ok"


def test_samples_are_scored_by_the_classifier(project: Path, programs: Path) -> None:
    run(programs / "alchemy", project, "run", "gan.toml", CPU, *QUICK, *HELD)
    (record,) = (project / "records" / "gan").iterdir()
    values: dict[str, float] = {}
    for row in comparable(record / "metrics.jsonl"):
        values |= row["values"]
    for name in ("recognized", "smallest_class", "largest_class", "real_recognized"):
        assert 0 <= values[f"dev/{name}"] <= 1
    assert values["dev/frechet"] > 0
    assert len(list((record / "media/images/dev/samples").iterdir())) == 2
    run(programs / "alchemy", project, "test", str(record.relative_to(project)), CPU)
    (tested,) = (other for other in (project / "records" / "gan").iterdir() if other != record)
    assert list((tested / "media/images/test/samples").iterdir())


def test_real_images_and_noise_are_reference_points(project: Path, programs: Path) -> None:
    printed = run(programs / "page", project, "references.py", "--count=64")
    rows = [line.rsplit(maxsplit=3) for line in printed.splitlines()[1:]]
    found = {name: float(frechet) for name, _, frechet, _ in rows}
    assert found["test images"] == pytest.approx(0, abs=0.01)
    assert found["uniform noise"] > 10 * found["training images"]
