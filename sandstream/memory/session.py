"""The interface of a session: the history of a conversation, which a run reads first and then
appends to.

Any object with these methods works. If all of its methods have a ``wrapper`` parameter, it also
gets the run's context.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from sandstream.items import TResponseInputItem

if TYPE_CHECKING:
    from sandstream_bus.wire.specs import SessionUse

    from sandstream.memory.session_settings import SessionSettings
    from sandstream.run_context import RunContextWrapper

SessionInputCallback = Callable[
    [list[TResponseInputItem], list[TResponseInputItem]],
    list[TResponseInputItem] | Awaitable[list[TResponseInputItem]],
]
"""Gets the history and the new input; returns the input for the model."""

_OPERATIONS = ("get_items", "add_items", "pop_item", "clear_session")


@runtime_checkable
class Session(Protocol):
    """The history of one conversation. Any object with these methods is a session."""

    session_id: str
    session_settings: SessionSettings | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Read the history.

        Args:
            limit: Read only so many of the latest items; ``None`` reads all.

        Returns:
            The items, oldest first.
        """
        ...

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items.

        Args:
            items: The items, oldest first.
        """
        ...

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it; None if there is none."""
        ...

    async def clear_session(self) -> None:
        """Forget all items."""
        ...


class SessionABC(ABC):
    """Base of the sessions here. Others need only fit the :class:`Session` protocol.

    Example:
        class InMemory(SessionABC):
            def __init__(self, session_id: str) -> None:
                self.session_id = session_id
                self._items: list[TResponseInputItem] = []

            async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
                return self._items if limit is None else self._items[-limit:]

            async def add_items(self, items: list[TResponseInputItem]) -> None:
                self._items += items

            async def pop_item(self) -> TResponseInputItem | None:
                return self._items.pop() if self._items else None

            async def clear_session(self) -> None:
                self._items = []


        result = await Runner.run(agent, "Hello again!", session=InMemory("ann"))
    """

    session_id: str
    session_settings: SessionSettings | None = None

    @abstractmethod
    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Read the history.

        Args:
            limit: Read only so many of the latest items; ``None`` reads as many as the settings
                say, or all.

        Returns:
            The items, oldest first.
        """

    @abstractmethod
    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items.

        Args:
            items: The items, oldest first.
        """

    @abstractmethod
    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it; None if there is none."""

    @abstractmethod
    async def clear_session(self) -> None:
        """Forget all items."""


def known_id(session: Any) -> str:
    """The session's id; empty before it has one. A provider's session gets it on first use."""
    try:
        return str(getattr(session, "session_id", "") or "")
    except ValueError:
        return ""


def tell_id(session: Any, use: SessionUse | None) -> None:
    """Tell a session the id from the run's log, if the run created the conversation."""
    take = getattr(session, "continue_with", None)
    if use is not None and use.kind == "host" and use.id and callable(take):
        take(use.id)


async def call_session(
    session: Any,
    operation: str,
    *args: Any,
    wrapper: RunContextWrapper[Any] | None = None,
    **options: Any,
) -> Any:
    """Call one of a session's operations, with the run's context if all of them accept it.

    The user's own session may also have synchronous methods.
    """
    if wrapper is not None and takes_wrapper(session):
        options["wrapper"] = wrapper
    result = getattr(session, operation)(*args, **options)
    return await result if inspect.isawaitable(result) else result


def takes_wrapper(session: Any) -> bool:
    """Do all operations of the session have a ``wrapper`` parameter?"""
    return all(_has_wrapper(getattr(session, name, None)) for name in _OPERATIONS)


def _has_wrapper(method: Any) -> bool:
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):  # not callable, or without a signature
        return False
    found = parameters.get("wrapper")
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return found is not None and found.kind in by_name
