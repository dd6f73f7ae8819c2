"""A registry on this machine that serves one image to a real Docker engine, slowly."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
_PIECES = 16
_PAUSE_S = 0.15
"""An engine tells of its progress at most once in 0.1 seconds, and drops what comes between."""


class ImageRegistry:
    """Has ``NAME:whole``; ``NAME:foreign``, which is for another processor; and nothing else. Who
    asks for ``private`` must log in.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Args:
        files: The files of the image, executable.
        """
        self.go_on = threading.Event()
        """From then on the layer is sent without pauses."""
        layer = _tar(files)
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            }
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _part("application/vnd.docker.container.image.v1+json", config),
                "layers": [_part("application/vnd.docker.image.rootfs.diff.tar", layer)],
            }
        ).encode()
        platform = {"architecture": "s390x", "os": "linux"}
        foreign = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _LIST,
                "manifests": [_part(_MANIFEST, manifest) | {"platform": platform}],
            }
        ).encode()
        self._layer = _digest(layer)
        self._blobs = {_digest(it): it for it in (layer, config)}
        self._manifests = {
            "whole": (_MANIFEST, manifest),
            "foreign": (_LIST, foreign),
            _digest(manifest): (_MANIFEST, manifest),
        }

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def place(self) -> str:
        """How names of its images begin."""
        return f"127.0.0.1:{self._server.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                parts = self.path.strip("/").split("/")
                if "private" in parts:
                    self._send(401, "application/json", _error("UNAUTHORIZED"))
                elif parts == ["v2"]:
                    self._send(200, "application/json", b"{}")
                elif "blobs" in parts and parts[-1] in registry._blobs:
                    self._send(200, "application/octet-stream", registry._blobs[parts[-1]])
                elif "manifests" in parts and parts[-1] in registry._manifests:
                    self._send(200, *registry._manifests[parts[-1]])
                else:
                    self._send(404, "application/json", _error("MANIFEST_UNKNOWN"))

            def _send(self, status: int, kind: str, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Docker-Content-Digest", _digest(data))
                self.end_headers()
                if self.command == "HEAD":
                    return
                is_slow = _digest(data) == registry._layer
                size = len(data) // _PIECES + 1 if is_slow else len(data)
                for at in range(0, len(data), size):
                    self.wfile.write(data[at : at + size])
                    if is_slow:
                        registry.go_on.wait(_PAUSE_S)

            def log_message(self, format: str, *args: Any) -> None:
                del format, args

        return Handler


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _part(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "size": len(data), "digest": _digest(data)}


def _error(code: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode()
