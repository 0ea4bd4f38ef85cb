"""Lines, comments and TOML 1.1 tables: the scanner reports the right positions."""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.config.line_numbers import scan_json, scan_toml, split_key

SHAPES = [
    ("a = 1\nb = 2", ("b",), 2),
    ("# note\n\na = 1", ("a",), 3),
    ("[t]\nk = 1", ("t",), 1),
    ("[t]\nk = 1", ("t", "k"), 2),
    ("x = 1\na.b.c = 1", ("a", "b"), 2),
    ("x = 1\na.b.c = 1", ("a", "b", "c"), 2),
    ('\n"a.b"."c d" = 1', ("a.b", "c d"), 2),
    ("'a.b' = 1\n'x y' = 2", ("x y",), 2),
    ('"\\u00e9" = 1', ("é",), 1),
    ('a = """\none\n"""\nb = 1', ("b",), 4),
    ("a = '''\n[b]\nc = 1\n'''\nd = 1", ("d",), 5),
    ('a = """x\\""" # no comment\n""""\nb = 1', ("b",), 3),
    ('a = "# [x] = { \\" "\nb = 1', ("b",), 2),
    ("a = [\n  1,\n  2, # two\n]\nb = 1", ("a", 1), 3),
    ("a = [\n  1,\n  2, # two\n]\nb = 1", ("b",), 5),
    ("a = [[1], [\n2]]", ("a", 1, 0), 2),
    ("p = [\n { type = 'A' },\n { type = 'B', k = 1 },\n]", ("p", 1, "k"), 3),
    ("[[p]]\nk = 1\n[[p]]\nk = 2", ("p", 1), 3),
    ("[[p]]\nk = 1\n[[p]]\nk = 2", ("p", 1, "k"), 4),
    ("[[p]]\n[p.q]\nk = 1\n[[p]]\n[p.q]\nk = 2", ("p", 1, "q", "k"), 6),
    ("[[p]]\n[[p.q]]\n[[p.q]]\nk = 1", ("p", 0, "q", 1, "k"), 4),
    ("[a.b]\nk = 1\n[a]\nj = 1", ("a",), 3),
    ("[ a . b ]\nk = 1", ("a", "b", "k"), 2),
    ("t = { a = 1, b = { c = 2 } }", ("t", "b", "c"), 1),
    ("t = {\n  a = 1,\n  b = 2,\n}\nu = 1", ("t", "b"), 3),
    ("t = {\n  a = 1, # one\n  # two\n  b.c = [\n 1,\n 2],\n}\nu = 1", ("t", "b", "c", 1), 6),
    ("t = {\n  a = 1, # one\n  # two\n  b.c = [\n 1,\n 2],\n}\nu = 1", ("u",), 8),
    ("d = 1979-05-27 07:32:00 # when\ne = 1", ("e",), 2),
    ("a = 1 # x = 2\nb = inf", ("b",), 2),
]


@pytest.mark.parametrize(("text", "path", "line"), SHAPES)
def test_every_key_has_its_line(text, path, line):
    assert scan_toml(text).lines[path] == line


def test_tables_over_several_lines_become_toml_1_0_of_the_same_length():
    text = "t = {\n  a = 1, # one\n  b = '''x\n# y''',\n  c = { d = 1, },\n}\n"
    layout = scan_toml(text)
    assert len(layout.text) == len(text)
    assert tomllib.loads(layout.text) == {"t": {"a": 1, "b": "x\n# y", "c": {"d": 1}}}


def test_comments_stay_with_what_they_are_about():
    layout = scan_toml(
        "# top\n\n# a's\na = 1 # beside a\n[t] # beside t\np = [\n  # over\n  1, # one\n  # end\n]\n# tail"
    )
    assert layout.above[("a",)] == "# top\n\n# a's\n"
    beside = {path: text for path, text in layout.beside.items() if text}
    assert beside == {("a",): " # beside a", ("t",): " # beside t", ("t", "p", 0): " # one"}
    assert (layout.above[("t", "p", 0)], layout.above[("t", "p", 1)]) == ("\n  # over\n  ", "\n  # end\n")
    assert layout.tail == "\n# tail"


def test_json_has_lines_too():
    layout = scan_json('{\n "a": [1,\n  {"b": 2}], // note\n "c\\u00e9": null,\n}')
    assert layout.lines == {("a",): 2, ("a", 0): 2, ("a", 1): 3, ("a", 1, "b"): 3, ("cé",): 4}


def test_a_dotted_key_splits():
    assert split_key('a."b.c".1 = x') == (["a", "b.c", "1"], "= x")
    assert split_key("= x") is None


def _paths(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _paths(item, (*path, key))


PIECES = st.sampled_from(
    [
        "a",
        "b",
        "'c'",
        '"d"',
        ".",
        "=",
        " = ",
        "1",
        "'x'",
        '"y"',
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        ",",
        "\n",
        "# c",
        '"""',
        "'''",
        " ",
        "\\",
    ]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=40).map("".join))
def test_what_tomllib_reads_the_scanner_has_lines_for(text):
    try:
        data = tomllib.loads(text)
    except ValueError:
        return
    layout = scan_toml(text)
    assert len(layout.text) == len(text)
    assert tomllib.loads(layout.text) == data
    assert set(_paths(data)) == set(layout.lines)
