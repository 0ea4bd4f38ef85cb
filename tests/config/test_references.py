"""References: typed, resolved last, never circular, never to secrets or untrusted values."""

import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.cli import main
from alchemy.config import dumps, secrets
from alchemy.config.load import diff, expand, explain, prepare_cfg
from alchemy.config.toml_writer import is_same
from alchemy.errors import ConfigError


def resolved(text: str, **data: object) -> object:
    return prepare_cfg({"x": text, **data})["x"]


TARGET = {
    "a": {"n": 3, "f": 0.5, "yes": True, "s": "text", "list": [1, 2], "t": {"k": 1}, "day": datetime.date(2026, 1, 2)},
    "plugins": [{"type": "src.A", "n": 1}, {"type": "src.B", "n": 2}],
    "nothing": None,
}
VALUES = [
    ("${a.n}", 3),
    ("${a.f}", 0.5),
    ("${a.yes}", True),
    ("${a.s}", "text"),
    ("${a.list}", [1, 2]),
    ("${a.t}", {"k": 1}),
    ("${nothing}", None),
    ("${a.list.1}", 2),
    ("${plugins.B.n}", 2),
    ("${plugins.0.n}", 1),
    ('${plugins."src.B".n}', 2),
    ("n=${a.n} f=${a.f} ${a.yes}, ${a.s} on ${a.day}", "n=3 f=0.5 true, text on 2026-01-02"),
    ("${a.s}${a.n}", "text3"),
    ("$${a.n}", "${a.n}"),
    ("$$${a.n}", "$${a.n}"),
    ("$${a} is ${a.n}", "${a} is 3"),
    ("$5 {a}", "$5 {a}"),
]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[text for text, _ in VALUES])
def test_a_reference_takes_the_value_with_its_type(text, value):
    assert is_same(prepare_cfg({"x": text, **TARGET}).plain()["x"], value)


def test_references_are_resolved_after_every_layer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text(
        'seed = 1\n[model]\ndim = 4\nhidden = "${model.dim}"\nsizes = ["${model.dim}"]\n'
    )
    (tmp_path / "a.toml").write_text('base = "base.toml"\n[variant.wide]\nmodel.dim = 8\n')
    assert prepare_cfg("a.toml#wide")["model"] == {"dim": 8, "hidden": 8, "sizes": [8]}
    assert prepare_cfg("a.toml", overrides=["model.dim=2"])["model"]["hidden"] == 2
    doc = prepare_cfg("a.toml", overrides=["model.hidden=5", "model.dim=${model.hidden}"])
    assert doc["model"]["dim"] == 5 and isinstance(doc["model"]["dim"], int)
    assert [doc["model"]["hidden"] for doc in expand(["a.toml"], all_variants=True)] == [8]
    assert explain(prepare_cfg("a.toml"), "model.hidden").splitlines() == [
        "model.hidden = 4",
        '  from base.toml:4: "${model.dim}", which refers to model.dim (base.toml:3)',
    ]


def test_what_is_referred_to_may_refer_on():
    data = {"a": "${b.c}", "b": "${d}", "d": {"c": "${e}", "f": ["${e}"]}, "e": 5}
    assert prepare_cfg(data).plain() | {"seed": 0} == {
        "a": 5,
        "b": {"c": 5, "f": [5]},
        "d": {"c": 5, "f": [5]},
        "e": 5,
        "seed": 0,
    }
    doc = prepare_cfg(data)
    doc["b"]["f"].append(6)
    assert doc["d"]["f"] == [5]  # a copy


WRONG = [
    ("${modle.dim}", r"a.toml:2 x = \"\$\{modle.dim\}\": the config has no 'modle'; did you mean 'model'\?"),
    ("${model.dmi}", r"\[model\] has no 'dmi'; did you mean 'dim'"),
    ("${HOME}/data", r"the config has no 'HOME'; it has seed, x, .*, or write \$\$\{ for the text itself"),
    ("${model.dim.x}", "model.dim is a value and has no keys"),
    ("${list.7}", "the list list has no '7'"),
    ("${}", r"invalid reference; write \$\{table.key\}, or write \$\$\{ for the text itself"),
    ("${model.dim:-3}", "invalid reference"),
    ("${model.dim", "invalid reference"),
    ("${x}", r"circular reference: x -> x"),
    ("${y}", r"circular reference: x -> y -> z.0 -> x"),
    ("a ${model}", "model is a table, which cannot be part of a string; use a string that contains only the reference"),
    ("a ${list}", "list is a list, which cannot"),
]


