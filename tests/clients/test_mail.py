"""`MailOnFinish` sends a message at the end of a run."""

import json

import pytest

from alchemy.context import Run
from alchemy.web.plugins import MailOnFinish


def mail_of(tmp_path, **options):
    with Run({"tag": "mail {x} [/y]"}) as run:
        run.record_dir = tmp_path
        plugin = MailOnFinish(**options)
        plugin.log({"dev/f1": 0.5, "dev/loss": float("nan"), "time/step": 1.0}, 3)
        run.ret = {"f1": 0.75, "preds": []}
        plugin.exit()
    path = tmp_path / "mail.json"
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("send_ok", [True, False])
def test_mail_of_a_finished_run(tmp_path, send_ok):
    mail = mail_of(tmp_path, send_ok=send_ok)
    if not send_ok:
        assert mail is None
        return
    assert mail["subject"] == "finished: mail {x} [/y]"
    assert mail["status"] == "finished"
    assert mail["numbers"] == {"dev/f1": 0.5, "dev/loss": "nan", "f1": 0.75}
    assert mail["record"] == str(tmp_path)
    assert mail["traceback"] is None
    assert mail["when"]
    assert mail["format"] == 1


def test_nothing_is_written_without_a_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Run({"tag": "mail"}):
        MailOnFinish().exit()
    assert list(tmp_path.iterdir()) == []
