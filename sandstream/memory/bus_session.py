"""A session whose conversation is a log on the bus, for deployed agents.

It keeps no state in this process; all processes of the installation see the same conversation.
While a run uses the conversation, only that run adds to it: the other operations here raise
:class:`~sandstream_bus.logs.conversations.ConversationBusy` until the run has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from sandstream_actors.model.vendor_types import plain
from sandstream_bus.logs.conversations import Conversations
from sandstream_bus.wire.conversations import JoinPolicy
from sandstream_bus.wire.error_text import error_text
from sandstream_bus.wire.subjects import session_token

from sandstream._surface.runtime import runtime
from sandstream.exceptions import UserError
from sandstream.items import TResponseInputItem
from sandstream.memory.session import SessionABC
from sandstream.memory.session_settings import SessionSettings, latest, resolve_session_limit

if TYPE_CHECKING:
    from sandstream_bus.bus import Bus

_BY = "session"


class BusSession(SessionABC):
    """A conversation on the bus.

    Args:
        session_id: The name of the conversation.
        busy: What happens to a run while another run has the conversation: it waits for its turn
            (``queue``), or it is refused (``refuse``).
        session_settings: Settings such as how many items a run reads.
        bus: The bus; ``None`` is that of this process.

    Raises:
        UserError: ``session_id`` or ``busy`` makes no sense.

    Example:
        result = await Runner.run(agent, "And tomorrow?", session=BusSession("weather-talk"))
    """

    def __init__(
        self,
        session_id: str,
        *,
        busy: JoinPolicy = "queue",
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
        bus: Bus | None = None,
    ) -> None:
        if busy not in ("queue", "refuse"):
            raise UserError(f"busy must be 'queue' or 'refuse'; it is {busy!r}")
        session_token(session_id)  # refuse a bad id here rather than in the middle of a run
        self.session_id = session_id
        self.busy: JoinPolicy = busy
        self.session_settings: SessionSettings | None = SessionSettings.coerce(session_settings)
        self._bus = bus

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Read the history.

        Args:
            limit: Read only so many of the latest items; ``None`` reads as many as the settings
                say, or all.

        Returns:
            The items, oldest first.
        """
        wanted = resolve_session_limit(limit, self.session_settings)
        conversation = await (await self._conversations()).read(self.session_id)
        return [_decoded(item) for item in latest(conversation.history, wanted)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none.

        Args:
            items: The items, oldest first.

        Raises:
            UserError: An item is not JSON.
        """
        if not items:
            return
        encoded = [_encoded(number, item) for number, item in enumerate(items)]
        await (await self._conversations()).add(self.session_id, encoded, by=_BY)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it."""
        popped = await (await self._conversations()).pop(self.session_id, by=_BY)
        return None if popped is None else _decoded(popped)

    async def clear_session(self) -> None:
        """Remove all items."""
        await (await self._conversations()).clear(self.session_id, by=_BY)

    async def _conversations(self) -> Conversations:
        if self._bus is not None:
            return self._bus.conversations
        return (await runtime().process()).bus.conversations


def _encoded(number: int, item: TResponseInputItem) -> Raw:
    try:
        return Raw(msgspec.json.encode(plain(item)))
    except (TypeError, ValueError) as error:
        raise UserError(f"item {number} must be JSON to be stored: {error_text(error)}") from None


def _decoded(item: Raw) -> TResponseInputItem:
    value: TResponseInputItem = msgspec.json.decode(item)
    return value
