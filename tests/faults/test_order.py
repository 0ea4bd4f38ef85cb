"""Fault 1: the same order in every epoch, and a seed that never reached the loader."""

import pytest

from alchemy import run

PIPES = [
    {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": [{"x": i / 4 - 1, "id": i} for i in range(8)]},
    {"type": "alchemy.pipeline.itr.Shuffle"},
    {"type": "alchemy.pipeline.itr.Batch", "batch_size": 2},
]
DATA = {"list": {"batch_size": 2, "shuffle": True}, "pipes": {"pipes": PIPES}}


def orders(data, seed, epochs=3):
    """Return the ids of every epoch, in the order in which the model saw them."""
    import line_parts

    line_parts.SEEN.clear()
    sched = {"type": "alchemy.sched.Constant", "epochs": epochs, "pipes": [{"type": "line_parts.See"}]}
    task = {"type": "line_parts.LineTask", "datasets": {"train": data}}
    result = run([line_parts.config(seed=seed, sched=sched, task=task)], device=[-1])[0]
    assert result.exception is None, result.exception
    return [sum((ids for at, ids in line_parts.SEEN if at == epoch), ()) for epoch in range(epochs)]


@pytest.mark.parametrize("kind", DATA)
def test_every_epoch_has_an_order_of_its_own_from_the_seed(kind):
    first = orders(DATA[kind], seed=0)
    assert [sorted(order) for order in first] == [list(range(8))] * 3
    assert len(set(first)) == 3
    assert orders(DATA[kind], seed=0) == first
    assert orders(DATA[kind], seed=1) != first
