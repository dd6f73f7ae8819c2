"""What a hosted vendor must be able to do. One adapter per vendor implements it with its SDK.

Adapters hold no state of their own that matters: any process with the same key can serve any box.
Every method ends within its deadline and raises only errors of :mod:`.errors` and of
:mod:`sandstream_providers.interface`.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from sandstream_providers.interface import BoxSpec
from sandstream_providers.interface import PortAddress as PortAddress

PREFIX = "sandstream."
"""The names of our labels (Daytona) and metadata (E2B) begin with it."""
KEY, OWNER = f"{PREFIX}key", f"{PREFIX}owner"
"""By these labels we find our boxes. The others of a specification go with them."""


class VendorBox(msgspec.Struct, frozen=True, kw_only=True):
    """A box as the vendor describes it."""

    id: str
    """The vendor's own id."""
    name: str = ""
    state: Literal["running", "starting", "paused", "stopped", "failed"]
    """``starting`` covers every state that ends by itself soon; ``failed`` cannot be repaired."""
    labels: dict[str, str] = {}
    created_at: float = 0.0
    """Seconds since the epoch."""
    reason: str = ""
    """Why it failed."""


class Terminal(Protocol):
    """A shell of the box on a terminal, over one connection: bytes both ways."""

    async def send(self, data: bytes) -> None:
        """Raises OSError if the connection is gone."""
        ...

    async def receive(self) -> bytes:
        """The next bytes; empty when the connection or the shell has ended."""
        ...

    async def close(self) -> None:
        """End the shell and the connection. Never raises for one that has ended."""
        ...


class Vendor(Protocol):
    """One account at a vendor."""

    name: str
    """The provider's name in the registry."""
    label: str
    """The vendor's name for people: ``Daytona``, ``E2B``."""
    powers: frozenset[str]
    keep_s: float
    """How often a box that works must be kept alive."""

    def check_options(self, spec: BoxSpec) -> None:
        """Raise ProviderError for an option that the vendor does not have, or of a wrong type."""
        ...

    async def check(self) -> dict[str, str]:
        """Ask something cheap that needs the key. Raises VendorRefused with what to set."""
        ...

    async def create(self, spec: BoxSpec) -> VendorBox:
        """Make a box with the labels above; return when it runs, or when it takes longer than the
        create time-out allows (then its state is ``starting``).

        Raises:
            NameTaken: a box of that name exists.
            VendorSilent: whether it was made is unknown.
        """
        ...

    async def find(self, spec: BoxSpec) -> VendorBox | None:
        """The box of this specification, by its name or key. If an engine that ignores our key made
        several, the oldest; the others are removed.
        """
        ...

    async def look(self, box_id: str) -> VendorBox | None:
        """The box as it is now. None: the vendor is sure that there is none."""
        ...

    async def wake(self, box_id: str) -> None:
        """Start or resume it. Returns when it runs."""
        ...

    async def pause(self, box_id: str) -> None:
        """Freeze it with its memory. Raises CannotPause where the vendor cannot."""
        ...

    async def stop(self, box_id: str) -> None:
        """End its processes, keep its files."""
        ...

    async def delete(self, box_id: str) -> None:
        """Remove it. No error if there is none."""
        ...

    async def list(self, owner: str) -> list[VendorBox]:
        """All boxes with this owner, in any state. The vendor's index may lag."""
        ...

    async def keep(self, box_id: str) -> None:
        """Put off the end that the vendor has set for boxes without activity."""
        ...

    async def execute(
        self, box_id: str, command: str, *, timeout_s: float, as_root: bool = False
    ) -> str:
        """Run a short command with ``/bin/sh`` and return what it wrote to standard output.
        ``as_root``: as root, if the vendor has a way to do that; else as the box's user.

        ``command`` is a line of printable ASCII below 100 kB, and its output is ASCII text too.
        Raises NoSuchBox, BoxAsleep, VendorSilent (it may or may not have run).
        """
        ...

    async def terminal(self, box_id: str, *, as_root: bool = False) -> Terminal:
        """A new terminal with the login shell of the box's user, or of root as in :meth:`execute`.
        Raises like that.
        """
        ...

    async def address(self, box_id: str, port: int, options: dict[str, object]) -> PortAddress:
        """A URL, usually signed and with an end, for a port of the box."""
        ...

    async def make_root(self, box_id: str, root: str, owner: str) -> None:
        """Make the workspace's directory with rights that the box's user lacks, and give it to
        ``owner`` (``uid:gid``). Raises NoRoot where the vendor has no such way.
        """
        ...

    async def close(self) -> None: ...
