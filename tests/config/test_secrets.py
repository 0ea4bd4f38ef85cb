"""Which settings are secrets, how they are masked and restored, and that no output shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.config import secrets
from alchemy.config.explain import diff, differences
from alchemy.config.load import prepare_cfg
from alchemy.config.toml_writer import dumps
from alchemy.context import Run
from alchemy.errors import ConfigError
from alchemy.runner import run
from tests.toy import config

VALUE = "value-of-a-secret-8131"


@pytest.fixture(autouse=True)
def knows_nothing() -> Iterator[None]:
    """A process that has not seen a secret yet."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    secrets._known.clear()
    secrets._pattern.cache_clear()


def masked(cfg: dict[str, Any]) -> dict[str, Any]:
    return secrets.mask_secrets(prepare_cfg(cfg)).plain()


NAMES = "token TOKEN auth_token access_token hf_token password db_password secret client_secret api_key Api_Key api-key"


@pytest.mark.parametrize("name", NAMES.split())
def test_secret_names(name: str) -> None:
    assert secrets.is_masked(masked({"hub": {name: VALUE}})["hub"][name])
    assert all(map(secrets.is_masked, masked({"hub": {name: [VALUE, VALUE]}})["hub"][name]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("pad_token", "<pad>"), ("sep_token", "x"), ("use_auth_token", False), ("token", 3), ("token", True)),
        *(("tokens", "x"), ("tokenizer", "x"), ("secrets", "x"), ("password", ""), ("keyboard", "x"), ("key", "x")),
    ],
)
def test_other_names_and_values_stay(name: str, value: object) -> None:
    assert masked({"hub": {name: value}})["hub"] == {name: value}


@pytest.mark.parametrize(
    "recipe",
    [{"name": "LOGIN", "secret": True}, {"name": "WANDB_API_KEY"}, {"name": "GITHUB_TOKEN"}, {"name": "HF_TOKEN"}],
)
def test_secrets_of_the_environment(recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(recipe["name"], "12345")
    doc = prepare_cfg({"hub": {"auth": {"dyn": "env", **recipe}}})
    assert doc["hub"]["auth"] == "12345"  # text, even if it looks like a number
    form = secrets.mask_secrets(doc)["hub"]["auth"]
    assert secrets.matches(form, "12345") and form.endswith(f":{recipe['name']}")


def test_a_variable_that_is_no_secret_stays_typed_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERS", "12")
    assert masked({"hub": {"n": {"dyn": "env", "name": "LAYERS", "default": 1}}})["hub"]["n"] == 12
    with pytest.raises(ConfigError, match="secret must be true or false"):
        prepare_cfg({"a": {"dyn": "env", "name": "LAYERS", "secret": "yes"}})


def test_a_masked_value_is_put_back_only_where_the_digest_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", VALUE)
    doc = prepare_cfg({"hub": {"x": {"dyn": "env", "name": "HF_TOKEN"}, "token": "given-8131"}})
    (tmp_path / "cfg.toml").write_text(dumps(secrets.mask_secrets(doc)))
    _forget()
    monkeypatch.setenv("HF_TOKEN", "of somebody else")
    again = prepare_cfg(tmp_path / "cfg.toml")
    assert secrets.is_masked(again["hub"]["x"]) and "of somebody else" not in again.secrets
    with pytest.raises(ConfigError, match=r"hub\.x is a secret.*export HF_TOKEN=") as error:
        Run(again)
    assert [problem.where for problem in error.value.problems] == [f"{tmp_path / 'cfg.toml'}:{n}" for n in (4, 5)]
    monkeypatch.setenv("HF_TOKEN", VALUE)
    again = prepare_cfg(tmp_path / "cfg.toml", overrides=["hub.token=given-8131"])
    assert again.plain()["hub"] == {"x": VALUE, "token": "given-8131"} and not secrets.changed_secrets(again)
    assert dumps(secrets.mask_secrets(again)) == (tmp_path / "cfg.toml").read_text()
    again = prepare_cfg(tmp_path / "cfg.toml", overrides=["hub.token=wrong-8131"])
    assert secrets.changed_secrets(again) == ["hub.token"]


def test_what_was_masked_stays_a_secret_under_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", VALUE)
    doc = prepare_cfg({"hub": {"x": {"dyn": "env", "name": "LOGIN", "secret": True}}})
    (tmp_path / "cfg.toml").write_text(dumps(secrets.mask_secrets(doc)))
    _forget()
    monkeypatch.delenv("LOGIN")
    again = prepare_cfg(tmp_path / "cfg.toml", overrides=["hub.x=another-8131"])
    assert again["hub"]["x"] == "another-8131" and secrets.is_masked(secrets.mask_secrets(again)["hub"]["x"])
    assert secrets.hide("another-8131") == "***"


def test_only_some_of_very_many_secrets_have_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "ROUNDS", 10)
    many = {f"n{i}": {"token": f"value-{i}"} for i in range(500)}
    forms = secrets.mask_secrets(prepare_cfg(many))
    assert forms["n499"]["token"] == "***" and secrets.matches(forms["n9"]["token"], "value-9")
    _forget()
    (tmp_path / "cfg.toml").write_text(dumps(forms))
    assert len(secrets.missing_secrets(prepare_cfg(tmp_path / "cfg.toml"))) == 500


