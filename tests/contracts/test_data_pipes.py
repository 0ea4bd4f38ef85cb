"""The contract of data pipes: their samples, their length, and pickling for workers."""

import collections
import contextlib
import pickle

import numpy as np
import pytest

from alchemy.config.field_types import fits
from alchemy.data.loader import get_dataloader
from alchemy.errors import AlchemyError
from alchemy.pipeline import ItrDataPipeline, build_datapipes
from alchemy.pipeline.lst import HoldOut, SequenceWrapper
from tests.contracts.chains import CHAINS, SAMPLES, write_files
from tests.contracts.parts import each

ITR, LST = "alchemy.pipeline.itr.", "alchemy.pipeline.lst."


def numbers(samples):
    return [sample["n"] for sample in samples]


def plain(value):
    """Return samples as text, for comparison."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    return [plain(item) for item in value] if isinstance(value, list) else value


def is_a(value, kind):
    """Return whether a value matches the declaration of a pipe: the name of its type, or its dtype and shape."""
    shape = ",".join(map(str, getattr(value, "shape", ())))
    return kind in ("", type(value).__name__) or fits(kind, f"{getattr(value, 'dtype', '?')}[{shape}]")


@pytest.fixture(scope="module")
def files(tmp_path_factory, corpora):
    folder = tmp_path_factory.mktemp("files")
    write_files(folder, corpora)
    return folder


@pytest.fixture
def chain(table, files, monkeypatch):
    monkeypatch.chdir(files)
    return lambda: build_datapipes(table["chain"], seed=3)


@each("data pipe", CHAINS)
def test_every_pipe_gives_the_same_samples_again_also_where_it_has_traveled(chain):
    pipe = chain()
    first, second = ([plain(sample) for sample in pipe] for _ in range(2))
    assert first and len(first) == len(second)
    assert [plain(sample) for sample in chain()] == first  # the same seed, the same order
    assert [plain(sample) for sample in pickle.loads(pickle.dumps(chain()))] == first
    with contextlib.suppress(TypeError):  # not all pipes know their length
        assert len(pipe) == len(first)


@each("data pipe", CHAINS)
def test_every_pipe_takes_and_gives_the_fields_that_it_declares(chain):
    pipe = chain()
    for fields, samples in ((pipe.takes, pipe.datapipe), (pipe.gives, pipe)):
        for sample in samples if fields else ():
            assert fields.keys() <= sample.keys()
            assert all(is_a(sample[name], kind) for name, kind in fields.items()), (fields, sample)


# the output of a pipe for SAMPLES (None: any order), and whether it knows its length
PIPES = {
    "Shuffle": (None, True),
    "SplitByWorker": (list(range(11)), True),
    "WithLength": (list(range(11)), True),
    "itr.Map": (list(range(0, 33, 3)), True),
    "itr.Filter": ([1, 3, 5, 7, 9], False),
    "itr.Take": ([0, 1, 2, 3], True),
    "Concat": ([*range(11), 0, 1], True),
    "Fields": (list(range(11)), True),
    "ItrToLst": (list(range(11)), True),
    "lst.Map": (list(range(0, 22, 2)), True),
    "lst.Filter": ([1, 3, 5, 7, 9], True),
    "lst.Take": ([0, 1, 2, 3], True),
}
EACH = pytest.mark.parametrize(
    ("table", "given", "sized"), [(CHAINS[name]["chain"][-1], *row) for name, row in PIPES.items()], ids=PIPES
)


def build(*tables):
    return build_datapipes([{"type": LST + "SequenceWrapper", "datapipe": SAMPLES}, *tables])


@EACH
def test_a_pipe_gives_what_it_says_every_time_it_is_read(table, given, sized):
    pipe = build(table)
    for _ in range(2):
        out = numbers(pipe)
        assert sorted(out) == list(range(11)) if given is None else out == given


@EACH
def test_the_length_is_that_of_the_samples(table, given, sized):
    pipe = build(table)
    if sized:
        assert len(pipe) == len(list(pipe))
    else:
        with pytest.raises(TypeError, match="has no len"):
            len(pipe)


@EACH
@pytest.mark.parametrize("workers", [0, 2])
def test_workers_read_each_sample_once(table, given, sized, workers):
    split = {"type": ITR + "SplitByWorker"}
    if table == split or table["type"].startswith(LST):
        pipe = build(table)
    else:  # samples added by Concat are not split before it
        pipe = build(table, split) if table["type"].endswith("Concat") else build(split, table)
    once = collections.Counter(given or range(11))
    read = collections.Counter(int(sample["n"]) for sample in get_dataloader(pipe, num_workers=workers))
    assert read == once


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(
    "table",
    [{"type": ITR + "Batch"}, {"type": ITR + "BucketBatch", "key": "text", "buffer_size": 6}],
    ids=["Batch", "Bucket"],
)
def test_batches_hold_every_sample_and_know_their_number(table, drop_last):
    pipe = build({**table, "batch_size": 4, "drop_last": drop_last})
    batches = list(pipe)
    assert len(pipe) == len(batches)
    assert all(len(batch) == 4 for batch in batches) or not drop_last
    if not drop_last:
        assert sorted(number for batch in batches for number in numbers(batch)) == list(range(11))


def test_bucket_batches_hold_like_lengths_in_another_order_each_pass():
    pipe = build({"type": ITR + "BucketBatch", "batch_size": 2, "key": "text"})
    first, second = list(pipe), list(pipe)
    spread = [len(batch[-1]["text"]) - len(batch[0]["text"]) for batch in first]
    assert max(spread) <= 1
    assert first != second


def test_a_batch_is_also_found_in_the_package():
    pipe = build({"type": "alchemy.pipeline.Batch", "batch_size": 11})
    assert numbers(next(iter(pipe))) == list(range(11))
    assert isinstance(pipe, ItrDataPipeline)


@pytest.mark.parametrize(("share", "size"), [(0.1, 2), (0.5, 10), (0.96, 19)])
def test_what_is_held_out_is_in_one_of_both_chains(share: float, size: int) -> None:
    source = SequenceWrapper(list(range(20)))
    held = list(HoldOut(source, share=share, held=True, seed=3))
    rest = list(HoldOut(source, share=share, seed=3))
    assert len(held) == size
    assert sorted(held + rest) == list(range(20))
    assert held == sorted(held) and rest == sorted(rest)
    assert held != list(HoldOut(source, share=share, held=True, seed=4))


@pytest.mark.parametrize("share", [0, 1, -0.1, 0.001, 2])
def test_a_share_that_leaves_nothing_is_refused(share: float) -> None:
    with pytest.raises(AlchemyError, match=r"share must be (above 0|below 1)|share = 0.001 selects 0 of 3 samples"):
        HoldOut(SequenceWrapper([1, 2, 3]), share=share)
