"""Which addresses are public, however they are written."""

from __future__ import annotations

import asyncio

import pytest
from sandstream_providers.addresses import first_not_public, kind_of, resolve_host

KINDS = {
    "public": ["8.8.8.8", "140.82.121.4", "2606:50c0:8000::153", "64:ff9b::8.8.8.8"],
    "loopback": ["127.0.0.1", "127.255.0.3", "::1", "64:ff9b::127.0.0.1"],
    "link-local": ["169.254.169.254", "fe80::1", "fe80::1%eth0", "64:ff9b::169.254.169.254"],
    "private": [
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "fc00::1",
        "fd00:ec2::254",
    ],
    "unspecified": ["0.0.0.0", "::"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1"],
}
OTHERS = [
    *("0.1.2.3", "100.64.0.1", "100.127.255.255", "192.0.2.1", "198.18.0.1", "198.51.100.7"),
    *("192.88.99.1", "240.0.0.1", "255.255.255.255", "::ffff:127.0.0.1", "::ffff:8.8.8.8"),
    *("::127.0.0.1", "2002:7f00:1::", "2001:0:7f00:1::", "2001:db8::1", "fec0::1", "100::1"),
    *("64:ff9b:1::1", "3fff::1", "5f00::1", "not an address", ""),
]


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str) -> None:
    assert {address: kind_of(address) for address in KINDS[kind]} == dict.fromkeys(
        KINDS[kind], kind
    )


@pytest.mark.parametrize("address", OTHERS)
def test_what_else_is_not_public(address: str) -> None:
    assert kind_of(address) != "public"


def test_one_private_address_is_enough() -> None:
    assert first_not_public(["8.8.8.8", "10.0.0.1"]) == "private"
    assert first_not_public(["8.8.8.8", "8.8.4.4"]) is None
    assert first_not_public([]) == "unknown"


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "::1"],
)
def test_spellings_of_loopback(host: str) -> None:
    addresses = asyncio.run(resolve_host(host, 80))
    assert first_not_public(addresses) == "loopback", addresses


def test_a_dot_at_the_end_makes_nothing_public() -> None:
    try:
        addresses = asyncio.run(resolve_host("localhost.", 80))
    except OSError:  # where DNS does not know it
        return
    assert first_not_public(addresses) == "loopback"


def test_a_name_that_cannot_be() -> None:
    with pytest.raises(OSError, match="is not the name of a host"):
        asyncio.run(resolve_host("a" * 64, 80))
