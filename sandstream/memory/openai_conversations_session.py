"""A session that OpenAI's Conversations API stores.

The client's low-level calls use plain JSON in both directions; this module names no vendor type.
The caller gets the vendor's own exceptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from sandstream_actors.model.plain_client import plain_client
from sandstream_actors.model.vendor_types import plain

from sandstream.items import TResponseInputItem
from sandstream.memory.session import SessionABC
from sandstream.memory.session_settings import SessionSettings, resolve_session_limit
from sandstream.models.defaults import current_defaults

T = TypeVar("T")
_ITEMS_PER_REQUEST = 20
"""The API's maximum per request."""


async def start_openai_conversations_session(openai_client: Any | None = None) -> str:
    """Begin a conversation; return its id."""
    client = openai_client or _default_client()
    answer: dict[str, Any] = await client.post("/conversations", cast_to=object, body={"items": []})
    return str(answer["id"])


class OpenAIConversationsSession(SessionABC):
    """A conversation that OpenAI stores. Operations on one object run one after the other.

    Args:
        conversation_id: An existing conversation; ``None`` creates one on first use.
        openai_client: An ``AsyncOpenAI``; ``None`` is the default client. The caller closes it.
        session_settings: Settings such as how many items a run reads.

    Example:
        session = OpenAIConversationsSession()
        result = await Runner.run(agent, "How is the weather?", session=session)
    """

    def __init__(
        self,
        *,
        conversation_id: str | None = None,
        openai_client: Any | None = None,
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
    ) -> None:
        self._session_id = conversation_id
        self._was_cleared = False
        self._given_client = openai_client
        self._own_client: Any | None = None
        self.session_settings: SessionSettings | None = SessionSettings.coerce(session_settings)
        self._lock = asyncio.Lock()

    @property
    def session_id(self) -> str:
        """The conversation's id; ValueError before it has one."""
        if self._session_id is None:
            raise ValueError(
                "the conversation has no id yet: it gets one with the first get_items(), "
                "add_items() or pop_item()"
            )
        return self._session_id

    @session_id.setter
    def session_id(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, value: str
    ) -> None:
        self._session_id = value

    def continue_with(self, conversation_id: str) -> None:
        """Take the conversation that a run has begun, unless this session has, or had, another.

        Args:
            conversation_id: The conversation at the provider.
        """
        if self._session_id is None and not self._was_cleared:
            self._session_id = conversation_id

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Read the history.

        Args:
            limit: Read only so many of the latest items; ``None`` reads as many as the settings
                say, or all.

        Returns:
            The items, oldest first.
        """
        async with self._lock:
            return await self._read(resolve_session_limit(limit, self.session_settings))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, 20 in a request.

        If there are more than 20 items, a failure may leave the first ones stored. The client does
        not repeat such requests, because it could add items twice.

        Args:
            items: The items, oldest first.
        """
        if not items:
            return
        parts = [
            [plain(item) for item in items[at : at + _ITEMS_PER_REQUEST]]
            for at in range(0, len(items), _ITEMS_PER_REQUEST)
        ]
        async with self._lock:
            path = f"{await self._path()}/items"
            if len(parts) == 1:
                await self._client.post(path, cast_to=object, body={"items": parts[0]})
                return
            for part in parts:
                await asyncio.sleep(0)  # lets a cancellation happen between two requests
                await _to_its_end(
                    self._client.post(
                        path, cast_to=object, body={"items": part}, options={"max_retries": 0}
                    )
                )

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it."""
        async with self._lock:
            items = await self._read(1)
            if not items:
                return None
            item_id = quote(str(items[0]["id"]), safe="")
            await self._client.delete(f"{await self._path()}/items/{item_id}", cast_to=object)
            return items[0]

    async def clear_session(self) -> None:
        """Delete the conversation; the next call that needs one begins another."""
        async with self._lock:
            if self._session_id is not None:
                await _to_its_end(self._delete(await self._path()))

    async def _delete(self, path: str) -> None:
        await self._client.delete(path, cast_to=object)
        self._session_id = None
        self._was_cleared = True

    async def _begin(self) -> None:
        self._session_id = await start_openai_conversations_session(self._client)

    async def close(self) -> None:
        """Close the connections, unless the client was given."""
        client, self._own_client = self._own_client, None
        if client is not None:
            await client.close()

    @property
    def _client(self) -> Any:
        if self._given_client is not None:
            return self._given_client
        default = current_defaults().client
        if default is not None:
            return default
        if self._own_client is None:
            self._own_client = _default_client()
        return self._own_client

    async def _path(self) -> str:
        if self._session_id is None:
            await _to_its_end(self._begin())
        assert self._session_id is not None
        return f"/conversations/{quote(self._session_id, safe='')}"

    async def _read(self, limit: int | None) -> list[TResponseInputItem]:
        """Read the items; with a limit from the newest on, to read as few pages as possible."""
        path = f"{await self._path()}/items"
        is_cut = limit is not None and limit >= 0
        if limit == 0:
            return []
        params = {"order": "desc" if is_cut else "asc"}
        found: list[TResponseInputItem] = []
        while True:
            page: dict[str, Any] = await self._client.get(
                path, cast_to=object, options={"params": params}
            )
            found.extend(page.get("data") or [])
            if is_cut and len(found) >= (limit or 0):
                return found[:limit][::-1]
            if page.get("has_more") is False or not page.get("last_id") or not page.get("data"):
                return found[::-1] if is_cut else found
            params = params | {"after": page["last_id"]}


def _default_client() -> Any:
    defaults = current_defaults()
    return defaults.client if defaults.client is not None else plain_client(defaults.key)


async def _to_its_end(change: Awaitable[T]) -> T:
    """Wait for the outcome of a change even if cancelled; then raise the cancellation."""
    task = asyncio.ensure_future(change)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved: the caller gets the cancellation instead
        raise cancelled
    return task.result()
