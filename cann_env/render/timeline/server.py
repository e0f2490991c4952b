"""A small server on this machine whose page can ask the engine 'what if'."""

from __future__ import annotations

import json
import secrets
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from cann_env.render.timeline.answers import Answers
from cann_env.render.timeline.html import page
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.schedule import Schedule

HOST: Final = "127.0.0.1"

_LONGEST = 10_000
"""Bytes of the longest edit that is read."""


class TimelineServer(ThreadingHTTPServer):
    """Serves the page of a schedule to this machine alone.

    Edits are answered only if they carry a word that stands in the page, so that no other page that happens
    to be open in the browser can make any.

    Args:
        schedule: A schedule that a scheduler made.
        against: Another one to show below it, or None.
        labels: What to call them.
        port: Where to listen; 0 for any port that is free.

    Raises:
        InputError: The schedule cannot be edited, or nothing can listen on that port.
    """

    daemon_threads = True

    def __init__(
        self,
        schedule: Schedule,
        against: Schedule | None = None,
        *,
        labels: tuple[str, str] = ("", ""),
        port: int = 0,
    ) -> None:
        self.answers: Final = Answers(schedule, against, labels)
        self.word: Final = secrets.token_urlsafe(16)
        self.turn: Final = threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"nothing can listen on port {port} of {HOST}: {error}") from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: TimelineServer

    def do_GET(self) -> None:
        """The page; it shows the edits that are in force."""
        if not self._is_for_here():
            return
        if self.path.split("?")[0] != "/":
            self._reply(HTTPStatus.NOT_FOUND, b"there is only /", "text/plain")
            return
        with self.server.turn:
            text = page(self.server.answers.document, word=self.server.word)
        self._reply(HTTPStatus.OK, text.encode(), "text/html; charset=utf-8")

    def do_POST(self) -> None:
        """An edit."""
        if not self._is_for_here():
            return
        word = self.headers.get("X-Timeline", "")
        length = self.headers.get("Content-Length", "")
        if self.path != "/edit" or not secrets.compare_digest(word.encode(), self.server.word.encode()):
            self._reply(HTTPStatus.FORBIDDEN, b"open the page of this server to edit", "text/plain")
            return
        if not length.isdecimal() or int(length) > _LONGEST:
            self._reply(HTTPStatus.BAD_REQUEST, b"an edit is a short JSON object", "text/plain")
            return
        try:
            request = json.loads(self.rfile.read(int(length)))
        except ValueError:
            request = None
        with self.server.turn:
            answer = self.server.answers.answer(request)
        self._reply(HTTPStatus.OK, json.dumps(answer, allow_nan=False).encode(), "application/json")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the browser shows what is wrong."""

    def _is_for_here(self) -> bool:
        """Refuse what was sent to another name: a page elsewhere whose name was made to lead here."""
        port = self.server.server_address[1]
        if self.headers.get("Host") in (f"{HOST}:{port}", f"localhost:{port}"):
            return True
        self._reply(HTTPStatus.FORBIDDEN, f"this server is http://{HOST}:{port}/".encode(), "text/plain")
        return False

    def _reply(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)
