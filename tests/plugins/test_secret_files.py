"""Files that Backup leaves out because they contain secrets, and files that it copies despite their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from alchemy.runner import run
from tests.logs import warned
from tests.toy import config

NAMED = (
    "prod.env .ENV .env.local .envrc id_rsa id_ecdsa id_ed25519 ID_DSA .ssh/config .ssh/known_hosts .gnupg/x "
    ".aws/credentials .docker/config.json .kube/config .git-credentials .npmrc .pgpass .htpasswd .netrc .pypirc "
    "kaggle.json hf_token HF_TOKEN.txt api_key.txt openai-api-key.txt service-account.json service_account_prod.json "
    "client_secret_12.json credentials.json Credentials.yml token.json token.txt db_password Secrets.toml "
    "secrets.yaml secrets/prod.txt key.pem server.KEY cert.p12 a.pfx b.jks c.kdbx d.keystore e.ppk vpn.ovpn "
    "terraform.tfstate terraform.tfstate.backup wp-config.php .bash_history"
)

PLAIN = (
    "tokens.py tokenizer.json tokenizer_config.json special_tokens_map.json secrets_test.py secrets.py credentials.py "
    "keyboard.py token_classification.py tokens.txt pad_token.json environment.yml env.py keys.py password_strength.md "
    "monkey.toml forgot_password.html .gitignore Makefile secrets/__init__.py"
)

# assembled here, so that secret scanners do not report this file
HOLDING = {
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIEow\n",
    "an AWS key": "AKIA" + "Q3EGRIOSFODNN7AB",
    "a GitHub token": "ghp_" + "a1B2" * 9,
    "a Hugging Face token": "hf_" + "aBcDe" * 7,
    "an API key": "sk-" + "proj-a1B2c3" * 4,
    "a Slack token": "xoxb-" + "123456789012-abcdef",
    "a Google key": "AIza" + "Sy5" * 11 + "ab",
    "a webhook": "https://hooks.slack.com/" + "services/T000/B000/" + "x" * 24,
    "a service account": '{"type": ' + '"service_account"}',
    "a JSON web token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJlMTIz",
    "a password in a URL": "postgres://" + "anna:hunter22@db.example.org/x",
    "a password or key": "DB_PASS" + 'WORD = "k7Xw93pLq2Zt81Vn"',
}

HARMLESS = (
    'token = "[CLS]"\npassword = os.environ["DB_PASSWORD"]\napi_key = "${API_KEY}"\nsecret = "a placeholder"\n'
    '# https://user:password@host, sk-learn, hf_hub_download, "AKIA", BEGIN CERTIFICATE\nhash = "9f86d081884c7d65"\n'
)


def back_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], list[str]]:
    """Return the files that a run copies from `src`, and its warnings."""
    monkeypatch.chdir(folder)
    cfg = config("runs", sched__epochs=1)
    cfg["plugins"].append({"type": "alchemy.plugins.Backup", "paths": ["src"]})
    with warned() as lines:
        (result,) = run([cfg], device=[-1], raise_errors=True)
    assert result.record_dir is not None
    backup = result.record_dir / "backup" / "src"
    copied = {path.relative_to(backup).as_posix() for path in backup.rglob("*") if path.is_file()}
    return copied, [line for line in lines if "not backed up" in line]


def write(folder: Path, name: str, text: str) -> None:
    path = folder / "src" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_names_tell_secrets_from_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMED.split(), *PLAIN.split()):
        write(tmp_path, name, "x = 1\n")
    copied, (line,) = back_up(tmp_path, monkeypatch)
    assert copied == set(PLAIN.split())
    assert "src/prod.env (its name)" in line


def test_contents_tell_secrets_from_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for what, text in HOLDING.items():
        write(tmp_path, f"{what.replace(' ', '_')}.py", f"x = 1\n{text}\n")
    write(tmp_path, "model.py", HARMLESS)
    write(tmp_path, "config.toml", 'token = 3\npad_token = "<pad>"\ntoken = ""\nhub = { api_key = "${KEY}" }\n')
    write(tmp_path, "hub.toml", '[variant.x]\nhub = { token = "plain words" }\nhub.api_key = "abcd"\n')
    write(tmp_path, "weights.bin", "\0" + HOLDING["an AWS key"])
    copied, (line,) = back_up(tmp_path, monkeypatch)
    assert copied == {"model.py", "weights.bin", "config.toml"} and "hub.toml (a secret setting)" in line
    assert all(f"{what.replace(' ', '_')}.py ({what})" in line for what in HOLDING)
    assert not [text for text in HOLDING.values() if text in line]


def test_a_backup_is_replaced_and_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.context import Run
    from alchemy.plugins.backup import Backup

    write(tmp_path, "model.py", "mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "backup").symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    with Run({"tag": "x"}) as context:
        context.record_dir = tmp_path / "record"
        Backup(paths=["src"])
    assert (tmp_path / "record" / "backup" / "src" / "model.py").read_text() == "mine"
    assert not list((tmp_path / "elsewhere").iterdir())
