"""Config files of all kinds: each is read, or rejected with one clear message and its line."""

import contextlib
import datetime
import math
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.config.formats import LARGEST, parse
from alchemy.config.load import prepare_cfg
from alchemy.errors import AlchemyError, ConfigError

BROKEN_TOML = [
    ("a = 1\nb = abc", r"t.toml:2 'abc' is not a valid value; put strings in quotes: \"abc\""),
    ("a = True", "t.toml:1 'True' is not a valid value; write true"),
    ("a = None", "t.toml:1 'None' is not a valid value; write { none = true }"),
    ("a = 1\nb =", "t.toml:2 a value is missing"),
    ("x = 1\na = [1,\n2\nb = 3", "t.toml:2 the list that starts here is never closed"),
    ("x = 1\na = { b = 1,\n c = 2", "t.toml:2 .* never closed"),
    ("a = { b = 1,\n c = 2,\n d = abc\n}", "t.toml:3 'abc' is not a valid value"),
    ("a = 1\n\na = 2", "t.toml:3 a is set twice; it is first set on line 1"),
    ("[a]\n[b]\n[a]", "t.toml:3 a is set twice; it is first set on line 1"),
    ("a = { x = 1,\n x = 2 }", "t.toml:2 a.x is set twice"),
    ("[[a]]\n[a]", "t.toml:2 the table is already defined"),
    ("\na b = 1", "t.toml:2 a line must be 'key = value'"),
    ("[a\nb = 1", "t.toml:1 the table header is not closed"),
    ("a = 1 b = 2", "t.toml:1 unexpected text after the value: 'b = 2'"),
    ('a = "x\nb = 1', "t.toml:1 .* does not end on this line"),
    ('a = 1\nb = """x\ny', "t.toml:2 .* never closed"),
    ('a = "C:\\dir"', "t.toml:1 a backslash in double quotes"),
    ("a = " + "[" * 500 + "]" * 500, "t.toml:1 tables are nested more than 100 levels deep"),
    ("a" + ".a" * 500 + " = 1", "t.toml:1 tables are nested more than 100 levels deep"),
    ('a = { toml = "x y" }', "t.toml:1 'x y' is not a TOML value"),
]
BROKEN_OTHERS = [
    (".json", '{"a": 1\n "b": 2}', "t.json:2 invalid JSON"),
    (".json", '{"a": 1,\n "a": 2}', "t.json:2 a is set twice; it is first set on line 1"),
    (".json", "[1, 2]", "a JSON config must be one object"),
    (".json", '{"a": "\\ud800"}', "t.json:1 .* surrogate"),
    (".ini", "a = 1\n[x.y]\nb = abc", "t.ini:3 'abc' is not a valid value; put strings in quotes: \"abc\""),
    (".ini", "[x]\na = 1\n[x]", "t.ini:3 x is set twice; it is first set on line 1"),
    (".ini", "[x]\na: 1\na = 2", "t.ini:3 x.a is set twice"),
    (".ini", "a = 1\n[a]\nb = 1", "t.ini:2 a is set twice"),
    (".py", "a = 1\nb = 1 / 0", "t.py:2 the code raised ZeroDivisionError"),
    (".py", "a = 1\nb = (", "t.py:2 invalid Python"),
    (".py", "import sys\nsys.exit(3)", "t.py:2 the code raised SystemExit"),
    (".py", "a = 1\nb = object()", "t.py:2 b is a object, which a config cannot contain"),
    (".py", "cfg = 3", "t.py:1 cfg must be a dict, not int"),
]


@pytest.mark.parametrize(("text", "match"), BROKEN_TOML)
def test_broken_toml_is_explained(text, match):
    with pytest.raises(ConfigError, match=match):
        parse(text, ".toml", "t.toml")


@pytest.mark.parametrize(("suffix", "text", "match"), BROKEN_OTHERS)
def test_broken_files_of_other_formats_are_explained(suffix, text, match):
    with pytest.raises(ConfigError, match=match):
        parse(text, suffix, f"t{suffix}")


FILES = [
    (b"", "the file is empty"),
    (b" \n\t\n", "the file is empty"),
    (b"# nothing\n", "contains no settings"),
    (b"a = 1\n\0\0", "binary"),
    ("a = 1".encode("utf-16"), "UTF-16"),
    (b"a = 1\nb = '\xff\xfe'", "t.toml:2 the file is not UTF-8"),
    (b"# " + b"x" * LARGEST, "larger than 4 MB"),
]


