"""The default capabilities of an agent."""

from __future__ import annotations

from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.capabilities.compaction import Compaction
from sandstream.sandbox.capabilities.filesystem import Filesystem
from sandstream.sandbox.capabilities.shell import Shell


class Capabilities:
    """Sets of capabilities."""

    @classmethod
    def default(cls) -> list[Capability]:
        """The capabilities of an agent that names none: files, commands, compaction."""
        return [Filesystem(), Shell(), Compaction()]
