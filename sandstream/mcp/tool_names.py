"""Names of servers and tools: without credentials for logs, without collisions for models."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

MAX_NAME_LENGTH = 64
_HASH_LENGTH = 8
_URL_PREFIXES = ("sse: ", "streamable_http: ", "streamable-http: ")


def safe_server_name(name: str) -> str:
    """A server's name; in a URL without user, password, query and fragment."""
    prefix = next((each for each in _URL_PREFIXES if name.startswith(each)), "")
    rest = name.removeprefix(prefix)
    try:
        url = urlsplit(rest)
        host, port = url.hostname, url.port
    except ValueError:
        is_url = bool(prefix) or rest.lower().startswith(("http://", "https://"))
        return f"{prefix}<invalid-url>" if is_url else name
    if url.scheme not in ("http", "https"):
        return name
    if not host or any(char.isspace() for char in host):
        return f"{prefix}<invalid-url>"
    address = f"[{host}]" if ":" in host else host
    if port is not None:
        address = f"{address}:{port}"
    return prefix + urlunsplit((url.scheme, address, url.path, "", ""))


class ServerTool(NamedTuple):
    """A tool and its server, by name. The server's name is safe to show."""

    server: str
    tool: str


def prefixed_tool_names(tools: Sequence[ServerTool], reserved: set[str]) -> list[str]:
    """A name for each tool, prefixed with its server: valid, short, and unique.

    The names depend on the set of tools, not on their order, so that a model sees the same name in
    each turn. A name that is too long, taken or reserved gets a hash of the server and the tool.
    """
    bases = [_base_name(each) for each in tools]
    counts = Counter(bases)
    first: list[tuple[str, str, int]] = []
    for index, (each, base) in enumerate(zip(tools, bases, strict=True)):
        seed = f"{each.server}\0{each.tool}"
        collides = counts[base] > 1 or base in reserved
        first.append((_shortened(base, seed, with_hash=collides), seed, index))
    taken = set(reserved)
    names = [""] * len(tools)
    for wanted, seed, index in sorted(first):
        name, again = wanted, 0
        while name in taken:
            again += 1
            name = _shortened(bases[index], f"{seed}\0{again}", with_hash=True)
        taken.add(name)
        names[index] = name
    return names


def _base_name(each: ServerTool) -> str:
    return f"mcp_{_safe(each.server, 'server')}__{_safe(each.tool, 'tool')}"


def _safe(text: str, fallback: str) -> str:
    chars = (char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in text)
    return "".join(chars).strip("_-") or fallback


def _shortened(base: str, seed: str, *, with_hash: bool) -> str:
    if not with_hash and len(base) <= MAX_NAME_LENGTH:
        return base
    suffix = "_" + hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    stem = base[: MAX_NAME_LENGTH - len(suffix)].rstrip("_-") or "mcp"
    return stem + suffix
