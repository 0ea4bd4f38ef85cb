"""`MailOnFinish` sends the mail of a run in the background and never disturbs the run."""

from __future__ import annotations

import json
import threading

import pytest

from alchemy.context import Run
from alchemy.runner import run
from alchemy.web import plugins
from alchemy.web.plugins import MailOnFinish
from tests.mail_servers import HookServer, SmtpServer, running
from tests.toy import config

PLUGIN = {"type": "alchemy.web.plugins.MailOnFinish"}
MONITOR = {"monitor": "dev/loss", "mode": "min"}
EVERY_EPOCH = [{"type": "alchemy.pipeline.sched.EvalEEPipeline", "period": 1}]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that sets up [mail] in a project, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def set_up(text):
        (tmp_path / ".alchemy").mkdir(exist_ok=True)
        (tmp_path / ".alchemy" / "config.toml").write_text(f"[mail]\n{text}\n")
        return tmp_path

    return set_up


def finish(tmp_path, error=None, **options):
    """End a run and wait until its mail is sent; return its `mail.json`."""
    with Run({"tag": "demo"}) as context:
        context.record_dir = tmp_path
        plugin = MailOnFinish(**options)
        plugin.log({"dev/f1": 0.5, "dev/loss": float("nan")}, 3)
        try:
            if error is not None:
                raise error
        except ValueError:
            plugin.exit()
        else:
            plugin.exit()
    wait()
    return json.loads((tmp_path / "mail.json").read_text())


def wait():
    for thread in threading.enumerate():
        if thread.name == "alchemy-send-mail":
            assert not thread.daemon  # the process waits for it
            thread.join()


def test_without_settings_nothing_is_sent(tmp_path, monkeypatch, warnings):
    monkeypatch.chdir(tmp_path)
    assert finish(tmp_path)["sent"] == []
    assert warnings == []


def test_a_failure_is_sent_with_its_traceback(project, warnings):
    with running(SmtpServer()) as server:
        folder = project(f'smtp = "{server.address}"\nto = "anna@example.org"')
        mail = finish(folder, ValueError("bad row"))
    (message,) = server.messages
    assert message["Subject"] == "failed: demo: ValueError: bad row"
    assert "raise error\nValueError: bad row" in message.get_content().replace("\r\n", "\n")
    assert mail["sent"] == [f"e-mail to anna@example.org by {server.address}"]
    assert warnings == []


def test_numbers_reach_the_webhook_as_valid_json(project):
    with running(HookServer()) as server:
        finish(project(f'webhook = "{server.url}"'))
    (content,) = server.received
    assert content["kind"] == content["status"] == "finished"
    assert content["numbers"] == {"dev/f1": 0.5, "dev/loss": "nan"}
    assert content["subject"] == "finished: demo"


def test_events_choose_what_is_sent(project):
    with running(HookServer()) as server:
        folder = project(f'webhook = "{server.url}"\nevents = ["failed"]')
        assert finish(folder)["sent"] == []
        assert finish(folder, ValueError("bad"))["sent"] != []
    assert [content["kind"] for content in server.received] == ["failed"]


def test_a_silent_server_costs_one_warning(project, warnings, monkeypatch):
    monkeypatch.setattr(plugins, "SECONDS", 0.2)
    with running(SmtpServer(silent=True)) as server:
        mail = finish(project(f'smtp = "{server.address}"\nto = "anna@example.org"'))
    assert (mail["status"], mail["sent"]) == ("finished", [])
    (warning,) = warnings
    assert "was not sent: e-mail to anna@example.org" in warning
    assert "no answer within" in warning


def test_wrong_settings_cost_one_warning_when_the_run_starts(project, warnings):
    folder = project('webhok = "https://example.org"')
    with Run({"tag": "demo"}):
        MailOnFinish()
    (warning,) = warnings
    assert warning.startswith(f"no mail will be sent: {folder}/.alchemy/config.toml [mail] unknown key 'webhok'")


def test_a_new_best_is_sent_as_such(project):
    def train(**changes):
        cfg = config("records", checkpoint=MONITOR, sched__pipes=EVERY_EPOCH, **changes)
        cfg["plugins"].append(PLUGIN)
        (result,) = run([cfg], device=[-1])
        assert result.status == "finished"
        wait()

    with running(HookServer()) as server:
        project(f'webhook = "{server.url}"\nevents = ["new best"]')
        train(sched__epochs=2)
        train(sched__epochs=1)
        assert server.received == []
        train(sched__epochs=4)
    (content,) = server.received
    assert content["kind"] == "new best"
    assert content["subject"].startswith("new best: toy: dev/loss 0.")
