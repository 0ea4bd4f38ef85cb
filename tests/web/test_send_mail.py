"""Messages are sent by e-mail and webhook, within bounded time, and without secrets."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from alchemy.config.secrets import remember
from alchemy.errors import AlchemyError
from alchemy.web.send_mail import Message, deliver, parse_mail_settings
from tests.mail_servers import HookServer, SmtpServer, running

TO = "anna@example.org"
MESSAGE = Message("failed: demo: ValueError", "record: records/1\n\nValueError: 坏", {"kind": "failed", "tag": "demo"})


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def send(table, message=MESSAGE, seconds=10.0):
    return list(deliver(parse_mail_settings(table, "config.toml"), message, seconds).values())


def test_an_email_arrives():
    with running(SmtpServer()) as server:
        assert send({"smtp": server.address, "to": [TO, "ben@example.org"], "from": "runs@example.org"}) == [""]
    (mail,) = server.messages
    assert (mail["Subject"], mail["From"], mail["To"]) == (
        MESSAGE.subject,
        "runs@example.org",
        f"{TO}, ben@example.org",
    )
    assert mail.get_content().splitlines() == MESSAGE.text.splitlines()


def test_a_webhook_gets_json():
    with running(HookServer()) as server:
        assert send({"webhook": server.url}) == [""]
    (content,) = server.received
    assert content["subject"] == MESSAGE.subject
    assert content["text"] == f"{MESSAGE.subject}\n\n{MESSAGE.text}"
    assert content["kind"] == "failed"


def test_text_from_a_record_adds_no_headers():
    with running(SmtpServer()) as server:
        send({"smtp": server.address, "to": TO}, Message("a\r\nBcc: eve@example.org\ud800\x1b[31m", "x\ud800", {}))
    (mail,) = server.messages
    assert mail["Bcc"] is None
    assert mail["Subject"] == "a Bcc: eve@example.org?\\u001b[31m"


def test_a_password_comes_from_the_environment_and_is_never_shown(monkeypatch):
    monkeypatch.setenv("MAIL_SECRET", "opensesame")
    table = {"to": TO, "user": "anna", "password_env": "MAIL_SECRET"}
    with running(SmtpServer()) as server:
        assert send(table | {"smtp": server.address}, Message("the password is opensesame", "", {})) == [""]
    assert any(line.startswith("AUTH PLAIN") for line in server.commands)
    assert server.messages[0]["Subject"] == "the password is ***"
    monkeypatch.delenv("MAIL_SECRET")
    assert send(table | {"smtp": server.address}) == [
        "the environment variable MAIL_SECRET is not set; export the password"
    ]


def test_secrets_of_the_config_are_hidden():
    remember({"s3cr3t-value": ""})
    with running(HookServer()) as server:
        send({"webhook": server.url}, Message("s3cr3t-value", "a s3cr3t-value", {"cause": "with s3cr3t-value"}))
    (content,) = server.received
    assert content == {"cause": "with ***", "subject": "***", "text": "***\n\na ***"}


@pytest.mark.parametrize(
    ("kind", "options", "error"),
    [
        (SmtpServer, {"silent": True}, "no answer within 0.2 s"),
        (SmtpServer, {"refuse": "RCPT"}, "SMTPRecipientsRefused"),
        (HookServer, {"status": 500}, "the server answered 500 Internal Server Error"),
    ],
)
def test_a_server_that_fails_is_reported(kind, options, error):
    with running(kind(**options)) as server:
        key = {"smtp": server.address, "to": TO} if isinstance(server, SmtpServer) else {"webhook": server.url}
        (found,) = send(key, seconds=0.2 if "0.2" in error else 10.0)
    assert error in found
    assert "secret-path" not in found


@pytest.mark.parametrize("same_host", [True, False])
def test_redirects_are_not_followed(same_host):
    with ExitStack() as stack:
        other = stack.enter_context(running(HookServer()))
        target = other.url if same_host else other.url.replace("127.0.0.1", "localhost")
        first = stack.enter_context(running(HookServer(status=307, location=target)))
        (error,) = send({"webhook": first.url})
    assert error == "the server answered 307 Temporary Redirect; redirects are not followed: use the final address"
    assert other.received == []


def test_one_channel_that_fails_does_not_stop_the_other():
    with running(HookServer()) as hook, running(SmtpServer(silent=True)) as silent:
        errors = send({"smtp": silent.address, "to": TO, "webhook": hook.url}, seconds=0.5)
    assert errors == ["no answer within 0.5 s", ""]
    assert len(hook.received) == 1


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"too": TO}, r"config.toml \[mail\] unknown key 'too'; did you mean 'to'"),
        ({"to": TO}, "nowhere to send to"),
        ({"smtp": "localhost"}, "e-mail needs an address"),
        ({"smtp": "localhost", "to": "anna"}, "'anna' is not an e-mail address"),
        ({"smtp": "localhost", "to": "a@b\r\nBcc: c@d"}, "is not an e-mail address"),
        ({"smtp": "localhost", "to": 3}, "to must be an address, or a list of addresses"),
        ({"smtp": 25, "to": TO}, "smtp must be a string"),
        ({"smtp": "me:pass@localhost:25", "to": TO}, "smtp must be HOST:PORT$"),
        ({"smtp": "localhost:many", "to": TO}, "smtp must be HOST:PORT"),
        ({"smtp": "localhost", "to": TO, "starttls": "yes"}, "starttls must be true or false"),
        ({"smtp": "localhost", "to": TO, "password": "x"}, "the password is not read from a file; name an environment"),
        ({"smtp": "localhost", "to": TO, "user": "x"}, "a user needs a password"),
        (
            {"smtp": "mail.example.org:587", "to": TO, "user": "x", "password_env": "P"},
            "without encryption; set starttls = true, or use port 465",
        ),
        ({"webhook": "file:///etc/passwd"}, "webhook must be an address such as https"),
        ({"webhook": "ftp://example.org"}, "webhook must be an address"),
        ({"webhook": "https://"}, "webhook must be an address"),
        ({"webhook": "https://example.org/\r\nX: y"}, "webhook must be an address"),
        ({"webhook": "https://[::1"}, "webhook must be an address"),
        ({"webhook": "https://me:pass@example.org"}, "must not contain a user name or password"),
        (
            {"webhook": "https://example.org", "events": ["new bets"]},
            "unknown event 'new bets'; did you mean 'new best'",
        ),
    ],
)
def test_wrong_settings_are_explained(table, error):
    with pytest.raises(AlchemyError, match=error):
        parse_mail_settings(table, "config.toml")
