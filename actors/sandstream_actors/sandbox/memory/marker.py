"""What a workspace says of the memory that was laid out in it: it travels with its snapshots.

It is a file of the workspace, so whoever works there can change it. It is believed only in what
concerns that workspace.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.wire.memories import Tree


class Laid(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The memory as it was laid out last."""

    scope: str
    revision: int
    files: Tree = {}
    """All of it; what is there besides them is not ours."""
    told: dict[str, str] = {}
    """Files that were changed in the workspace, by the digest of their content (empty: deleted)
    when that was told. Nobody needs to be told again.
    """
    messages: dict[str, int] = {}
    """The same files, by the message that told of them: the memory's history names it."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self, order="sorted") + b"\n"


def parse_marker(data: bytes) -> Laid | None:
    """None: it is no marker, or somebody destroyed it."""
    try:
        laid = msgspec.json.decode(data, type=Laid)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return laid if laid.scope and laid.revision >= 0 else None