def test_hashes_and_differences_do_not_depend_on_a_secret() -> None:
    one, other = (prepare_cfg({"seed": 1, "hub": {"token": value}}) for value in (VALUE, "another-8131"))
    assert secrets.without_secrets(one) == secrets.without_secrets(other)
    assert differences(one, other) == [("hub.token", "***", "***")]
    assert differences(one, secrets.mask_secrets(one)) == []


def test_texts_and_command_lines() -> None:
    odd = 'a"b\\8131'
    prepare_cfg({"hub": {"token": odd, "password": "cat"}})
    assert secrets.hide(f"{odd} {[odd]} cat") == "*** ['***'] cat"  # the last one is too short to be replaced
    given = ["--set", "hub.token=x", "--set=a.API_KEY=x", "--api-key", "x", "--set", "pad_token=x", f"a={odd}"]
    shown = ["--set", "hub.token=***", "--set=a.API_KEY=***", "--api-key", "***", "--set", "pad_token=x", "a=***"]
    assert secrets.hide_words(given) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://me:x8131@host/a@b", "https://me:***@host/a@b"),
        ("--index-url=https://:a@b8131@host", "--index-url=https://:***@host"),
        ("curl ftp://me:x@one http://you:y@two", "curl ftp://me:***@one http://you:***@two"),
        ("http://host:80/a:b@c", "http://host:80/a:b@c"),
        ("git@host:a/b", "git@host:a/b"),
    ],
)
def test_passwords_in_urls(given: str, shown: str) -> None:
    assert secrets.hide_words([given]) == [shown]


def test_the_command_line_shows_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f'seed = 1\n[hub]  # {VALUE}\ntoken = "{VALUE}"\n')
    for words in (["show"], ["show", "--json"], ["explain", "hub.token"], ["diff"]):
        more = [str(path)] if words == ["diff"] else []
        assert main(["config", words[0], str(path), *more, *words[1:], "--set", f"hub.api_key={VALUE}9"]) == 0
    assert main(["config", "show", str(path), "--set", f"hubb.token={VALUE}"]) == 2
    shown = "".join(capsys.readouterr())
    assert "--set hubb.token=***" in shown and VALUE not in shown


def test_a_difference_shows_none_that_only_one_config_has() -> None:
    one = prepare_cfg({"seed": 1})
    other = prepare_cfg({"seed": 1, "hub": {"token": VALUE, "all": ["${hub.token}"], "url": "x:${hub.token}"}})
    for shown in (diff(one, other), diff(other, one)):
        assert "hub.all" in shown and "hub.token" in shown and VALUE not in shown


def test_a_tag_that_refers_to_one_is_masked_in_the_record(tmp_path: Path) -> None:
    cfg = config(str(tmp_path), sched__epochs=1) | {"tag": "by ${hub.token}", "hub": {"token": VALUE}}
    (result,) = run([cfg], device=[-1], raise_errors=True)
    assert result.record_dir is not None
    texts = [path.read_bytes() for path in result.record_dir.rglob("*") if path.is_file()]
    assert len(texts) > 3 and not any(VALUE.encode() in text for text in texts)
