"""Receives webhooks for the pages: appends every posted body to a file, a line each."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def main(url_file: Path, bodies_file: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with bodies_file.open("ab") as file:
                file.write(body + b"\n")
            self.send_response(204)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Handler)
    url_file.write_text(f"http://127.0.0.1:{server.server_port}/")
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
