"""An SMTP server and a web server on this machine that keep what they receive."""

from __future__ import annotations

import contextlib
import email
import email.policy
import json
import socketserver
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

_Server = TypeVar("_Server", bound=socketserver.BaseServer)
ANSWERS = {"EHLO": "250-here\r\n250 AUTH PLAIN", "AUTH": "235 welcome", "DATA": "354 go on", "QUIT": "221 bye"}


class _SmtpSession(socketserver.StreamRequestHandler):
    server: SmtpServer

    def handle(self) -> None:
        if self.server.silent:
            self.server.closing.wait()
            return
        self._answer("220 here")
        for line in self.rfile:
            command = line.split()[0].upper().decode() if line.split() else ""
            self.server.commands.append(line.decode().strip())
            self._answer(ANSWERS.get(command, "250 ok") if command != self.server.refuse else "550 not here")
            if command == "DATA" and command != self.server.refuse:
                self.server.messages.append(self._read_message())
                self._answer("250 queued")
            if command == "QUIT":
                return

    def _read_message(self) -> EmailMessage:
        # the client doubles a dot at the start of a line
        lines = [line.removeprefix(b".") for line in iter(self.rfile.readline, b".\r\n")]
        message = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        return message

    def _answer(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class SmtpServer(socketserver.ThreadingTCPServer):
    """Accepts mail; `silent` never answers, and `refuse` names a command to reject."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, *, silent: bool = False, refuse: str = "") -> None:
        self.silent, self.refuse, self.closing = silent, refuse, threading.Event()
        self.messages: list[EmailMessage] = []
        self.commands: list[str] = []
        super().__init__(("127.0.0.1", 0), _SmtpSession)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def server_close(self) -> None:
        self.closing.set()
        super().server_close()


class _Hook(BaseHTTPRequestHandler):
    server: HookServer

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.received.append(json.loads(self.rfile.read(size)))
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class HookServer(ThreadingHTTPServer):
    """Keeps the JSON of every POST; `location` redirects."""

    def __init__(self, *, status: int = 200, location: str = "") -> None:
        self.status, self.location = status, location
        self.received: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Hook)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook/secret-path"


@contextlib.contextmanager
def running(server: _Server) -> Iterator[_Server]:
    """Run a server until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
