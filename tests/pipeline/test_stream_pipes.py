"""Behavior of individual stream and list pipes beyond the common contract."""

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline import ItrDataPipeline, build_datapipes, itr, lst
from alchemy.pipeline.lst import SequenceWrapper

SAMPLES = [{"text": "a b", "label": "1"}, {"text": "c", "label": "0"}]


class Unsized(ItrDataPipeline):
    def __init__(self, items=(1, 2, 3)):
        super().__init__()
        self.items = items

    def __iter__(self):
        return iter(self.items)


class Counter:
    def __init__(self, start=0):
        self.start = start

    def __call__(self, text):
        return self.start + len(text)


def test_map_on_a_field_keeps_the_others_and_the_sample():
    pipe = itr.Map(SequenceWrapper(SAMPLES), "builtins.len", field="text", to="size")
    assert list(pipe) == [{**SAMPLES[0], "size": 3}, {**SAMPLES[1], "size": 1}]
    assert "size" not in SAMPLES[0]


@pytest.mark.parametrize(
    ("fn", "args", "result"),
    [
        ("builtins.int", {}, [1, 0]),
        ("builtins.int", {"base": 2}, [1, 0]),
        (int, None, [1, 0]),
        ({"type": f"{__name__}.Counter", "start": 5}, None, [6, 6]),
        (f"{__name__}.Counter", None, [1, 1]),
        (lambda text: text + "!", None, ["1!", "0!"]),
    ],
)
def test_a_function_may_be_a_path_a_table_or_an_object(fn, args, result):
    pipe = itr.Map(SequenceWrapper(SAMPLES), fn, args=args, field="label")
    assert [sample["label"] for sample in pipe] == result


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"fn": "operator.nothing"}, "Map: fn: module 'operator' has no 'nothing'"),
        ({"fn": "operator.contains", "args": {"c": 1}}, "Map: fn"),
        ({"fn": f"{__name__}.SAMPLES"}, "which is not callable"),
        ({"fn": {"start": 1}}, "Map: fn needs a 'type'"),
    ],
)
def test_a_function_that_is_none_is_refused_when_the_pipe_is_built(kwargs, message):
    with pytest.raises(AlchemyError, match=message):
        itr.Map(SequenceWrapper(SAMPLES), **kwargs)


def test_a_field_that_is_not_there_is_named():
    with pytest.raises(AlchemyError, match="Map: a sample has no field 'body'; it has text, label"):
        list(itr.Map(SequenceWrapper(SAMPLES), "builtins.len", field="body"))
    with pytest.raises(AlchemyError, match="Filter: a sample has no field 'x'; it has a int, not a dict"):
        list(itr.Filter(SequenceWrapper([1]), "builtins.bool", field="x"))


def test_fields_are_kept_and_renamed():
    pipe = itr.Fields(SequenceWrapper(SAMPLES), keep=["label"], rename={"text": "sentence"})
    assert next(iter(pipe)) == {"sentence": "a b", "label": "1"}
    with pytest.raises(AlchemyError, match="no field 'txt'"):
        list(itr.Fields(SequenceWrapper(SAMPLES), rename={"txt": "t"}))


def test_filter_on_a_field():
    assert [s["text"] for s in itr.Filter(SequenceWrapper(SAMPLES), "builtins.int", field="label")] == ["a b"]


def test_a_length_can_be_stated_and_goes_on_through_the_chain():
    with pytest.raises(
        TypeError, match=r"Shuffle has no length because .*Unsized has none; put alchemy.pipeline.itr.WithLength"
    ):
        len(itr.Shuffle(Unsized()))
    assert len(itr.Batch(itr.Shuffle(itr.WithLength(Unsized(), 3)), 2)) == 2


@pytest.mark.parametrize(
    "pipe",
    [lambda: itr.Shuffle([], 0), lambda: itr.WithLength([], -1), lambda: itr.Take([], 1.5)],  # type: ignore[arg-type]
)
def test_numbers_are_checked(pipe):
    with pytest.raises(AlchemyError, match=r"must be (an integer|at least)"):
        pipe()


def test_a_share_of_what_a_filter_keeps_is_not_taken():
    split = itr.SplitByWorker(SequenceWrapper(list(range(9))))
    with pytest.raises(AlchemyError, match=r"Take cannot follow a Filter after SplitByWorker: .*; put Take before"):
        itr.Take(itr.Shuffle(itr.Filter(split, "operator.truth")), 2)
    assert list(itr.Take(itr.Map(split, "operator.neg"), 2)) == [0, -1]
    filtered = itr.Filter(SequenceWrapper(list(range(9))), "operator.truth")
    assert list(itr.SplitByWorker(itr.Take(filtered, 2))) == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"seed": "1"}, "seed must be an integer, not the string '1'"),
        ({"share": "half"}, "share must be a number, not the string 'half'"),
        ({"share": 2}, "share must be below 1, not 2"),
    ],
)
def test_what_holds_nothing_out_is_refused(options, message):
    with pytest.raises(AlchemyError, match=message):
        lst.HoldOut(SequenceWrapper([1, 2, 3, 4]), **{"share": 0.5, **options})


def test_concat_joins_chains_of_a_config(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n", "utf-8")
    chains = [[{"type": "alchemy.pipeline.itr.LineOpener", "datapipe": [str(tmp_path / name)]}] for name in "ab"]
    pipe = build_datapipes([{"type": "alchemy.pipeline.itr.Concat", "pipes": chains}])
    assert list(pipe) == ["a1", "a2", "b1", "b2"]
    with pytest.raises(AlchemyError, match="Concat has no sources"):
        itr.Concat(pipes=[])


def test_shuffles_in_one_chain_have_orders_of_their_own():
    pipe = itr.Shuffle(itr.Shuffle(SequenceWrapper(list(range(50)))))
    other = itr.Shuffle(SequenceWrapper(list(range(50))))
    assert list(pipe) != list(other)


def test_a_stream_becomes_a_list():
    data = lst.ItrToLst(Unsized())
    assert (len(data), data[1], list(data)) == (3, 2, [1, 2, 3])
    with pytest.raises(AlchemyError, match=r"ItrToLst: .*Unsized yields no samples"):
        lst.ItrToLst(Unsized(()))
    with pytest.raises(TypeError, match="ItrToLst has no length"):
        lst.ItrToLst(Unsized(), is_sized=True)


def test_a_wrong_length_is_told(capture_log):
    assert len(lst.ItrToLst(itr.WithLength(Unsized(), 9), is_sized=True)) == 3
    assert "has a length of 9 samples but yielded 3" in capture_log.text


def test_list_pipes_need_an_index():
    for make in (
        lambda p: lst.Map(p, "builtins.len"),
        lambda p: lst.Filter(p, "builtins.len"),
        lambda p: lst.Take(p, 1),
    ):
        with pytest.raises(
            AlchemyError, match=r"lst\.\w+ needs indexable data, got the stream .*Unsized; put .*ItrToLst"
        ):
            make(Unsized())


def test_taking_from_a_list_ends_where_it_should():
    taken = lst.Take(SequenceWrapper([1, 2, 3]), 2)
    assert (list(taken), taken[-1]) == ([1, 2], 2)
    with pytest.raises(IndexError, match="sample 2 of 2"):
        taken[2]
    with pytest.raises(AlchemyError, match="Filter keeps none of 3 samples"):
        lst.Filter(SequenceWrapper([1, 2, 3]), "operator.not_")
