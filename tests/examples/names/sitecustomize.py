"""Names below localhost are this machine (RFC 6761), which not every resolver knows.

Python imports this file at its start if the folder is in PYTHONPATH: examples then reach the local
servers of vendors by the names that these give to ports.
"""

from __future__ import annotations

import socket
from typing import Any

_resolve = socket.getaddrinfo


def _resolve_here(host: Any, *more: Any, **named: Any) -> Any:
    if isinstance(host, str) and host.endswith(".localhost"):
        host = "127.0.0.1"
    return _resolve(host, *more, **named)


socket.getaddrinfo = _resolve_here
