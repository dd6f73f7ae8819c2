"""Which addresses are public, so that an untrusted task may make this machine connect to them.

An address is public if every machine on the Internet can reach it. All others lead to this machine
or into its network: loopback services, a cloud's metadata, a neighbour.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host, as text. Raises OSError if it has none."""

_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 addresses as seen by machines with IPv6 only: the last 32 bits are the IPv4 address."""
_SPECIAL_V6 = [
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocols, among them Teredo, which carries IPv4 addresses
        "2001:db8::/32",
        "2002::/16",  # 6to4, which carries IPv4 addresses
        "3fff::/20",
    )
]
_RELAYS_V4 = ipaddress.IPv4Network("192.88.99.0/24")


async def resolve_host(host: str, port: int) -> list[str]:
    """By the system's resolver, which also reads the odd spellings of addresses (``0x7f.1``)."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # no name that DNS could know
        raise OSError(f"{host!r} is not the name of a host") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def kind_of(address: str) -> str:
    """``public``, or the kind of private address."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if known in _TRANSLATED:
        return kind_of(str(ipaddress.IPv4Address(int(known) & 0xFFFF_FFFF)))
    for kind in ("unspecified", "loopback", "link_local", "multicast"):
        if getattr(known, f"is_{kind}"):
            return kind.replace("_", "-")
    if _is_public(known):
        return "public"
    return "private" if known.is_private and not known.is_reserved else "reserved"


def _is_public(known: Address) -> bool:
    if isinstance(known, ipaddress.IPv4Address):
        return known.is_global and not known.is_reserved and known not in _RELAYS_V4
    return known in _GLOBAL_V6 and not any(known in network for network in _SPECIAL_V6)


def first_not_public(addresses: list[str]) -> str | None:
    """The kind of the first address that is not public. A host with one such address is refused:
    the program that connects to it chooses among them.
    """
    if not addresses:
        return "unknown"
    return next((kind for it in addresses if (kind := kind_of(it)) != "public"), None)
