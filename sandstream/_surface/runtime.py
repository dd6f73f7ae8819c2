"""The runtime as the SDK's names know it: an interface that the package fills.

Some names also work outside of a run: an agent tool that is called by hand, a session, a sandbox
client, a saved run state. They need the code that runs agents, and that code is built on them. So
they use only the interface in this module. ``sandstream/__init__.py`` installs a loader when the
package is imported; the first use of :func:`runtime` calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandstream_bus.bus import Bus

    from sandstream.agent import Agent
    from sandstream.items import ToolApprovalItem, TResponseInputItem
    from sandstream.result import RunResult, RunResultStreaming
    from sandstream.run_state import RunState
    from sandstream.sandbox.session.link import BusLink


class OwnMemory(Protocol):
    """The memory actor of this process."""

    def want(self) -> None:
        """From now on, make sure that some process works on memories."""

    async def ensure(self) -> None:
        """Start the actor unless another process serves memories."""


class OwnProcess(Protocol):
    """The actors of this process, on the running event loop."""

    @property
    def bus(self) -> Bus: ...

    @property
    def memory(self) -> OwnMemory: ...

    async def sandboxes(
        self, provider: str, isolation: str, endpoint: str = "", api_key: str = ""
    ) -> BusLink:
        """A provider's sandboxes, served by an actor in this process."""
        ...


class SavedRunView(Protocol):
    """A saved run, read from its log."""

    @property
    def interruptions(self) -> list[ToolApprovalItem]: ...

    @property
    def given_input(self) -> str | list[TResponseInputItem]: ...


class Runtime(Protocol):
    """The code that runs agents."""

    async def process(self) -> OwnProcess:
        """The actors of this process, started on first use."""
        ...

    async def run(self, agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        """Run an agent; the options are those of ``Runner.run``."""
        ...

    def run_streamed(self, agent: Agent[Any], input: Any, **options: Any) -> RunResultStreaming: ...

    def view(self, state: RunState[Any, Any]) -> SavedRunView: ...


_load: Callable[[], Runtime] | None = None
_loaded: Runtime | None = None


def install(load: Callable[[], Runtime]) -> None:
    """Say how to load the runtime."""
    global _load, _loaded
    _load, _loaded = load, None


def runtime() -> Runtime:
    """The runtime, loaded on first use."""
    global _loaded
    if _loaded is None:
        assert _load is not None, "importing sandstream installs it"
        _loaded = _load()
    return _loaded
