"""What a session is: the history of a conversation that a run reads before and appends to after.

Any object with these methods will do. One whose methods all have a ``wrapper`` parameter also gets
the run's context.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from sandstream.items import TResponseInputItem

if TYPE_CHECKING:
    from sandstream.memory.session_settings import SessionSettings
    from sandstream.run_context import RunContextWrapper

SessionInputCallback = Callable[
    [list[TResponseInputItem], list[TResponseInputItem]],
    list[TResponseInputItem] | Awaitable[list[TResponseInputItem]],
]
"""Gets the history and the new input, returns what the model is to see."""

_OPERATIONS = ("get_items", "add_items", "pop_item", "clear_session")


@runtime_checkable
class Session(Protocol):
    """The history of one conversation."""

    session_id: str
    session_settings: SessionSettings | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The latest ``limit`` items, oldest first; None: all."""
        ...

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items."""
        ...

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it; None if there is none."""
        ...

    async def clear_session(self) -> None:
        """Forget all items."""
        ...


class SessionABC(ABC):
    """Base of the sessions here. Others need only fit the :class:`Session` protocol."""

    session_id: str
    session_settings: SessionSettings | None = None

    @abstractmethod
    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The latest ``limit`` items, oldest first; None: all, or as the settings say."""

    @abstractmethod
    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items."""

    @abstractmethod
    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it; None if there is none."""

    @abstractmethod
    async def clear_session(self) -> None:
        """Forget all items."""


async def call_session(
    session: Any,
    operation: str,
    *args: Any,
    wrapper: RunContextWrapper[Any] | None = None,
    **options: Any,
) -> Any:
    """Call one of a session's operations, with the run's context if all of them take it.

    A session of the user's may have plain methods too.
    """
    if wrapper is not None and takes_wrapper(session):
        options["wrapper"] = wrapper
    result = getattr(session, operation)(*args, **options)
    return await result if inspect.isawaitable(result) else result


def takes_wrapper(session: Any) -> bool:
    """Have all operations of the session a ``wrapper`` parameter?"""
    return all(_has_wrapper(getattr(session, name, None)) for name in _OPERATIONS)


def _has_wrapper(method: Any) -> bool:
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):  # not callable, or it does not say
        return False
    found = parameters.get("wrapper")
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return found is not None and found.kind in by_name
