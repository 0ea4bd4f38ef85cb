"""Secrets of a config: never shown in a record or on the console, and required again for a resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from alchemy.config.load import prepare_cfg
from alchemy.config.toml_writer import dumps
from tests.resume.conftest import ROOT, Lab, record_of, text_of
from tests.resume.parts import config

CPU = ("--device", "-1")
TERM = signal.SIGTERM
TOKEN, PASSWORD, AUTH, KEY = "tok-4417-given", 'pass"wo\\rd-4417', "auth-4417-env", "key-4417-variant"
UPLOADER = "tests.resume.uploader.Uploader"


def alchemy(programs: Path, folder: Path, *words: str, **env: str) -> tuple[int, str]:
    """Return the exit code and the output of a command."""
    command = [str(programs / "alchemy"), *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def with_uploader(runs: Path, **keys: Any) -> dict[str, Any]:
    cfg = config(str(runs))
    cfg["plugins"] += [
        {"type": "alchemy.plugins.DisplayRunningInfo"},
        {"type": "alchemy.web.plugins.MailOnFinish"},
        {"type": "alchemy.plugins.Backup", "paths": ["train.toml"]},
        {"type": UPLOADER, **keys},
    ]
    return cfg


@pytest.mark.parametrize("fail", [False, True])
def test_a_record_and_the_console_never_show_a_secret(tmp_path: Path, programs: Path, fail: bool) -> None:
    cfg = with_uploader(tmp_path / "runs", db_password=PASSWORD, fail=fail)
    cfg["plugins"][-1]["auth"] = {"dyn": "env", "name": "UPLOAD_LOGIN", "secret": True}
    cfg["variant"] = {"v": {"plugins": {"Uploader": {"api_key": KEY}}}}
    text = dumps(cfg).replace("[model]", f"# the key is {KEY}\n[model]")
    (tmp_path / "train.toml").write_text(text)
    words = ("--set", f"plugins.Uploader.token={TOKEN}", *CPU, *(["--raise"] if fail else []))
    code, printed = alchemy(programs, tmp_path, "run", "train.toml#v", *words, UPLOAD_LOGIN=AUTH)
    assert code == int(fail), printed
    record = record_of(tmp_path)
    files = {path.name: path.read_bytes() for path in record.rglob("*") if path.is_file()}
    assert {"cfg.toml", "record.json", "env.json", "mail.json", "README.md", "run.log"} <= set(files)
    seen = {**files, "console": printed.encode()}
    for secret in (TOKEN, PASSWORD, AUTH, KEY, json.dumps(PASSWORD)[1:-1]):
        assert [name for name, content in seen.items() if secret.encode() in content] == []
    assert "--set" in json.loads(files["record.json"])["cmd"] and "plugins.Uploader.token=***" in printed + str(files)
    uploader = tomllib.loads(files["cfg.toml"].decode())["plugins"][-1]
    assert all(uploader[key].startswith("***pbkdf2:") for key in ("token", "db_password", "auth", "api_key"))
    assert ("the server refuses" in files["mail.json"].decode()) == fail


def stopped(lab: Lab, folder: Path, **keys: Any) -> tuple[Path, bytes]:
    """The record of a run that was stopped in its second epoch, and its config."""
    cfg = with_uploader(folder / "runs", **keys)
    cfg["plugins"] = [row for row in cfg["plugins"] if not row["type"].endswith("Backup")]
    (folder / "train.toml").write_text(dumps(prepare_cfg(cfg)))
    assert lab.start(folder, [["end_step", 8, TERM]], plugins=cfg["plugins"]) == 128 + TERM, text_of(folder)
    record = record_of(folder)
    return record, (record / "cfg.toml").read_bytes()


def test_a_resume_takes_the_value_that_the_run_had(lab: Lab, tmp_path: Path) -> None:
    record, text = stopped(lab, tmp_path, token=TOKEN)
    resume = ("resume", str(record), *CPU)
    assert lab.command(tmp_path, *resume) == 2
    assert "plugins.4.token is a secret" in text_of(tmp_path) and "--set plugins.4.token=.." in text_of(tmp_path)
    assert lab.command(tmp_path, *resume, "--set", "plugins.Uploader.token=wrong-4417") == 2
    assert "plugins.Uploader.token: the secret has changed" in text_of(tmp_path)
    assert lab.command(tmp_path, *resume, "--set", f"plugins.Uploader.token={TOKEN}") == 0, text_of(tmp_path)
    assert (record / "cfg.toml").read_bytes() == text and not (record / "cfg.0.toml").exists()
    assert TOKEN not in text_of(tmp_path)


def test_a_changed_secret_can_be_allowed(lab: Lab, tmp_path: Path) -> None:
    record, _ = stopped(lab, tmp_path, token=TOKEN)
    words = ("--set", "plugins.Uploader.token=renewed-4417", "--allow", "plugins.Uploader.token")
    assert lab.command(tmp_path, "resume", str(record), *CPU, *words) == 0, text_of(tmp_path)
    assert b"renewed-4417" not in (record / "cfg.toml").read_bytes()


def test_resume_auto_finds_the_record_by_its_config_and_compares_the_secret(lab: Lab, tmp_path: Path) -> None:
    record, _ = stopped(lab, tmp_path, token=TOKEN)
    own = (tmp_path / "train.toml").read_text()
    (tmp_path / "train.toml").write_text(own.replace(TOKEN, "another-4417"))
    auto = ("run", str(tmp_path / "train.toml"), "--resume", "auto", *CPU)
    assert lab.command(tmp_path, *auto) == 2
    assert "no matching value was provided" in text_of(tmp_path)
    (tmp_path / "train.toml").write_text(own)
    assert lab.command(tmp_path, *auto) == 0, text_of(tmp_path)
    assert f"resuming {record}" in (tmp_path / "log.txt").read_text() and record_of(tmp_path) == record


def test_a_rerun_of_the_config_of_a_record_needs_the_same_value(lab: Lab, tmp_path: Path) -> None:
    record, _ = stopped(lab, tmp_path, token=TOKEN)
    rerun = ("run", str(record / "cfg.toml"), *CPU, "--fast-dev-run", "1", "--set")
    assert lab.command(tmp_path, *rerun, "plugins.Uploader.token=wrong-4417") == 2
    assert "differs from the secret masked in" in text_of(tmp_path)
    assert lab.command(tmp_path, *rerun, f"plugins.Uploader.token={TOKEN}") == 0, text_of(tmp_path)


def test_a_secret_of_the_environment_is_read_again(tmp_path: Path, programs: Path) -> None:
    cfg = with_uploader(tmp_path / "runs", auth={"dyn": "env", "name": "HF_TOKEN"})
    cfg["plugins"] = [row for row in cfg["plugins"] if not row["type"].endswith("Backup")]
    (tmp_path / "train.toml").write_text(dumps(cfg))
    code, printed = alchemy(programs, tmp_path, "run", "train.toml", *CPU, HF_TOKEN="12345678")  # text, not a number
    assert code == 0, printed
    record = record_of(tmp_path)
    assert b"12345678" not in (record / "cfg.toml").read_bytes()
    longer = ("resume", str(record), *CPU, "--set", "sched.epochs=4", "--allow", "sched.epochs")
    code, printed = alchemy(programs, tmp_path, *longer, HF_TOKEN="87654321")
    assert code == 2 and "export HF_TOKEN=.., or pass the value used by the run" in printed
    code, printed = alchemy(programs, tmp_path, *longer, HF_TOKEN="12345678")
    assert code == 0, printed


@pytest.mark.parametrize(
    "words", [("predict", "--split", "dev"), ("replay", "--update", "3")], ids=lambda words: words[0]
)
def test_other_commands_need_a_secret_but_not_the_same_one(lab: Lab, tmp_path: Path, words: tuple[str, ...]) -> None:
    record, _ = stopped(lab, tmp_path, token=TOKEN)
    command = (words[0], str(record), *words[1:], *CPU)
    assert lab.command(tmp_path, *command) == 2
    assert "plugins.4.token is a secret" in text_of(tmp_path) and "Traceback" not in text_of(tmp_path)
    assert lab.command(tmp_path, *command, "--set", "plugins.Uploader.token=new-4417") == 0, text_of(tmp_path)
    assert "new-4417" not in text_of(tmp_path)


def test_runs_in_processes_of_their_own_show_none(tmp_path: Path, programs: Path) -> None:
    cfg = with_uploader(tmp_path / "runs", token=TOKEN, fail=True)
    (tmp_path / "train.toml").write_text(dumps(cfg))
    words = ("--seeds", "1,2", "--set", f"plugins.Uploader.api_key={KEY}")
    code, printed = alchemy(programs, tmp_path, "run", "train.toml", *CPU, *words)
    assert code == 1 and printed.count("the server refuses ('***', '', '', '***')") >= 2, printed
    seen = [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert not [secret for secret in (TOKEN, KEY) for text in (*seen, printed.encode()) if secret.encode() in text]
