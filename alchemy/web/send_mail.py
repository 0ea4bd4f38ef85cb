"""Send messages about runs by e-mail and webhook, as `[mail]` in `.alchemy/config.toml` says; off by default."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from alchemy.config.secrets import hide, remember
from alchemy.errors import AlchemyError, did_you_mean, printable
from alchemy.index.settings import NAME, load_settings

SECONDS = 10.0  # how long sending may take in total
EVENTS = ("failed", "finished", "new best", "stopped")
DEFAULT_EVENTS = ("failed", "finished", "new best")
LONGEST_SUBJECT = 200  # characters
TLS_PORT = 465  # servers on this port expect TLS from the start
_ADDRESS = re.compile(r"[^\s@<>,;]+@[^\s@<>,;]+")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_TEXT = (_is_text, "a string")
# the keys of [mail]: the check, and the expected value for the error message
_KEYS: dict[str, tuple[Callable[[object], bool], str]] = {
    "to": (lambda value: _is_text(value) or _is_list(value), "an address, or a list of addresses"),
    "from": _TEXT,
    "smtp": _TEXT,
    "starttls": (lambda value: isinstance(value, bool), "true or false"),
    "user": _TEXT,
    "password_env": _TEXT,
    "webhook": _TEXT,
    "events": (_is_list, "a list of strings"),
}


class Message(NamedTuple):
    """A message: `data` are the fields of a webhook, next to `subject` and `text`."""

    subject: str
    text: str
    data: dict[str, Any]


class MailSettings(NamedTuple):
    """Where to send messages, and about which events."""

    to: tuple[str, ...] = ()
    sender: str = ""
    host: str = ""
    port: int = 25
    starttls: bool = False
    user: str = ""
    password_env: str = ""
    webhook: str = ""
    events: tuple[str, ...] = DEFAULT_EVENTS

    @property
    def channels(self) -> dict[str, Callable[[Message], None]]:
        """The ways to send a message, by a name that contains no secret."""
        found: dict[str, Callable[[Message], None]] = {}
        if self.host:
            found[f"e-mail to {', '.join(self.to)} by {self.host}:{self.port}"] = self._send_email
        if self.webhook:
            found[f"webhook at {urlsplit(self.webhook).netloc}"] = self._send_to_webhook
        return found

    def _send_email(self, message: Message) -> None:
        import smtplib
        import ssl
        from email.message import EmailMessage
        from email.utils import formatdate

        mail = EmailMessage()
        mail["Subject"] = message.subject
        mail["From"], mail["To"], mail["Date"] = self.sender, ", ".join(self.to), formatdate()
        mail.set_content(message.text)
        password = self._password()
        kind = smtplib.SMTP_SSL if self.port == TLS_PORT else smtplib.SMTP
        # with a name of its own, the client does not ask a name server for one
        with kind(self.host, self.port, local_hostname=socket.gethostname(), timeout=SECONDS) as server:
            if self.starttls:
                server.starttls(context=ssl.create_default_context())
            if self.user:
                server.login(self.user, password)
            server.send_message(mail)

    def _password(self) -> str:
        if not self.user:
            return ""
        password = os.environ.get(self.password_env, "")
        if not password:
            raise AlchemyError(f"the environment variable {self.password_env} is not set", hint="export the password")
        return password

    def _send_to_webhook(self, message: Message) -> None:
        from urllib.error import HTTPError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class RefuseRedirects(HTTPRedirectHandler):
            def redirect_request(self, *args: object) -> None:
                return None

        content = {**message.data, "subject": message.subject, "text": f"{message.subject}\n\n{message.text}"}
        headers = {"Content-Type": "application/json", "User-Agent": "alchemy"}
        request = Request(self.webhook, hide(json.dumps(content, default=str)).encode(), headers, method="POST")
        try:
            build_opener(RefuseRedirects).open(request, timeout=SECONDS).close()
        except HTTPError as error:
            error.close()
            moved = "; redirects are not followed: use the final address" if 300 <= error.code < 400 else ""
            raise AlchemyError(f"the server answered {error.code} {error.reason}{moved}") from None


def load_mail_settings() -> MailSettings | None:
    """Return the settings of the project, or None if sending is off."""
    settings = load_settings()
    return parse_mail_settings(settings.mail, str(settings.home / NAME)) if settings.mail else None


def parse_mail_settings(table: Mapping[str, Any], where: str) -> MailSettings:
    """Validate the table `[mail]`."""

    def fail(message: str, hint: str = "") -> AlchemyError:
        return AlchemyError(message, where=where, section="mail", hint=hint)

    for key, value in table.items():
        if key == "password":
            raise fail("the password is not read from a file", 'name an environment variable: password_env = ".."')
        if key not in _KEYS:
            raise fail(f"unknown key {key!r}", did_you_mean(key, _KEYS) or f"expected {', '.join(_KEYS)}")
        fits, expected = _KEYS[key]
        if not fits(value):  # the value is not shown: it may contain a password
            raise fail(f"{key} must be {expected}")
    to = table.get("to", [])
    settings = MailSettings(
        to=(to,) if isinstance(to, str) else tuple(to),
        sender=table.get("from", ""),
        starttls=table.get("starttls", False),
        user=table.get("user", ""),
        password_env=table.get("password_env", ""),
        webhook=table.get("webhook", ""),
        events=tuple(table.get("events", DEFAULT_EVENTS)),
    )
    if "smtp" in table:
        host, port = _parse_server(table["smtp"], fail)
        settings = settings._replace(host=host, port=port, sender=settings.sender or "".join(settings.to[:1]))
    _validate(settings, fail)
    return settings


_Fail = Callable[..., AlchemyError]


def _parse_server(text: str, fail: _Fail) -> tuple[str, int]:
    """
    >>> _parse_server("mail.example.org:587", ValueError), _parse_server("localhost", ValueError)
    (('mail.example.org', 587), ('localhost', 25))
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port or 25
    except ValueError:
        host, port = "", 0
    if not host or text.rpartition("@")[0] or not re.fullmatch(r"[\w.:-]+", host):
        raise fail("smtp must be HOST:PORT")
    return host, port


