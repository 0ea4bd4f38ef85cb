"""One tokenizer per field for all splits of a run, and a copy of it in the record."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from alchemy.context import Run
from alchemy.data.corpus.build import build
from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.data.corpus.recipe import Recipe
from alchemy.errors import AlchemyError, Refused
from alchemy.pipeline.corpora import Mapped, Parallel
from alchemy.pipeline.tokenizers import keep_tokenizer
from alchemy.text import Tokenizer, Words, load_tokenizer

ONE, OTHER = Words.train(["a dog"]), Words.train(["the cat sleeps"])


def corpus(name: Path, *lines: str, like: Path | None = None) -> Path:
    text = name.with_suffix(".txt")
    text.write_text("".join(f"{line}\n" for line in lines))
    build(Recipe(name, {"": [text]}, tokenizer="words" if like is None else {"": f"{like}.tokenizer"}))
    return name


def test_a_field_has_one_tokenizer_in_a_run(run: Run) -> None:
    for _ in range(2):
        keep_tokenizer(ONE, "ids", "train")
    keep_tokenizer(OTHER, "other", "train")
    told = "dev encodes 'ids' with different ids than train: .*; use one tokenizer for both: build a corpus with --like"
    with pytest.raises(AlchemyError, match=told):
        keep_tokenizer(OTHER, "ids", "dev")
    assert run.record_dir is not None
    assert load_tokenizer(run.record_dir / "tokenizer" / "ids").digest == ONE.digest
    assert load_tokenizer(run.record_dir / "tokenizer" / "other").digest == OTHER.digest


def test_without_a_record_too_but_not_from_one_run_to_the_next() -> None:
    with Run({"tag": "one"}):
        keep_tokenizer(ONE, "ids", "train")
        with pytest.raises(AlchemyError, match="a second tokenizer encodes 'ids' with different ids than train"):
            keep_tokenizer(OTHER, "ids")
    with Run({"tag": "two"}) as second:
        keep_tokenizer(OTHER, "ids")
        assert second.record_dir is None


def test_what_goes_on_with_a_record_keeps_to_its_tokenizer(run: Run) -> None:
    keep_tokenizer(ONE, "ids")
    with Run({"tag": "again"}) as again:
        again.record_dir = run.record_dir
        keep_tokenizer(ONE, "ids")
        with pytest.raises(AlchemyError, match=r"encodes 'ids' with different ids than .*tokenizer/ids: the same id"):
            keep_tokenizer(OTHER, "ids", "train")
    with Run({"tag": "a second process"}) as other:
        other.resume_from = run.record_dir
        with pytest.raises(Refused, match=r"train encodes 'ids' with different ids than .*tokenizer/ids: the same id"):
            keep_tokenizer(OTHER, "ids", "train")


class Silent(Tokenizer):
    """A tokenizer that does not report its content."""

    size = 1


def test_one_that_cannot_tell_what_it_is_made_of_is_not_compared(run: Run, capture_log) -> None:
    keep_tokenizer(Silent(), "ids")
    keep_tokenizer(ONE, "ids")
    assert (
        "cannot save tests.pipeline.test_tokenizers.Silent in the record: it does not define options()"
        in capture_log.text
    )
    with pytest.raises(AlchemyError, match="encodes 'ids' with different ids than Words"):
        keep_tokenizer(OTHER, "ids", "dev")


def test_corpora_leave_their_tokenizers_in_the_record(run: Run, tmp_path: Path) -> None:
    train, dev = corpus(tmp_path / "train", "a dog", "a cat"), corpus(tmp_path / "dev", "the dog")
    Mapped(str(train))
    assert run.record_dir is not None
    kept = load_tokenizer(run.record_dir / "tokenizer" / "ids")
    assert [kept.decode(ids) for ids in Corpus(train)] == ["a dog", "a cat"]
    with pytest.raises(AlchemyError, match=r"dev encodes 'ids' with different ids than .*train: .* --like"):
        Mapped(str(dev))
    Mapped(str(dev), field="other")
    with pytest.raises(AlchemyError, match="field must not be empty"):
        Mapped(str(dev), field="")
    assert len(Mapped(str(corpus(tmp_path / "dev", "the dog", like=train)))) == 1


def test_the_sides_of_parallel_text_have_one_each(run: Run, tmp_path: Path) -> None:
    Parallel(str(corpus(tmp_path / "en", "a dog")), str(corpus(tmp_path / "de", "ein Hund")))
    assert run.record_dir is not None
    assert sorted(path.name for path in (run.record_dir / "tokenizer").iterdir()) == ["source", "target"]


def test_a_corpus_knows_its_tokenizer(tmp_path: Path) -> None:
    name = corpus(tmp_path / "c", "a dog")
    folder, manifest = Path(f"{name}.tokenizer"), Path(f"{name}.json")
    assert Corpus(name).tokenizer.digest == load_tokenizer(folder).digest
    OTHER.save(folder)
    with pytest.raises(
        AlchemyError, match=r"c\.tokenizer is not the tokenizer that .*c was built with; build the corpus again"
    ):
        Mapped(str(name))
    shutil.rmtree(folder)
    with pytest.raises(AlchemyError, match=r"the tokenizer of .* is missing: folder not found: .*; copy it along"):
        Mapped(str(name))
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"tokenizer": {}}))
    assert Corpus(name).tokenizer is None
    assert len(Mapped(str(name))) == 1


@pytest.mark.parametrize("change", [{"tokenizer": {"folder": 3}}, {"sources": [{}]}, {"sources": [1]}])
def test_a_manifest_that_tells_nonsense_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    name = corpus(tmp_path / "c", "a dog")
    manifest = Path(f"{name}.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    with pytest.raises(AlchemyError, match=f"is not a corpus manifest: {next(iter(change))}"):
        Corpus(name)
