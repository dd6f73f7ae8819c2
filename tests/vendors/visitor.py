"""Visits a port of a box by its URL, as a browser does."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit


def visit(url: str, *, timeout_s: float = 20.0) -> bytes:
    """What the URL answers. A name below localhost is this machine (RFC 6761), which not every
    resolver knows.

    Raises:
        ConnectionError: Nothing answers, or not with success.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection = http.client.HTTPConnection(
        "127.0.0.1" if host.endswith(".localhost") else host, parts.port, timeout=timeout_s
    )
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Host": parts.netloc})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise ConnectionError(f"{url}: {answer.status} {body[:200]!r}")
    return body
