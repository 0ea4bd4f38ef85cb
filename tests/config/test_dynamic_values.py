"""Values made at load time: drawn from the seed, independent of each other, recorded as results."""

import math

import pytest

from alchemy.config import dumps
from alchemy.config.load import explain, prepare_cfg
from alchemy.errors import ConfigError

LR = {"dyn": "loguniform", "low": 1e-5, "high": 1e-3}


def test_the_same_seed_gives_the_same_values_and_another_another():
    one, again, other = (prepare_cfg({"seed": seed, "lr": LR, "x": LR}) for seed in (1, 1, 2))
    assert one == again
    assert one["lr"] != other["lr"]
    assert one["lr"] != one["x"]
    assert 1e-5 <= one["lr"] <= 1e-3


def test_these_draws_never_change():
    doc = prepare_cfg(
        {"seed": 1, "u": {"dyn": "uniform", "low": 0, "high": 1}, "n": {"dyn": "randint", "low": 1, "high": 9}}
    )
    assert (round(doc["u"], 6), doc["n"]) == (0.703503, 6)


def test_adding_one_changes_no_other():
    plugins = [{"type": "a.Log"}, {"type": "a.Mine", "x": LR}]
    one = prepare_cfg({"seed": 1, "plugins": plugins})
    other = prepare_cfg({"seed": 1, "a": LR, "plugins": plugins[1:]})
    assert one["plugins"][1]["x"] == other["plugins"][0]["x"]


def test_the_value_is_recorded_and_the_recipe_remembered(tmp_path):
    (tmp_path / "t.toml").write_text('seed = 3\n[optim]\nlr = { dyn = "uniform", low = 0.0, high = 1.0 }  # drawn\n')
    doc = prepare_cfg(tmp_path / "t.toml")
    assert doc.dynamic == {"optim.lr": {"dyn": "uniform", "low": 0.0, "high": 1.0}}
    assert doc["optim"].origins["lr"].kind == "dynamic"
    assert "computed by uniform(low=0.0, high=1.0)" in explain(doc, "optim.lr")
    (tmp_path / "cfg.toml").write_text(dumps(doc))
    assert prepare_cfg(tmp_path / "cfg.toml") == doc


def test_draws_follow_their_laws():
    def draws(**recipe):
        return [prepare_cfg({"seed": seed, "x": recipe})["x"] for seed in range(400)]

    normal = draws(dyn="normal", mean=5.0, std=2.0)
    assert abs(sum(normal) / 400 - 5) < 0.4
    assert set(draws(dyn="randint", low=1, high=3)) == {1, 2, 3}
    picks = draws(dyn="choice", values=["a", "b", "c"], weights=[1, 3, 0])
    assert set(picks) == {"a", "b"}
    assert picks.count("b") > 250
    assert abs(sum(map(math.log10, draws(**LR))) / 400 + 4) < 0.1


def test_a_choice_of_tables_is_a_table():
    doc = prepare_cfg({"seed": 1, "l": [{"dyn": "choice", "values": [{"type": "a.B"}]}]})
    assert doc["l"][0]["type"] == "a.B"


def test_the_environment_is_typed_like_its_default(monkeypatch):
    monkeypatch.setenv("LR", "1")
    monkeypatch.setenv("NAME", "a b")
    doc = prepare_cfg(
        {
            "lr": {"dyn": "env", "name": "LR", "default": 0.5},
            "name": {"dyn": "env", "name": "NAME"},
            "none": {"dyn": "env", "name": "NOT_THERE", "default": 3},
            "seed": {"dyn": "env", "name": "LR"},
            "day": {"dyn": "date", "format": "%Y"},
        }
    )
    assert (doc["lr"], doc["name"], doc["none"], doc["seed"]) == (1.0, "a b", 3, 1)
    assert doc["day"].startswith("20")


def test_the_seed_comes_from_the_config_the_plugin_or_chance():
    seeding = {"type": "alchemy.plugins.Seeding", "seed": 3}
    assert prepare_cfg({"plugins": [seeding], "x": LR})["x"] == prepare_cfg({"seed": 3, "x": LR})["x"]
    doc = prepare_cfg({"plugins": [dict(seeding)]}, seed=8)
    assert doc["seed"] == doc["plugins"][0]["seed"] == 8
    drawn = prepare_cfg({"x": 1})
    assert drawn.origins["seed"].kind == "drawn"
    assert drawn["seed"] != prepare_cfg({"x": 1})["seed"]


def test_ranges_of_a_sweep_are_left_to_it():
    assert prepare_cfg({"seed": 1, "sweep": {"lr": LR}})["sweep"]["lr"] == LR


WRONG = [
    ({"dyn": "unifrom", "low": 0, "high": 1}, r"\[x\] unknown dynamic value 'unifrom'; did you mean 'uniform'"),
    ({"dyn": "uniform", "low": 0}, "uniform needs 'high'"),
    ({"dyn": "uniform", "low": 0, "hihg": 1}, "uniform has no option 'hihg'; did you mean 'high'"),
    ({"dyn": "uniform", "low": 2, "high": 1}, "low = 2 is greater than high = 1"),
    ({"dyn": "uniform", "low": "a", "high": 1}, "low must be a number, not 'a'"),
    ({"dyn": "loguniform", "low": 0, "high": 1}, "low must be above 0"),
    ({"dyn": "randint", "low": 0.5, "high": 1}, "integers"),
    ({"dyn": "choice", "values": []}, "values must be a non-empty list"),
    ({"dyn": "choice", "values": [1], "weights": [0]}, "or all zero"),
    ({"dyn": "env", "name": "NOT_THERE"}, "NOT_THERE is not set; export NOT_THERE"),
    ({"dyn": "env", "name": ""}, "name of an environment variable"),
    ({"dyn": "time", "format": 3}, "format must be a string"),
    ({"dyn": 3}, "unknown dynamic value 3"),
]


@pytest.mark.parametrize(("recipe", "match"), WRONG)
def test_a_wrong_recipe_is_explained(recipe, match):
    with pytest.raises(ConfigError, match=match):
        prepare_cfg({"seed": 1, "x": recipe})


def test_a_seed_cannot_be_drawn_from_itself():
    with pytest.raises(ConfigError, match=r"seed must be an integer"):
        prepare_cfg({"seed": {"dyn": "randint", "low": 0, "high": 9}})
