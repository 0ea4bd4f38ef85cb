"""A memory-mapped corpus: views instead of copies, readable by any worker, batches padded in one operation."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alchemy.data.corpus.build import build
from alchemy.data.corpus.info import collect_stats
from alchemy.data.corpus.layout import corpus_path
from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.data.corpus.recipe import Recipe
from alchemy.data.loader import get_dataloader
from alchemy.errors import AlchemyError
from alchemy.pipeline.corpora import Mapped, Parallel
from alchemy.text import Words

LENGTHS = [3, 0, 5, 1, 4, 2, 7, 1, 1, 6]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    for side, sizes in (("en", LENGTHS), ("de", LENGTHS[::-1])):
        lines = [" ".join(f"{side}{n}" for n in range(size)) for size in sizes]
        (folder / f"t.{side}").write_text("".join(f"{line}\n" for line in lines))
    build(Recipe(folder / "t", {side: [folder / f"t.{side}"] for side in ("en", "de")}))
    return folder / "t"


@pytest.fixture(scope="module")
def english(out: Path) -> Corpus:
    return Corpus(f"{out}.en")


def test_sentences_are_views_of_the_file(english: Corpus) -> None:
    assert [len(ids) for ids in english] == [size + 1 for size in LENGTHS]
    assert english.lengths.tolist() == [size + 1 for size in LENGTHS]
    assert np.shares_memory(english[2], english.ids)
    assert all(np.shares_memory(ids, english.ids) for ids in english[2:5])
    assert english[-1].tolist() == english[len(LENGTHS) - 1].tolist()
    assert [ids.tolist() for ids in english[::-4]] == [english[i].tolist() for i in (9, 5, 1)]
    with pytest.raises(IndexError, match="sentence 10 is out of range for 10 sentences"):
        english[10]


def test_a_worker_gets_the_name_and_maps_the_file_itself(english: Corpus) -> None:
    english.ids  # noqa: B018 (mapped)
    text = pickle.dumps(english)
    assert len(text) < 2000
    assert [ids.tolist() for ids in pickle.loads(text)] == [ids.tolist() for ids in english]


@given(
    rows=st.lists(st.integers(0, len(LENGTHS) - 1), min_size=1, max_size=12),
    left=st.booleans(),
    multiple=st.integers(1, 5),
    limit=st.integers(1, 9) | st.none(),
    pad=st.integers(-1, 3),
)
def test_padded_rows_are_the_sentences(
    english: Corpus, rows: list[int], left: bool, multiple: int, limit: int | None, pad: int
) -> None:
    found, lengths = english.padded(rows, pad=pad, left=left, multiple=multiple, limit=limit)
    whole = [english[row].tolist() for row in rows]
    wanted = [row if limit is None or len(row) <= limit else [*row[: limit - 1], 2] for row in whole]
    width = -(-max(map(len, wanted)) // multiple) * multiple
    fill = [[pad] * (width - len(row)) for row in wanted]
    assert found.tolist() == [[*f, *row] if left else [*row, *f] for f, row in zip(fill, wanted)]
    assert (found.dtype, lengths.tolist()) == (np.int64, [len(row) for row in wanted])


def test_rows_are_counted_from_the_end_too(english: Corpus) -> None:
    assert english.padded([-1, 0])[0].tolist() == english.padded([9, 0])[0].tolist()
    assert english.padded([])[0].shape == (0, 0)
    with pytest.raises(IndexError, match="sentences 0 to 10 are out of range for 10 sentences"):
        english.padded([0, 10])
    with pytest.raises(TypeError, match="must be integers, got float64"):
        english.padded([0.5])  # type: ignore[list-item]


# -- changed files


def test_offsets_that_run_backwards_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b\nc\n")
    build(Recipe(tmp_path / "c", {"": [tmp_path / "t.txt"]}))
    np.array([0, 7, 5], np.uint64).tofile(tmp_path / "c.idx")
    with pytest.raises(AlchemyError, match=r"c\.idx is damaged; build the corpus again"):
        Corpus(tmp_path / "c").lengths  # noqa: B018 (computed)


def test_a_corpus_that_is_built_anew_is_never_mixed_with_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b c\n" * 4)
    build(Recipe(tmp_path / "c", {"": [tmp_path / "t.txt"]}))
    opened, read = Corpus(tmp_path / "c"), Mapped(str(tmp_path / "c"))
    batches = [batch["ids"].tolist() for batch in get_dataloader(read, max_sentences=2, num_workers=2)]
    (tmp_path / "t.txt").write_text("z y x z y x q\n" * 6)
    build(Recipe(tmp_path / "c", {"": [tmp_path / "t.txt"]}))
    again = get_dataloader(read, max_sentences=2, num_workers=2)
    assert [batch["ids"].tolist() for batch in again] == batches
    with pytest.raises(AlchemyError, match="was rebuilt after it was opened; start the run again"):
        opened[0]


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".json", None, "corpus '.*c' not found: .*c.json is missing; build one with `alchemy data build`"),
        (".json", b"{", "cannot read .*c.json: .*; build the corpus again"),
        (".json", b"[]", "c.json has the format None, expected 1"),
        (".json", b'{"format": 1}', "c.json is not a corpus manifest: .*missing .*'sentences'"),
        (".json", b'{"tokens": "x"}', "not a corpus manifest: tokens must be an integer, not the string 'x'"),
        (".json", b'{"longest": null}', "longest must be an integer, not "),
        (
            ".json",
            b'{"dtype": "float64"}',
            "dtype must be one of 'uint8', 'uint16', 'uint32', not the string 'float64'",
        ),
        (".idx", np.array([0, 3, 9], np.uint64).tobytes(), "c.idx ends with 9, expected 5"),
        (".bin", None, "c.bin is missing; the file was truncated"),
        (".bin", b"abc", "c.bin has 3 bytes, expected "),
        (".idx", b"", "c.idx has 0 bytes, expected "),
    ],
)
def test_a_damaged_corpus_is_refused(tmp_path: Path, suffix: str, content: bytes | None, message: str) -> None:
    (tmp_path / "t.txt").write_text("a b\nc\n")
    build(Recipe(tmp_path / "c", {"": [tmp_path / "t.txt"]}))
    path = corpus_path(tmp_path / "c", suffix)
    whole = path.read_bytes()
    path.unlink()
    if content is not None and content[:2] == b'{"' and b"format" not in content:  # one invalid field
        content = json.dumps(json.loads(whole) | json.loads(content)).encode()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AlchemyError, match=message):
        Corpus(tmp_path / "c")


def test_facts_are_counts_lengths_and_places(english: Corpus) -> None:
    found = json.loads(json.dumps(collect_stats(english)))
    assert (found["sentences"], found["tokens"], found["unknown"]) == (10, 40, 0)
    assert (found["mean"], found["median"]) == (4.0, 3.5)
    assert sum(row["sentences"] for row in found["histogram"]) == 10
    assert found["longest"][0] == {"sentence": 6, "tokens": 8, "where": f"{english.manifest.sources[0]['path']}:7"}


# -- in training


def test_a_loader_gets_batches_that_fit_a_budget(out: Path) -> None:
    data = Mapped(f"{out}.en")
    batches = list(get_dataloader(data, max_tokens=12))
    assert sum(len(batch["ids"]) for batch in batches) == len(LENGTHS)
    for batch in batches:
        assert batch["ids"].numel() <= 12
        assert batch["ids"].shape[1] == int(batch["ids_lengths"].max())
        assert batch["ids"].dtype == torch.int64


@pytest.mark.parametrize("workers", [0, 2])
def test_sides_are_read_together(out: Path, workers: int) -> None:
    data = Parallel(f"{out}.en", f"{out}.de", left_source=True)
    source, target = data.corpora["source"], data.corpora["target"]
    loader = get_dataloader(data, seed=3, max_tokens=16, shuffle=True, num_workers=workers)
    seen = []
    for batch in loader:
        assert loader.own is not None
        seen += loader.own
        for row, index in enumerate(loader.own):
            words, wanted = batch["target"][row].tolist(), target[index].tolist()
            assert words == [*wanted, *[0] * (len(words) - len(wanted))]
            assert batch["prev_output_tokens"][row].tolist()[: len(wanted)] == [2, *wanted[:-1]]
            assert not any(batch["prev_output_tokens"][row].tolist()[len(wanted) :])
            assert batch["source"][row].tolist()[-len(source[index]) :] == source[index].tolist()
    assert sorted(seen) == list(range(len(LENGTHS)))
    assert data[0].keys() == {"source", "target"}


def test_long_sentences_are_cut_where_that_is_asked_for(out: Path) -> None:
    with pytest.raises(AlchemyError, match=r"t\.en:3 has 6 tokens, more than the limit of 5 \(3 samples are too long"):
        get_dataloader(Mapped(f"{out}.en"), max_tokens=5)
    data = Mapped(f"{out}.en")
    batches = list(get_dataloader(data, max_tokens=5, too_long="truncate"))
    assert sum(len(batch["ids"]) for batch in batches) == len(LENGTHS)
    assert max(batch["ids"].shape[1] for batch in batches) == 5
    skipped = list(get_dataloader(Mapped(f"{out}.en"), max_tokens=5, too_long="skip"))
    assert sum(len(batch["ids"]) for batch in skipped) == len(LENGTHS) - 3


def test_only_what_is_counted_is_cut(out: Path) -> None:
    data = Parallel(f"{out}.en", f"{out}.de")
    batches = list(get_dataloader(data, max_tokens=5, tokens_of="target", too_long="truncate"))
    assert [max(batch[side].shape[1] for batch in batches) for side in ("source", "target")] == [max(LENGTHS) + 1, 5]


def test_padding_to_a_multiple_is_part_of_the_budget(out: Path) -> None:
    batches = list(get_dataloader(Mapped(f"{out}.en", multiple=4), max_tokens=16))
    assert [batch["ids"].numel() <= 16 for batch in batches] == [True] * len(batches)
    assert sum(len(batch["ids"]) for batch in batches) == len(LENGTHS)


def test_what_rows_are_filled_up_with_must_be_known(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b\nc\n\n")
    Words.train(["a b c"], specials={"unk": "<unk>", "eos": "<eos>"}).save(tmp_path / "w")
    build(Recipe(tmp_path / "c", {"": [tmp_path / "t.txt"]}, tokenizer={"": tmp_path / "w"}, eos=False))
    with pytest.raises(AlchemyError, match="has no padding token; set the padding id, for example pad = 0"):
        Mapped(str(tmp_path / "c"))
    (batch,) = get_dataloader(Mapped(str(tmp_path / "c"), pad=9), batch_size=3)
    assert batch["ids"].tolist() == [[2, 3], [4, 9], [9, 9]]
    with pytest.raises(AlchemyError, match="do not end with an EOS token; build it without --no-eos"):
        Parallel(str(tmp_path / "c"), str(tmp_path / "c"), pad=9)


def test_a_corpus_makes_its_batches_itself(out: Path) -> None:
    with pytest.raises(AlchemyError, match="has its own collate function; remove collate_fn, or add a pipe"):
        get_dataloader(Mapped(f"{out}.en"), max_tokens=12, collate_fn=list)


def test_the_limit_is_that_of_the_loader_that_asks(out: Path) -> None:
    data = Mapped(f"{out}.en", multiple=4)
    widths = [batch["ids"].shape[1] for batch in get_dataloader(data, max_tokens=10, too_long="truncate")]
    assert max(widths) == 8
    assert max(batch["ids"].shape[1] for batch in get_dataloader(data, max_tokens=30)) == 8
    assert max(len(data[i]["ids"]) for i in range(len(data))) == 8
    with pytest.raises(AlchemyError, match="max_tokens = 3 is less than multiple = 4"):
        get_dataloader(data, max_tokens=3)


def test_a_loader_must_be_told_how_large_a_batch_is(out: Path) -> None:
    with pytest.raises(AlchemyError, match=r"the batch size for .* is not set; set max_tokens"):
        get_dataloader(Mapped(f"{out}.en"))


def test_corpora_that_do_not_belong_together_are_refused(out: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\n")
    build(Recipe(tmp_path / "c", {"": [tmp_path / "t.txt"]}))
    with pytest.raises(AlchemyError, match=r"has 10 sentences, but .* has 1; build both corpora together"):
        Parallel(f"{out}.en", str(tmp_path / "c"))
    with pytest.raises(AlchemyError, match=r"corpus '.*t\.fr' not found: .* available: t\.de, t\.en"):
        Mapped(f"{out}.fr")
    with pytest.raises(AlchemyError, match="multiple must be at least 1, not 0"):
        Mapped(f"{out}.en", multiple=0)


def test_the_state_of_a_loader_is_a_position(out: Path) -> None:
    def rows(start: int, **options: Any) -> list[Any]:
        from alchemy.data.batch_sampler import EpochPosition

        loader = get_dataloader(
            Mapped(f"{out}.en"), 7, place=EpochPosition(start), max_tokens=12, shuffle=True, **options
        )
        return [batch["ids"].tolist() for batch in loader]

    assert rows(2) == rows(0)[2:] == rows(2, num_workers=2)
