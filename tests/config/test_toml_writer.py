"""Written TOML reads back equal after any change, and keeps comments and order."""

import datetime
import enum
import math
import re
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.config import dumps, prepare_cfg
from alchemy.config.formats import parse
from alchemy.config.toml_writer import is_same
from alchemy.config.tree import Document, Origin, build_tree
from alchemy.errors import ConfigError

TEXT = """\
# An experiment.

seed = 1  # for all
lr = 1e-3
plugins = [
    # the first
    { type = "a.Setup" },  # always
    { type = "a.Log", log_dir = 'x' },
    { type = "a.Seed", seed = 0 },
    # the end
]

# About the data
[task]
type = "src.Task"

[task.datasets.train]  # much
paths = ["a",   "b"]
[[task.pipes]]
type = "p.One"
[[task.pipes]]  # two
type = "p.Two"
# bye
"""


@pytest.fixture
def doc(tmp_path):
    (tmp_path / "t.toml").write_text(TEXT)
    return prepare_cfg(tmp_path / "t.toml")


def reread(text):
    return parse(text, ".toml", "t.toml").data


def test_what_nobody_changed_is_written_as_it_was(doc):
    assert dumps(doc) == TEXT


def test_changes_leave_the_other_comments_and_the_order(doc):
    plugins = doc["plugins"]
    plugins.remove(plugins[1])
    plugins[1]["seed"] = 7
    doc["lr"] = 0.5
    doc["task"]["datasets"].pop("train")
    del doc["task"]["pipes"][0]
    doc["new"] = {"a": None}
    text = dumps(doc)
    assert is_same(reread(text), doc.plain())
    for kept in ("# An experiment.", "# for all", "# the first", "# always", "# the end", "# About", "# two", "# bye"):
        assert kept in text
    assert "# much" not in text
    assert list(reread(text)) == ["seed", "lr", "plugins", "task", "new"]


@pytest.mark.parametrize(
    "text",
    [
        "l = [1, # one\n  2, 3, # three\n  # four\n  4 ]",
        "l = [ # open\n 1,\n\n # three\n 3 # last\n # end\n]",
        "l = [\n  2,\n  { a = 1, # inside\n    b = 2, },\n  3,\n]",
        "l = [2, 3] # beside\n# tail",
        "# top\n\nl.a = 1 # dotted\nl.b = [2, 3]\n",
    ],
)
def test_comments_stay_in_odd_layouts(text):
    doc: Any = build_tree(reread(text), Origin(), kind=Document)
    doc.source = text
    numbers = doc["l"] if isinstance(doc["l"], list) else doc["l"]["b"]
    if 2 in numbers:
        numbers.remove(2)
    numbers.append(9)
    written = dumps(doc)
    assert is_same(reread(written), doc.plain())
    assert [remark for remark in re.findall(r"# \w+", text) if remark not in written] == []


def test_tables_of_toml_1_1_are_written_for_readers_of_1_0(tmp_path):
    (tmp_path / "t.toml").write_text("seed = 1\nt = {\n  a = 1, # why\n  b = [1, 2],\n}\n")
    text = dumps(prepare_cfg(tmp_path / "t.toml"))
    assert "# why" in text
    assert tomlkit.parse(text).unwrap() == {"seed": 1, "t": {"a": 1, "b": [1, 2]}}


def test_the_record_holds_what_a_run_was_made_of(tmp_path):
    (tmp_path / "base.toml").write_text("[optim]\nlr = 1\n[data]\nx = 1\n")
    (tmp_path / "t.toml").write_text(
        "base = 'base.toml' # common\nseed = 1\n[optim]\nlr = 2\n[variant.v.optim]\nlr = 3\n"
    )
    doc = prepare_cfg(tmp_path / "t.toml", variant="v")
    (tmp_path / "cfg.toml").write_text(dumps(doc))
    again = prepare_cfg(tmp_path / "cfg.toml")
    assert again == doc == {"seed": 1, "optim": {"lr": 3}, "data": {"x": 1}}
    assert list(again) == ["seed", "optim", "data"]


class Color(enum.StrEnum):
    RED = "red"


def test_odd_values_have_a_spelling(tmp_path):
    import numpy

    odd = {
        "p": tmp_path,
        "t": (1, 2),
        "n": numpy.float32(0.5),
        "e": Color.RED,
        "none": {"none": True},
        "l": [None, math.nan],
    }
    data = reread(dumps(odd))
    assert str(data.pop("l")) == "[None, nan]"
    assert data == {"p": str(tmp_path), "t": [1, 2], "n": 0.5, "e": "red", "none": {"none": True}}
    with pytest.raises(ConfigError, match=r"a\.0 is a set, which a config cannot contain"):
        dumps({"a": [{1}]})
    with pytest.raises(ConfigError, match="the key 1 is not a string"):
        dumps({1: 2})  # type: ignore[dict-item]


def test_a_tomlkit_document_is_taken_with_its_comments():
    doc = prepare_cfg(tomlkit.parse(TEXT))
    assert type(doc["lr"]) is float
    assert dumps(doc) == TEXT


# -- properties
KEYS = st.text(alphabet="abc.-_ \"'#=\\\né", max_size=4)
MOMENTS = st.datetimes() | st.dates() | st.times() | st.datetimes(timezones=st.just(datetime.UTC))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | MOMENTS
SPELT = st.sampled_from([{"none": True}, {"toml": "1"}, {"toml": "{"}, {}])
VALUES = st.recursive(
    SCALARS | SPELT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
DATA = st.dictionaries(KEYS, VALUES, max_size=5)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(DATA)
def test_any_data_reads_back_equal(data):
    assert is_same(reread(dumps(data)), data)


def containers(node):
    yield node
    for item in node.values() if isinstance(node, dict) else node:
        if isinstance(item, dict | list):
            yield from containers(item)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), start=DATA)
def test_after_any_change_it_reads_back_equal(data, start):
    source = data.draw(st.sampled_from([TEXT, dumps(start)]))
    doc: Any = build_tree(reread(source), Origin(), kind=Document)
    doc.source = source
    for _ in range(data.draw(st.integers(1, 5))):
        node = data.draw(st.sampled_from(list(containers(doc))))
        if len(node) and data.draw(st.booleans()):
            if isinstance(node, dict):
                node.pop(data.draw(st.sampled_from(list(node))))
            else:
                node.remove(data.draw(st.sampled_from(list(node))))
        elif isinstance(node, dict):
            node[data.draw(KEYS | st.sampled_from(["seed", "lr", "type"]))] = data.draw(VALUES)
        else:
            node.append(data.draw(VALUES))
    assert is_same(reread(dumps(doc)), doc.plain())


def test_a_source_that_cannot_be_read_any_more_is_written_plainly(doc):
    doc.source = "a = ["
    assert is_same(reread(dumps(doc)), doc.plain())
