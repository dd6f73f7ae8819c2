"""Archives that carry the parts of a request into a box: its ``tar`` unpacks them."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable

BLOCK = 512
END = bytes(2 * BLOCK)
DIRECTORY = tarfile.DIRTYPE
LINK = tarfile.SYMTYPE


class Archive:
    """Members in the order in which they were added."""

    def __init__(self, files: Iterable[tuple[str, bytes]] = ()) -> None:
        self._parts: list[bytes] = []
        for name, data in files:
            self.add(name, data)

    def add(
        self,
        name: str,
        data: bytes = b"",
        *,
        mode: int = 0o600,
        kind: bytes = tarfile.REGTYPE,
        target: str = "",
    ) -> None:
        """Names and targets may hold surrogate escapes."""
        member = tarfile.TarInfo(name)
        member.type = kind
        member.mode = mode
        member.size = len(data)
        member.linkname = target
        self._parts += [
            member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"),
            data,
            bytes(-len(data) % BLOCK),
        ]

    def bytes(self) -> bytes:
        return b"".join([*self._parts, END])
