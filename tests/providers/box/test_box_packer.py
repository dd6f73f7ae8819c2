"""What goes over a terminal is packed: whole after each piece, and bounded when it is unpacked."""

from __future__ import annotations

import os
import tracemalloc

import pytest
from sandstream_providers.box.agent.network.packer import MOST, Packer, Unpacker


def unpacked(unpacker: Unpacker, data: bytes) -> bytes:
    return b"".join(unpacker.pieces(data))


def test_each_piece_is_whole_at_once() -> None:
    packer, unpacker = Packer(), Unpacker()
    for piece in (b"a", b"", b"text " * 100_000, os.urandom(700_000), b"\0" * MOST, b"end"):
        assert unpacked(unpacker, packer.packed(piece)) == piece


def test_pieces_may_be_cut_anywhere() -> None:
    content = b"one line of many\n" * 1000
    packed, unpacker = Packer().packed(content), Unpacker()
    found = b"".join(unpacked(unpacker, packed[at : at + 7]) for at in range(0, len(packed), 7))
    assert found == content


def test_text_becomes_smaller_and_noise_hardly_larger() -> None:
    noise = os.urandom(100_000)
    assert len(Packer().packed(b"def main() -> None:\n    pass\n" * 5_000)) < 5_000
    assert len(Packer().packed(noise)) < 100_200


def test_a_box_cannot_fill_our_memory_with_a_small_message() -> None:
    bomb, unpacker = Packer().packed(bytes(200 * 1024 * 1024)), Unpacker()
    tracemalloc.start()
    try:
        assert sum(map(len, unpacker.pieces(bomb))) == 200 * 1024 * 1024
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 16 * MOST


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff\xff", b"\x03\x00", b"\x03\x00 and a message of another program"]
)
def test_bytes_that_were_not_packed_end_the_connection(data: bytes) -> None:
    with pytest.raises(ConnectionResetError):
        unpacked(Unpacker(), data)
