"""Addresses of repositories: their parts, and how they are shown to people and logs."""

from __future__ import annotations

import re
from typing import NamedTuple

_PORTS = {"http": 80, "https": 443, "ssh": 22, "git": 9418}
_URL = re.compile(r"(?P<scheme>[a-z]+)://(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_SCP_LIKE = re.compile(r"(?P<authority>(?:[^/:@]*@)?(?:\[[^]/]*\]|[^/:@]+)):(?!:|//)(?P<rest>.*)")
_HOST_AND_PORT = re.compile(
    r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]]*))(?::(?P<port>\d*))?"
)
_NAME = re.compile(r"(?!-)[^\s\x00-\x2c/:;<=>?@\[\\\]^`{|}~\x7f]+")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]*@")
_QUERY = re.compile(r"(://[^\s'\"?#]*)[?#][^\s'\"]*")
_UNSEEN = re.compile(r"[\x00-\x20\x7f\\]")


class GitUrl(NamedTuple):
    """Where a repository is. ``host`` is empty for ``file``."""

    scheme: str
    host: str
    port: int
    path: str


def parse_git_url(url: str) -> GitUrl:
    """Raises ValueError for a text that is not plainly the address of a repository."""
    url_match = _URL.fullmatch(url)
    if url_match is not None and url_match["scheme"] == "file":
        return GitUrl("file", "", 0, url_match["rest"])
    if _UNSEEN.search(url):
        raise ValueError("it has blanks, control characters or backslashes")
    if url_match is not None:
        scheme = url_match["scheme"]
        if scheme not in _PORTS:
            raise ValueError(f"its scheme is {scheme!r}, not one of file, {', '.join(_PORTS)}")
        return _with_host(scheme, url_match["authority"], url_match["rest"])
    scp_like = _SCP_LIKE.fullmatch(url)
    if scp_like is None:
        raise ValueError("it is neither a URL nor of the form user@host:path")
    return _with_host("ssh", scp_like["authority"], scp_like["rest"])


def _with_host(scheme: str, authority: str, rest: str) -> GitUrl:
    found = _HOST_AND_PORT.fullmatch(authority.rpartition("@")[2])
    host = (found["v6"] or found["name"]) if found is not None else ""
    if found is None or not host or (found["v6"] is None and not _NAME.fullmatch(host)):
        raise ValueError("it names no host")
    port = int(found["port"] or _PORTS[scheme])
    if not 1 <= port <= 65_535:
        raise ValueError(f"there is no port {port}")
    return GitUrl(scheme, host, port, rest)


def shown_url(url: str) -> str:
    """The address without what may be secret: user, password, query."""
    match = _URL.fullmatch(url)
    if match is not None:
        host = match["authority"].rpartition("@")[2]
        path = re.split(r"[?#]", match["rest"], maxsplit=1)[0]
        return f"{match['scheme']}://{host}{path}"
    return without_credentials(url).rpartition("@")[2]


def without_credentials(text: str, url: str = "") -> str:
    """A text of git's about ``url``, as it may be shown."""
    if url:
        text = text.replace(url, shown_url(url))
        match = _URL.fullmatch(url) or _SCP_LIKE.fullmatch(url)
        user = match["authority"].rpartition("@")[0] if match is not None else ""
        text = text.replace(f"{user}@", "") if user else text
    return _QUERY.sub(r"\1", _CREDENTIALS.sub("", text))
