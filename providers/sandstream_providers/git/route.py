"""How git comes to a repository: freely, or to public hosts only.

``public_only`` holds for every address that git meets. For ``http`` and ``https`` it goes through a
gate that checks each connection. For ``ssh`` and ``git``, which never send it elsewhere, it gets
the checked address instead of the name.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import AsyncIterator

import msgspec

from sandstream_providers.addresses import Resolve
from sandstream_providers.git.gate import Forbidden, Gate, open_gate
from sandstream_providers.git_urls import GitUrl, parse_git_url, shown_url
from sandstream_providers.interface import GitFailed

_SSH = "ssh -o BatchMode=yes"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """What git is given."""

    url: str
    protocols: str = "http:https:git:ssh"
    config: dict[str, str] = {}
    ssh: str = _SSH
    gate: Gate | None = None

    def refusal(self) -> GitFailed | None:
        """If git failed because it was not let through."""
        if self.gate is None or self.gate.forbidden is None:
            return None
        return _not_public(self.url, self.gate.forbidden)


@contextlib.asynccontextmanager
async def route_to(url: str, *, public_only: bool, resolve: Resolve) -> AsyncIterator[Route]:
    """Raises :class:`GitFailed` for an address that cannot be or must not be fetched from."""
    if url.startswith("file:"):
        yield Route(url=url, protocols="file")
        return
    if not public_only:
        yield Route(url=url)
        return
    try:
        parts = parse_git_url(url)
    except ValueError as error:
        shown = shown_url(url)
        message = f"{shown!r} is not the address of a repository: {error}"
        raise GitFailed(message, reason="clone", url=shown) from None
    async with open_gate(resolve) as (gate, proxy):
        if parts.scheme in ("http", "https"):
            yield Route(url=url, protocols="http:https", config={"http.proxy": proxy}, gate=gate)
            return
        try:
            address = (await gate.public_addresses(parts.host, parts.port))[0]
        except Forbidden as error:
            raise _not_public(url, error) from None
        except OSError as error:
            shown = shown_url(url)
            raise GitFailed(f"cannot clone {shown}: {error}", reason="clone", url=shown) from error
        yield _pinned(url, parts, address, gate)


def _pinned(url: str, parts: GitUrl, address: str, gate: Gate) -> Route:
    if parts.scheme == "git":
        host = f"[{address}]" if ":" in address else address
        url = f"git://{host}:{parts.port}{parts.path}"
        return Route(url=url, protocols="git", gate=gate)
    options = [f"Hostname={address}", f"HostKeyAlias={parts.host}", "ProxyCommand=none"]
    ssh = f"{_SSH} -F none " + " ".join(f"-o {shlex.quote(option)}" for option in options)
    return Route(url=url, protocols="ssh", ssh=ssh, gate=gate)


def _not_public(url: str, error: Forbidden) -> GitFailed:
    shown = shown_url(url)
    message = f"{shown} leads to {error.host}, which has a {error.kind} address"
    return GitFailed(message, reason="private", url=shown, host=error.host, kind=error.kind)