@pytest.mark.parametrize(("text", "match"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_reference_is_told_with_its_place(text, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(
        f'seed = 1\nx = "{text}"\ny = "${{z}}"\nz = ["${{x}}"]\nlist = [1]\n[model]\ndim = 3\n'
    )
    with pytest.raises(ConfigError, match=match) as caught:
        prepare_cfg("a.toml")
    assert len(caught.value.problems) == 1


def test_a_table_that_holds_a_reference_to_itself_is_a_circle():
    with pytest.raises(ConfigError, match=r"circular reference: model.inner.all -> model.inner.all"):
        prepare_cfg({"model": {"inner": {"all": "${model}"}}})


@pytest.mark.parametrize("kind", ["deep", "wide", "chain"])
def test_references_cannot_fill_the_memory(kind):
    rows: dict[str, dict[str, Any]] = {
        "deep": {f"a{i}": {"x": f"${{a{i + 1}}}"} for i in range(120)} | {"a120": 1},
        "wide": {f"a{i}": [f"${{a{i + 1}}}"] * 10 for i in range(20)} | {"a20": "text"},
        "chain": {f"a{i}": f"${{a{i + 1}}}" for i in range(500)} | {"a500": 1},
    }
    with pytest.raises(ConfigError, match=r"more than (100 levels deep|500000 values)") as caught:
        prepare_cfg(rows[kind])
    assert len(caught.value.problems) < 5


# -- dynamic values and the seed
def test_a_reference_to_a_dynamic_value_gets_what_was_made(monkeypatch):
    monkeypatch.setenv("LAYERS", "12")
    data = {
        "seed": 3,
        "lr": {"dyn": "uniform", "low": "${low}", "high": 1.0},
        "low": 0.5,
        "same": "${lr}",
        "tag": "lr ${lr}",
        "n": {"dyn": "env", "name": "LAYERS", "default": 1},
        "m": "${n}",
        "all": "${box}",
        "box": {"lr": {"dyn": "uniform", "low": 2, "high": 3}},
    }
    doc = prepare_cfg(data)
    assert 0.5 <= doc["lr"] == doc["same"] and doc["tag"] == f"lr {doc['lr']!r}"
    assert doc["m"] == 12 and doc["all"] == doc["box"] and 2 <= doc["all"]["lr"] <= 3
    assert prepare_cfg({**data, "same": 0})["lr"] == doc["lr"]
    with pytest.raises(ConfigError, match=r"\[lr\] low = \"\$\{n\}\": a dynamic value cannot depend on another one"):
        prepare_cfg({**data, "low": 1, "lr": {"dyn": "uniform", "low": "${n}", "high": 20}})


def test_a_value_of_the_environment_is_no_reference(monkeypatch):
    monkeypatch.setenv("LAYERS", "${a}")
    doc = prepare_cfg({"a": 1, "n": {"dyn": "env", "name": "LAYERS"}, "m": "${n}"})
    assert (doc["n"], doc["m"]) == ("${a}", "${a}")


def test_the_seed_is_the_one_of_the_run():
    data = {"seed": 1, "x": "run ${seed}"}
    assert prepare_cfg(data, seed=5)["x"] == "run 5"
    doc = prepare_cfg({"x": "${seed}"})
    assert doc["x"] == doc["seed"]
    doc = prepare_cfg({"seed": {"dyn": "env", "name": "NO_SUCH", "default": 7}, "x": "${seed}", "y": "${x}"})
    assert (doc["x"], doc["y"]) == (7, 7)
    with pytest.raises(ConfigError, match=r"x = .*: the value is not known when .*; set a seed in the config"):
        prepare_cfg({"x": "${seed}", "plugins": [{"type": "a.Seeding", "seed": 3}]})


# -- splits
def test_references_reach_into_splits_and_their_data():
    train = {"batch_size": "${size}", "pipes": [{"type": "src.A", "path": "${root}/train"}]}
    dev = {"like": "${which}", "pipes": {"A": {"path": "${root}/dev"}}}
    data: dict[str, Any] = {
        "size": 4,
        "root": "data",
        "which": "train",
        "task": {"datasets": {"train": train, "dev": dev}},
    }
    doc = prepare_cfg({**data, "n": "${task.datasets.dev.batch_size}"})
    assert doc["task"]["datasets"]["dev"].plain() == {"batch_size": 4, "pipes": [{"type": "src.A", "path": "data/dev"}]}
    assert doc["n"] == 4
    data = {"root": "data", "size": 8, "task": {"type": "alchemy.tasks.Classification", "data": {}}}
    data["task"]["data"] = {"train": "${root}/train.csv", "batch_size": "${size}", "dev": "${root}/dev.csv"}
    datasets = prepare_cfg(data)["task"]["datasets"]
    assert datasets["train"]["max_sentences"] == 8 and datasets["dev"]["pipes"][0]["path"] == "data/dev.csv"


# -- resolved values stay unchanged
def test_a_resolved_config_is_values(tmp_path):
    (tmp_path / "a.toml").write_text('seed = 1\nx = "${y}"\ny = "$${z}"\nz = 3\n')
    doc = prepare_cfg(tmp_path / "a.toml")
    assert doc["x"] == doc["y"] == "${z}"
    assert prepare_cfg(doc) == doc and explain(prepare_cfg(doc), "x") == explain(doc, "x")
    again = prepare_cfg(doc, overrides=["z=${seed}"])
    assert (again["x"], again["z"]) == ("${z}", 1)
    record = tmp_path / "record"
    record.mkdir()
    (record / "cfg.toml").write_text(dumps(doc))
    assert diff(prepare_cfg(record / "cfg.toml", record=True), doc).startswith("identical")


def test_the_printed_config_can_be_read_again(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text('seed = 1\nx = "${y}"\ny = "$${z}"\n')
    for words, name in ((["show"], "b.toml"), (["show", "--json"], "b.json")):
        assert main(["config", words[0], "a.toml", *words[1:]]) == 0
        Path(name).write_text(capsys.readouterr().out)
        assert diff(prepare_cfg("a.toml"), prepare_cfg(name)).startswith("identical")


SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
)


@settings(deadline=None, max_examples=100)
@given(TREES)
def test_a_reference_never_changes_a_value(value):
    escaped = prepare_cfg({"y": value if not isinstance(value, str) else value.replace("${", "$${"), "x": "${y}"})
    assert is_same(escaped.plain()["x"], escaped.plain()["y"])
    assert not isinstance(value, str | int | float) or is_same(escaped.plain()["x"], value)


@settings(deadline=None, max_examples=100)
@given(st.text("${}ab. ", max_size=12))
def test_an_escaped_text_is_itself(text):
    assert resolved(text.replace("${", "$${")) == text


# -- secrets
SECRET = "hf_81316e2c"


def test_a_secret_with_a_reference_in_it_is_not_shown_in_part():
    secret = "0123456789" * 7  # longer than the part of a value that messages show
    doc = prepare_cfg({"x": 1, "hub": {"password": f"{secret}${{x}}"}})
    assert "0123" not in explain(doc, "hub.password")
    with pytest.raises(ConfigError, match=r"\[hub\] password = \"\*\*\*\": ") as caught:
        prepare_cfg({"hub": {"password": f"{secret}${{nowhere}}"}})
    assert "0123" not in str(caught.value)


@pytest.mark.parametrize(
    "token", [SECRET, {"dyn": "env", "name": "HUB_LOGIN", "secret": True}], ids=["in the file", "in the environment"]
)
@pytest.mark.parametrize("text", ["${hub.token}", "Bearer ${hub.token}", "${hub}", ["${hub.token}"]], ids=str)
def test_what_refers_to_a_secret_is_masked(token, text, monkeypatch, tmp_path):
    monkeypatch.setenv("HUB_LOGIN", SECRET)
    monkeypatch.setattr(secrets, "_known", {})
    doc = prepare_cfg({"seed": 1, "hub": {"token": token}, "header": {"auth": text}})
    assert SECRET in str(doc["header"]["auth"])
    for shown in (dumps(secrets.mask_secrets(doc)), explain(doc, "header.auth"), str(secrets.without_secrets(doc))):
        assert SECRET not in secrets.hide(shown) and SECRET not in shown
    assert SECRET not in str(prepare_cfg(doc).references)
    # a resumed run, which is given the secrets again, writes them masked too
    (tmp_path / "cfg.toml").write_text(dumps(secrets.mask_secrets(doc)))
    monkeypatch.delenv("HUB_LOGIN")
    secrets._known.clear()
    form = prepare_cfg(tmp_path / "cfg.toml", record=True)
    key = {"${hub}": "header.auth.token", "Bearer ${hub.token}": "header.auth"}.get(str(text), "header.auth")
    value = f"Bearer {SECRET}" if "Bearer" in str(text) else SECRET
    assert secrets.missing_secrets(form)
    if isinstance(text, str):
        again = prepare_cfg(tmp_path / "cfg.toml", record=True, overrides=[f"hub.token={SECRET}", f"{key}={value}"])
        assert SECRET not in dumps(secrets.mask_secrets(again)) and not secrets.changed_secrets(again)


# -- untrusted records
def test_the_config_of_a_record_refers_to_nothing(tmp_path):
    (tmp_path / "cfg.toml").write_text('seed = 1\nx = "${seed}"\nlog = "$${seed}"\n')
    doc = prepare_cfg(tmp_path / "cfg.toml", record=True)
    assert (doc["x"], doc["log"]) == ("${seed}", "$${seed}")


@pytest.mark.parametrize("text", ["${note}", "os.${word}", {"dyn": "choice", "values": "${words}"}], ids=str)
def test_a_reference_vouches_for_nothing_that_is_not_trusted(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("record").mkdir()
    Path("record/cfg.toml").write_text('note = "os.system"\nword = "system"\nwords = ["os.system"]\n')
    Path("record/record.json").write_text('{"format": 1, "id": "x"}')
    model = dumps({"model": {"type": text}})
    Path("mine.toml").write_text(f'base = "record/cfg.toml"\nseed = 1\n{model}')
    with pytest.raises(ConfigError, match="is not allowed in an untrusted config"):
        prepare_cfg("mine.toml")


def test_a_key_below_a_value_is_an_error_with_one_hint() -> None:
    with pytest.raises(ConfigError, match=r"a\.n is a value and has no keys; write \$\$\{ for the text itself"):
        resolved("${a.n.k}", **TARGET)
