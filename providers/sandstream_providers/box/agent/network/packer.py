"""Bytes on a slow way: each direction is one deflate stream, flushed after each piece.

A terminal passes 4 KiB at a time, and a vendor's network lies behind it. Files of a workspace are
mostly text.
"""

from __future__ import annotations

import zlib

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from collections.abc import Iterator

LEVEL = 1
MOST = 256 * 1024
"""Bytes that are unpacked at once, however small they were packed."""
_RAW = -15


class Packer:
    """One direction, at its beginning."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(LEVEL, zlib.DEFLATED, _RAW)

    def packed(self, data: bytes) -> bytes:
        """All of the data can be unpacked from what was packed so far."""
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)


class Unpacker:
    """The same direction, at its end."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_RAW)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Unpack bytes. Raises ConnectionResetError if they were changed on their way."""
        try:
            piece = self._stream.decompress(data, MOST)
            while piece:
                yield piece
                piece = self._stream.decompress(self._stream.unconsumed_tail, MOST)
        except zlib.error as error:
            raise ConnectionResetError(f"the bytes have changed on their way: {error}") from None
        if self._stream.eof:
            raise ConnectionResetError("the bytes end on their way")
