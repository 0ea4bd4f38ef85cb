"""The cost of checking a config: each file is read once, and the work grows linearly with its size."""

import sys
import tomllib
from collections import Counter

import pytest

from alchemy.config import formats
from alchemy.config.check import check
from alchemy.config.line_numbers import LONG_KEY, Lines
from alchemy.config.load import load_family, prepare_cfg
from alchemy.errors import ConfigError

HEAD = 'tag = "x"\nrunner = "alchemy.runner.Trainer"\n'
SHAPES = {
    "numbers": lambda n: f"x = [{', '.join(map(str, range(n)))}]\n",
    "tables": lambda n: "".join(f"[t{i}]\nx = {i}\n" for i in range(n)),
    "keys": lambda n: "[model]\ntype = 'torch.nn.Linear'\n" + "".join(f"k{i} = {i}\n" for i in range(n)),
    "inline tables": lambda n: f"x = [{', '.join(['{a = 1}'] * n)}]\n",
    "plugins": lambda n: "".join(f"[[plugins]]\ntype = 'alchemy.plugins.Seeding'\nseed = {i}\n" for i in range(n)),
    "unknown types": lambda n: "".join(f"[[plugins]]\ntype = 'alchemy.plugins.X{i}'\n" for i in range(n)),
    "splits": lambda n: (
        "[task]\ntype = 'alchemy.tasks.Classification'\n"
        + "".join(f"[task.datasets.s{i}]\nbatch_size = 1\n" for i in range(n))
    ),
    "variants": lambda n: "[optim]\nlr = 1\n" + "".join(f"[variant.v{i}.optim]\nlr = {i + 2}\n" for i in range(n)),
    "dots": lambda n: f"[model]\ntype = '{'a.' * n}b'\n",
}


def calls(function) -> int:
    """Return the number of Python functions that a call of `function` enters."""
    count: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: count.update([event]))
    try:
        function()
    finally:
        sys.setprofile(before)
    return count["call"] + count["c_call"]


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_text_takes_at_most_twice_the_work(tmp_path, shape):
    def work(size: int) -> int:
        file = tmp_path / f"{size}.toml"
        file.write_text(HEAD + SHAPES[shape](size))
        return calls(lambda: [check(doc) for doc in load_family(file)[:3]])

    work(10)  # warm up: the sources of parts are read
    few, many = work(200), work(400)
    assert many < 2.2 * few


def test_a_file_that_is_named_twice_on_every_level_is_read_once(tmp_path, monkeypatch):
    read: Counter[str] = Counter()
    text = formats._decode_text
    monkeypatch.setattr(formats, "_decode_text", lambda path, where: read.update([path[-7:]]) or text(path, where))
    for level in range(30):
        (tmp_path / f"{level:02}.toml").write_text(
            f'base = ["{level + 1:02}.toml", "./{level + 1:02}.toml"]\nk{level} = 1\n'
        )
    (tmp_path / "30.toml").write_text("seed = 1\n[variant.a]\nseed = 2\n")
    doc = prepare_cfg(tmp_path / "00.toml")
    assert set(read.values()) == {1} and len(read) == 31
    assert (doc["seed"], doc["k29"], len(doc)) == (1, 1, 31)


def test_a_base_that_is_named_twice_is_not_changed_by_what_is_laid_over_it(tmp_path):
    (tmp_path / "low.toml").write_text('[[plugins]]\ntype = "a.B"\nx = 1\n[optim]\nlr = 1\n')
    (tmp_path / "mid.toml").write_text('base = "low.toml"\n[plugins.B]\nx = 2\n[optim]\nlr = 2\n')
    (tmp_path / "top.toml").write_text('base = ["mid.toml", "low.toml"]\n')
    doc = prepare_cfg(tmp_path / "top.toml")
    assert (doc["plugins"][0]["x"], doc["optim"]["lr"]) == (1, 1)


def test_variants_of_one_reading_do_not_change_each_other(tmp_path):
    (tmp_path / "c.toml").write_text(
        'seed = 0\n[[plugins]]\ntype = "a.B"\n[variant.x.plugins.B]\nx = 1\n[variant.y.plugins.B]\ny = 1\n'
    )
    kinds = [sorted(doc["plugins"][0]) for doc in load_family(tmp_path / "c.toml")]
    assert kinds == [["type"], ["type", "x"], ["type", "y"]]


def test_bases_of_bases_end_somewhere(tmp_path):
    for level in range(300):
        (tmp_path / f"{level}.toml").write_text(f'base = "{level + 1}.toml"\n')
    with pytest.raises(ConfigError, match=r"100.toml:1 bases of bases are nested more than 100 levels deep"):
        prepare_cfg(tmp_path / "0.toml")


def test_no_line_is_counted_for_a_config_without_problems(tmp_path, monkeypatch):
    monkeypatch.setattr(Lines, "found", property(lambda self: pytest.fail("the text was scanned")))
    (tmp_path / "low.toml").write_text("[optim]\nlr = 1\n")
    (tmp_path / "c.toml").write_text("base = 'low.toml'\nx = [1, 2]\n[model.inner]\na = 1\n".replace("base", "b"))
    assert prepare_cfg(tmp_path / "c.toml")["model"] == {"inner": {"a": 1}}


def test_a_type_of_thousands_of_parts_is_refused(tmp_path):
    (tmp_path / "c.toml").write_text(HEAD + SHAPES["dots"](5000))
    problems = [str(problem) for problem in check(prepare_cfg(tmp_path / "c.toml"))]
    assert any("c.toml:4 [model] type = 'a.a.a." in text and "it has 5001 components" in text for text in problems)


def test_a_thousand_problems_are_enough(tmp_path):
    (tmp_path / "c.toml").write_text(HEAD + SHAPES["tables"](1200))
    problems = check(prepare_cfg(tmp_path / "c.toml"))
    assert len(problems) == 1001
    assert [p for p in problems if p.error and "more than 1000 problems" in p.message]


@pytest.mark.parametrize("text", ["x = " + "[" * 10_000 + "]" * 10_000, "x = " + "{a = " * 1000 + "1" + "}" * 1000,
                                  ".".join("a" * 200_000) + " = 1", "x = {" + ".".join("a" * 200_000) + " = 1}",
                                  "x = " + "[" * 200 + "]" * 200, "[" + ".".join("a" * 200_000) + "]"])  # fmt: skip
def test_what_is_nested_too_deep_is_refused_with_its_line(tmp_path, text):
    (tmp_path / "c.toml").write_text(f"{HEAD}{text}\n")
    with pytest.raises(ConfigError, match=r"c.toml:3 tables are nested more than 100 levels deep"):
        prepare_cfg(tmp_path / "c.toml")


@pytest.mark.parametrize("text", ["a = 1.5", "a = [1.5, 2.5]", "[a.b.c]", "a.b.c = 1", 'a = "' + "a." * 500 + '"'])
def test_usual_keys_are_no_long_ones(text):
    assert not LONG_KEY.search(text) and tomllib.loads(text)