@pytest.mark.parametrize(("content", "match"), FILES, ids=[match for _, match in FILES])
def test_files_that_are_no_config_are_refused(content, match, tmp_path):
    (tmp_path / "t.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=match):
        prepare_cfg(tmp_path / "t.toml")


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "train.toml").write_text("a = 1")
    (tmp_path / "folder.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "t.yaml").write_text("a: 1")
    (tmp_path / "code.py").write_text("a = 1")
    for name, match in [
        ("trian.toml", "config file not found: .* did you mean 'train.toml'"),
        ("nowhere/train.toml", "there is no folder"),
        ("folder.toml", "is a folder"),
        ("pipe.toml", "not a regular file"),
        ("t.yaml", r"supported: .toml, .json, .ini"),
        ("code.py", "pass --allow-code"),
        ("a\0b.toml", "config file not found"),
    ]:
        with pytest.raises(ConfigError, match=match):
            prepare_cfg(tmp_path / name)


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path):
    (tmp_path / "t.toml").write_bytes(b"\xef\xbb\xbfseed = 1\r\n[t]\r\nk = '''a\r\nb'''\r\n")
    doc = prepare_cfg(tmp_path / "t.toml")
    assert doc == {"seed": 1, "t": {"k": "a\nb"}}
    assert doc["t"].where("k").endswith("t.toml:3")


SAME = {
    "toml": """
seed = 1
none = { none = true }
big = inf
day = 1979-05-27
plugins = [ { type = "a.B", x = 1.0 }, { type = "a.C" } ]
[task.datasets.train]
paths = ["x", "y"]  # two
""",
    "json": """
{ "seed": 1, "none": null, "big": Infinity, "day": { "toml": "1979-05-27" }, "//": "a remark",
  "plugins": [ { "type": "a.B", "x": 1.0 }, { "type": "a.C" } ],  // parts
  "task": { "datasets": { "train": { "paths": ["x", "y"] } } } }
""",
    "ini": """
seed = 1
none = { none = true }
big = inf
; a remark
day = 1979-05-27
plugins = [
  { type = "a.B", x = 1.0 },
  # the other
  { type = "a.C" },
  ]
[task.datasets.train]
paths = ["x", "y"]  # two
""",
    "py": """
import datetime
seed = 1
none = None
big = float("inf")
day = datetime.date(1979, 5, 27)
plugins = [dict(type="a.B", x=1.0), {"type": "a.C"}]
task = {"datasets": {"train": {"paths": ("x", "y")}}}
""",
}


def test_four_formats_give_the_same_config_and_their_lines(tmp_path):
    docs = {}
    for suffix, text in SAME.items():
        (tmp_path / f"t.{suffix}").write_text(text)
        docs[suffix] = prepare_cfg(tmp_path / f"t.{suffix}", allow_code=True)
    assert docs["toml"] == docs["json"] == docs["ini"] == docs["py"]
    assert docs["json"]["big"] == math.inf
    assert docs["ini"]["day"] == datetime.date(1979, 5, 27)
    lines = {suffix: doc["plugins"][1].where("type").rpartition(":")[2] for suffix, doc in docs.items()}
    assert lines == {"toml": "6", "json": "3", "ini": "10", "py": "7"}


def test_code_may_give_one_cfg_and_keep_the_rest_to_itself():
    parsed = parse(
        "LR = 0.1\ndef twice(x):\n    return 2 * x\ncfg = {\n  'optim': {'lr': twice(LR)},\n}", ".py", "t.py"
    )
    assert parsed.data == {"optim": {"lr": 0.2}}
    assert parsed.lines[("optim", "lr")] == 5


CONFIGS = st.text(alphabet="ab01=.[]{}\"'#,\n \\:-_tfvde;/\r", max_size=60) | st.text(max_size=40)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CONFIGS, st.sampled_from([".toml", ".json", ".ini"]))
def test_no_text_ends_in_anything_but_data_or_a_clear_error(text, suffix):
    with contextlib.suppress(AlchemyError):
        assert isinstance(parse(text, suffix, "t").data, dict)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CONFIGS)
def test_no_toml_ends_in_a_traceback(text):
    with contextlib.suppress(AlchemyError):
        assert isinstance(prepare_cfg(parse(text, ".toml", "t").data, overrides=[text]), dict)
