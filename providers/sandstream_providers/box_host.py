"""What a vendor implements: boxes come and go, and a connection to the agent in each of them.

:class:`sandstream_providers.agent_provider.AgentProvider` makes a complete provider of a
:class:`BoxHost`. Commands, files and scans come from our own agent in the box
(:mod:`sandstream_providers.box.start` starts it), so a host knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, runtime_checkable

import msgspec

from sandstream_providers.box.link import Streams
from sandstream_providers.git.room import CloneRoom
from sandstream_providers.interface import BoxInfo, BoxSpec, PortAddress, ProviderError
from sandstream_providers.shell.channel import Shell, ShellSettings


class HostedBox(msgspec.Struct, frozen=True, kw_only=True):
    """A running box as its host knows it."""

    key: str
    """The name of the box."""
    root: str
    """The workspace, as commands in the box see it."""
    instance: str
    """Another text each time that the box is started."""
    kind: Literal["agent", "shell"] = "agent"
    """``shell``: no agent runs in the box, which may have no Python; scripts do its work."""
    shell: ShellSettings | None = None
    """What those scripts must know, if ``kind`` is ``shell``."""
    address: str = ""
    """Where the agent listens, in the host's own words."""
    ports: dict[int, tuple[str, int]] = {}
    """Where each declared port of the box can be reached: (host, port)."""
    token: str = ""
    """What the agent wants to see first; empty: the connection itself keeps others out."""
    started_now: bool = False
    """The host has just started the agent, which may need a moment before it answers."""
    roots: list[str] = []
    """Directories besides the root into which a repository may be cloned."""
    vendor_id: str = ""
    """The vendor's own id of the box, if it has one besides the key."""
    silent_s: float | None = None
    """How long a link waits for an answer of the agent before it is given up. None: until the
    connection ends."""


class BoxHost(Protocol):
    """Makes, finds and ends boxes. Every method may be called again after a lost answer.

    Subclasses inherit ``check``, ``pause``, ``resume`` and ``close`` if they need nothing special.
    Vendor errors are raised as errors of :mod:`sandstream_providers.interface`.

    Example:
        class AcmeHost(BoxHost):
            name = "acme"
            powers = frozenset({"pty", "isolated"})

            async def create(self, spec: BoxSpec) -> HostedBox:
                machine = await acme.start(spec.key, files={"agent.pyz": agent_source()})
                return HostedBox(
                    key=spec.key, root=spec.root, instance=machine.id, address=machine.address
                )

            async def get(self, key: str) -> HostedBox | None: ...
            async def stop(self, key: str) -> None: ...
            async def delete(self, key: str) -> None: ...
            async def list(self, owner: str) -> list[BoxInfo]: ...
            async def connect(self, box: HostedBox) -> Streams: ...
    """

    name: str
    """The name in the registry and in subjects: lower-case letters, digits, ``-``."""
    powers: frozenset[str]
    """What its boxes can do; see :attr:`sandstream_providers.interface.Provider.powers`."""

    async def check(self) -> dict[str, str]:
        """Find out whether boxes can be had, and describe them for people.

        Raises:
            ProviderUnavailable: with what to install, to set or to allow.
        """
        return {}

    async def create(self, spec: BoxSpec) -> HostedBox:
        """Make a box and start its agent, or find the box of this key as it is.

        Args:
            spec: The box to make.
        """
        ...

    async def get(self, key: str) -> HostedBox | None:
        """The box, woken or started again on its files if need be. None: there is none.

        Args:
            key: The name of the box.
        """
        ...

    async def stop(self, key: str) -> None:
        """End all processes and keep the files.

        Args:
            key: The name of the box.
        """
        ...

    async def pause(self, key: str) -> None:
        """Freeze all processes. Needs the power ``pause``.

        Args:
            key: The name of the box.
        """
        raise ProviderError(f"boxes of the provider {self.name} cannot be paused")

    async def resume(self, key: str) -> None:
        """Let the processes of a paused box continue. Needs the power ``pause``.

        Args:
            key: The name of the box.
        """
        raise ProviderError(f"boxes of the provider {self.name} cannot be paused")

    async def delete(self, key: str) -> None:
        """End the box and remove all traces. No error if there is none.

        Args:
            key: The name of the box.
        """
        ...

    async def list(self, owner: str) -> list[BoxInfo]:
        """All boxes whose label ``owner`` is this, in any state.

        Args:
            owner: The installation that the boxes belong to.
        """
        ...

    async def connect(self, box: HostedBox) -> Streams:
        """A new connection to the agent in the box.

        Args:
            box: The box, as :meth:`create` or :meth:`get` returned it.

        Raises:
            OSError: if no agent listens (any more).
        """
        ...

    async def close(self) -> None:
        """Release connections and locks of this process. Boxes live on."""
        return


# --- optional powers ------------------------------------------------------------------------------


@runtime_checkable
class StartWatch(Protocol):
    """A host that can tell early that a box did not start."""

    def is_running(self, key: str) -> bool:
        """Whether the first process of the box still runs.

        Args:
            key: The name of the box.
        """
        ...

    def log_tail(self, key: str) -> str:
        """What the box said last, as the end of an error message; empty if it said nothing.

        Args:
            key: The name of the box.
        """
        ...


@runtime_checkable
class LeasedBoxes(Protocol):
    """A host whose boxes end by themselves when no process holds them."""

    def hold(self, key: str) -> None:
        """Hold a box that this process has not used. No error if there is none.

        Args:
            key: The name of the box.
        """
        ...

    def idle(self) -> Iterator[str]:
        """The boxes that this process alone holds and in which nothing runs, found one by one."""
        ...


@runtime_checkable
class CloneRooms(Protocol):
    """A host with a better place for ``git clone`` than a temporary directory of this machine."""

    def clone_room(self, key: str) -> AbstractAsyncContextManager[CloneRoom]:
        """A place for one clone. It is removed when the context ends.

        Args:
            key: The name of the box that the clone is for.
        """
        ...


@runtime_checkable
class Recalling(Protocol):
    """A host that keeps nothing about its boxes: the caller tells what the log says of them."""

    def recall(self, spec: BoxSpec, vendor_id: str) -> None:
        """Note what the log says about a box, before any other call for this box.

        Args:
            spec: The specification with which the box was ordered.
            vendor_id: The vendor's own id of the box; empty if it is not known.
        """
        ...


@runtime_checkable
class KeptAlive(Protocol):
    """A host whose boxes end after a time unless they are kept."""

    keep_alive_s: float
    """How often, for a box that works."""

    async def keep_alive(self, key: str) -> None:
        """Put off the end of a box that works.

        Args:
            key: The name of the box.
        """
        ...


@runtime_checkable
class PaidBoxes(Protocol):
    """A host whose boxes cost money while they run: a program that ends stops its own."""

    def is_awake(self, key: str) -> bool:
        """Whether this process has used the box and has not put it to sleep since.

        Args:
            key: The name of the box.
        """
        ...


@runtime_checkable
class PortAddresses(Protocol):
    """A host whose ports have addresses that it must ask for, such as signed URLs."""

    async def address(self, key: str, port: int) -> PortAddress:
        """Where a port of a box is reached from outside.

        Args:
            key: The name of the box.
            port: A port that the box's specification declares.
        """
        ...


@runtime_checkable
class ShellBoxes(Protocol):
    """A host that can have boxes without our agent: it runs scripts in them."""

    async def open_shell(self, box: HostedBox) -> Shell:
        """A new way to run scripts in a box. The caller closes it.

        Args:
            box: The box, as :meth:`BoxHost.create` or :meth:`BoxHost.get` returned it.
        """
        ...