def _validate(settings: MailSettings, fail: _Fail) -> None:
    if not settings.host and not settings.webhook:
        raise fail("nowhere to send to", 'set smtp = "HOST:PORT" and to = "ADDRESS", or webhook = "https://.."')
    if settings.host and not settings.to:
        raise fail("e-mail needs an address", 'set to = "ADDRESS"')
    for address in (*settings.to, *([settings.sender] if settings.host else [])):
        if not _ADDRESS.fullmatch(address):
            raise fail(f"{address!r} is not an e-mail address")
    for event in settings.events:
        if event not in EVENTS:
            raise fail(f"unknown event {event!r}", did_you_mean(event, EVENTS) or f"expected {', '.join(EVENTS)}")
    if settings.user and not settings.password_env:
        raise fail("a user needs a password", 'name an environment variable: password_env = ".."')
    if settings.user and not (settings.starttls or settings.port == TLS_PORT or settings.host in _LOOPBACK):
        raise fail("the password would be sent without encryption", f"set starttls = true, or use port {TLS_PORT}")
    if settings.webhook:
        _validate_webhook(settings.webhook, fail)


def _validate_webhook(url: str, fail: _Fail) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or re.search(r"[\s\x00-\x1f\x7f]", url) or not url.isascii():
        raise fail("webhook must be an address such as https://example.org/hook")
    if "@" in parts.netloc:
        raise fail("webhook must not contain a user name or password")


def deliver(settings: MailSettings, message: Message, seconds: float = SECONDS) -> dict[str, str]:
    """Send a message through all channels at once; return the error of each, or an empty string if it was sent."""
    password = os.environ.get(settings.password_env, "") if settings.password_env else ""
    remember({secret: name for secret, name in ((password, settings.password_env), (settings.webhook, "")) if secret})
    subject = _clean(" ".join(message.subject.split()))
    subject = subject if len(subject) <= LONGEST_SUBJECT else f"{subject[:LONGEST_SUBJECT]}.."
    shown = Message(subject, _clean(message.text), message.data)
    deadline = time.monotonic() + seconds
    waiting = {name: run_in_thread(partial(send, shown)) for name, send in settings.channels.items()}
    found = {}
    for name, wait in waiting.items():
        _, error = wait(max(0.0, deadline - time.monotonic()))
        found[name] = "" if error is None else hide(printable(_explain(error, seconds)))
    return found


def _clean(text: str) -> str:
    """Return text from a record without secrets, control characters and lone surrogates, which cannot be encoded."""
    return hide(printable(text)).encode("utf-8", "replace").decode("utf-8")


def _explain(error: BaseException, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.2g} s"
    return str(error) if isinstance(error, AlchemyError) else f"{type(error).__name__}: {error}"


Outcome = tuple[Any, BaseException | None]


def run_in_thread(work: Callable[[], Any]) -> Callable[[float], Outcome]:
    """Start a function in a thread that never keeps the process alive.

    The returned function waits for the result, at most as many seconds as it is given, and returns it or the error.
    Time-outs of sockets do not suffice: they do not cover name servers, nor servers that answer byte by byte.
    """
    done: list[Outcome] = []

    def run() -> None:
        try:
            done.append((work(), None))
        except Exception as error:
            done.append((None, error))

    thread = threading.Thread(target=run, name="alchemy-mail", daemon=True)
    thread.start()

    def wait(seconds: float) -> Outcome:
        thread.join(seconds)
        return done[0] if done else (None, TimeoutError())

    return wait
