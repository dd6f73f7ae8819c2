"""The marker of a memory in a workspace: a file that travels with the workspace's snapshots.

Any process in the workspace can change it. So it is trusted only in matters of that workspace.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.wire.memories import Tree


class Laid(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The memory as it was last written to the workspace."""

    scope: str
    revision: int
    files: Tree = {}
    """All files of the memory; other files there are not ours."""
    told: dict[str, str] = {}
    """Changed files of the workspace, by the digest of their reported content (empty: deleted).
    They need not be reported again.
    """
    messages: dict[str, int] = {}
    """The same files, by the message that reported them: the memory's history names it."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self, order="sorted") + b"\n"


def parse_marker(data: bytes) -> Laid | None:
    """None: it is not a valid marker."""
    try:
        laid = msgspec.json.decode(data, type=Laid)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return laid if laid.scope and laid.revision >= 0 else None
