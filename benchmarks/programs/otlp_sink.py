"""An OTLP endpoint that takes everything and does nothing with it.

python otlp_sink.py sandstream asyncio
"""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import lab_desk


class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


async def opened() -> lab_desk.Handler:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{server.server_address[1]}"}

    return handle


lab_desk.serve(opened, sys.argv[2])
