"""A git server over HTTP: real git (``git http-backend``) behind a real socket. It counts its
connections, and can redirect its callers.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

AUTHOR = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(folder: Path, *argv: str) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(
        ["git", *argv], cwd=folder, env=clean | AUTHOR, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, str]) -> None:
    """A repository with one commit on ``main``."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")


class GitServer(ThreadingHTTPServer):
    """Serves the repositories below ``folder``; ``moved`` maps path prefixes to the targets of
    redirects.
    """

    daemon_threads = True

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        super().__init__((address, 0), _Handler)
        self.folder = folder
        self.connections = 0
        self.moved: dict[str, str] = {}

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        self.connections += 1
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: GitServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        for start, elsewhere in self.server.moved.items():
            if self.path.startswith(start):
                self.send_response(302)
                self.send_header("Location", elsewhere + self.path.removeprefix(start))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        status, headers, body = self._from_git()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _from_git(self) -> tuple[int, list[tuple[str, str]], bytes]:
        url = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_CONFIG_KEY_1": "uploadpack.allowAnySHA1InWant",
            "GIT_CONFIG_VALUE_1": "true",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], input=data, env=env, capture_output=True, check=True
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = [
            (name, value.strip())
            for name, _, value in (line.partition(":") for line in head.decode().splitlines())
        ]
        status = next((int(value[:3]) for name, value in headers if name == "Status"), 200)
        return status, [it for it in headers if it[0] != "Status"], body

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def git_server(folder: Path, address: str = "127.0.0.1") -> Iterator[GitServer]:
    server = GitServer(folder, address)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
