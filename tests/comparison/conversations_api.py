"""OpenAI's Conversations API as far as a session uses it, on a port of its own, for both SDKs.

Imported by both interpreters, so it needs nothing but Python.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Conversations:
    """The conversations that were begun, with their items."""

    def __init__(self) -> None:
        self.items: dict[str, list[dict[str, Any]]] = {}
        self.begun = 0

    def answer(self, method: str, target: str, body: dict[str, Any]) -> dict[str, Any]:
        url = urlsplit(target)
        _, _, _, *rest = url.path.split("/")
        if not rest:
            self.begun += 1
            name = f"conv_{self.begun}"
            self.items[name] = []
            return {"id": name, "object": "conversation", "created_at": 0, "metadata": {}}
        if method == "DELETE":
            del self.items[rest[0]]
            return {"id": rest[0], "object": "conversation.deleted", "deleted": True}
        found = self.items[rest[0]]
        if method == "POST":
            new = [{"id": f"item_{len(found) + n}", **it} for n, it in enumerate(body["items"])]
            found += new
            return _page(new)
        order = parse_qs(url.query).get("order", ["desc"])[0]
        return _page(found if order == "asc" else found[::-1])


def _page(items: list[dict[str, Any]]) -> dict[str, Any]:
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {}
    return {"object": "list", "data": items, "has_more": False, **ends}


@asynccontextmanager
async def conversations_api() -> AsyncIterator[tuple[Conversations, str]]:
    """Serves as long as this lasts; the conversations, and the base URL."""
    conversations = Conversations()
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while line := await reader.readline():
                await _answer(conversations, line, reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield conversations, f"http://127.0.0.1:{port}/v1"
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes the connections now


async def _answer(
    conversations: Conversations,
    line: bytes,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    method, target, _ = line.decode().split()
    size = 0
    while (header := (await reader.readline()).decode().strip()) != "":
        name, _, value = header.partition(":")
        size = int(value) if name.lower() == "content-length" else size
    body = json.loads(await reader.readexactly(size)) if size else {}
    data = json.dumps(conversations.answer(method, target, body)).encode()
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
