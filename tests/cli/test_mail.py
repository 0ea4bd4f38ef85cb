"""`alchemy mail`: list, show, read, clear and send mails."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

import pytest

from alchemy.cli import main
from tests.analysis.fake_runs import write_run
from tests.mail_servers import HookServer, SmtpServer, running

TRACE = 'Traceback (most recent call last):\n  File "/p/src/model.py", line 3, in forward\nValueError: bad \x1b[31m\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with two failed runs of the same cause, and a finished one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for number in range(2):
        name = write_run(tmp_path / "records", number, {"dev/f1": 0.5}, status="failed")
        (tmp_path / "records" / name / "mail.json").write_text(json.dumps({"traceback": TRACE}))
    write_run(tmp_path / "records", 2, {"dev/f1": 0.75})
    return tmp_path


@pytest.fixture
def mail(project, capsys):
    """Return a function that runs `alchemy mail` and returns its exit code and output."""

    def call(*words):
        code = main(["mail", *words])
        streams = capsys.readouterr()
        return code, streams.out if code in (0, 1) else streams.err

    return call


def test_what_failed_and_why_takes_two_commands(mail):
    lines = mail("--since", "2026-01-01")[1].splitlines()
    assert [line.split()[:2] + line.split()[4:6] for line in lines[1:]] == [
        ["*", "1", "new", "best"],
        ["*", "2", "finished", "1"],
        ["*", "3", "failed", "2"],
    ]
    code, text = mail("show", "3")
    assert code == 0
    assert text.startswith("failed: demo\n") and "reason:  ValueError: bad \\u001b[31m (model.py:forward)\n" in text
    assert "again:   alchemy run a.toml" in text
    assert '    File "/p/src/model.py", line 3, in forward' in text
    assert "1 more like this" in text


def test_marks_change_what_is_listed(mail):
    assert mail("show", "3")[0] == 0
    assert [row["number"] for row in json.loads(mail("--unread", "--json")[1])] == [1, 2]
    assert mail("clear", "--read") == (0, "2 mails (1 line) cleared\n")
    assert mail("read", "1", "2026-03-01_14") == (0, "2 mails (2 lines) marked as read\n")
    assert mail("--unread") == (0, "no unread mail\n")
    assert "*" not in mail()[1]
    assert mail("clear", "--all") == (0, "2 mails (2 lines) cleared\n")
    assert mail() == (0, "no mail\n")


def test_the_line_of_several_seeds_shows_their_mean(mail, project):
    folder = project / "records"
    for seed, score in enumerate([0.1, 0.2, 0.3], start=1):
        run = write_run(folder, 10 + seed, {"dev/f1": score}, {"lr": 1}, seed=seed)
        tested = {"test/f1": score / 2, "test/loss": 1.0}
        write_run(folder, 20 + seed, tested, seed=seed, kind="test", parent=run)
    write_run(folder, 30, {"dev/f1": 0.9}, {"lr": 1}, seed=3, parent=run)  # a rerun
    lines = [" ".join(line.split()[4:]) for line in mail()[1].splitlines()[1:]]
    assert lines[:3] == [
        "new best 2 demo dev/f1 0.9, before 0.75",
        "finished 4 demo dev/f1 0.2 ± 0.1 (3)",
        "test finished 3 demo test/f1 0.1 ± 0.05 (3)",
    ]
    tests = json.loads(mail("--json")[1])[2]
    assert tests["subject"] == "finished: demo (test): test/f1 0.1 ± 0.05 (3)"
    assert tests["mails"][0]["cause"] == "test/f1 0.15"


def test_json_has_ids_numbers_and_times(mail):
    rows = json.loads(mail("--json", "-n", "1")[1])
    (row,) = rows
    (one,) = row["mails"]
    assert (row["kind"], row["runs"], row["unread"]) == ("new best", 1, 1)
    assert one["id"] == "2026-03-01_14-00-00.000000:0:new-best"
    assert datetime.fromisoformat(one["when"]) == datetime(2026, 3, 1, 14, 5, tzinfo=UTC)
    assert one["numbers"] == {"dev/f1": 0.75}
    assert json.loads(mail("show", one["id"], "--json")[1])["mails"][0]["id"] == one["id"]


def test_unread_mails_are_bold_on_a_terminal(mail, monkeypatch):
    mail("read", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = mail()[1].splitlines()
    assert ["\x1b[1m" in line for line in lines] == [False, False, True, True]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["show", "7"], "there is no mail 7; the mailbox has 3 lines"),
        (["show", "nothing"], "record not found: 'nothing'"),
        (["read"], "pass mails or --all"),
        (["clear", "1", "--all"], "pass mails or --all"),
        (["clear", "1", "--read"], "--read cannot be combined with mails or --all"),
        (["-n", "-1"], "expected a number of lines, or 0 to show all"),
        (["--since", "soon"], "'soon' is not a time"),
        (["shw"], "'shw' is not a valid ACTION; did you mean 'show'?"),
        (["send"], "mail is not set up in .alchemy/config.toml"),
        (["test"], "mail is not set up in .alchemy/config.toml"),
    ],
)
def test_mistakes_are_explained(mail, words, error):
    code, text = mail(*words)
    assert code == 2
    assert error in text


def test_a_read_only_project_can_be_read(mail, project):
    (project / ".alchemy").mkdir()
    (project / ".alchemy" / "mail").symlink_to(project / "missing" / "folder")  # cannot be created, even by root
    assert "ValueError: bad" in mail("show", "3")[1]
    assert "cannot mark mails" in mail("read", "--all")[1]


def test_send_delivers_each_mail_once_in_one_message(mail, project):
    with running(SmtpServer()) as server:
        (project / ".alchemy").mkdir()
        (project / ".alchemy" / "config.toml").write_text(f'[mail]\nsmtp = "{server.address}"\nto = "anna@example.org"')
        code, out = mail("send", "--since", "2026-01-01")
        assert (code, out) == (0, f"e-mail to anna@example.org by {server.address}: sent\n")
        assert mail("send", "--since", "2026-01-01") == (0, "nothing to send\n")
        assert mail("send") == (0, "nothing to send\n")
    (message,) = server.messages
    assert message["Subject"] == "1 new best, 1 finished, 2 failed: demo"
    assert "ValueError: bad" in message.get_content()


def test_a_test_message_reports_each_channel(mail, project):
    with running(HookServer()) as hook, running(SmtpServer(refuse="MAIL")) as server:
        (project / ".alchemy").mkdir()
        text = f'[mail]\nsmtp = "{server.address}"\nto = "anna@example.org"\nwebhook = "{hook.url}"'
        (project / ".alchemy" / "config.toml").write_text(text)
        code, out = mail("test")
    assert code == 1
    assert "by 127.0.0.1:" in out and "not sent: SMTPSenderRefused" in out
    assert f"webhook at {hook.url.split('/')[2]}: sent" in out
    assert hook.received[0]["kind"] == "test"
