"""Putting together what the agent sends in pieces."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from sandstream_providers.box.link import OnEvent
from sandstream_providers.interface import Entry, OnOutput, Output, ScanItem

MakeRequest = Callable[[], dict[str, Any]]


class Ask(Protocol):
    def __call__(
        self, request: dict[str, Any], payload: bytes = b"", on_event: OnEvent | None = None
    ) -> Awaitable[tuple[Any, bytes]]: ...


def entry(row: list[Any]) -> Entry:
    path, kind, mode, size, digest, target, mtime_ns, uid, gid = row
    return Entry(
        path=path,
        kind=kind,
        mode=mode,
        size=size,
        digest=digest,
        target=target,
        mtime_ns=mtime_ns,
        uid=uid,
        gid=gid,
    )


class Collected:
    """What came of a command's output while its answer is awaited."""

    def __init__(self, on_output: OnOutput | None) -> None:
        self._on_output = on_output
        self._seen = {"stdout": 0, "stderr": 0}
        self._parts: dict[str, list[bytes]] = {}

    def beginning(self) -> dict[str, Any]:
        """For a request, also one that is asked again: from where to send output."""
        self._parts = {"stdout": [], "stderr": []}
        return {} if self._on_output is None else {"events_from": [*self._seen.values()]}

    def take(self, header: dict[str, Any], data: bytes) -> None:
        event = header["event"]
        if event == "part":
            self._parts[header["stream"]].append(data)
        elif self._on_output is not None:
            self._seen[event] = header["offset"] + len(data)
            self._on_output(event, header["offset"], data)

    def output(self, facts: dict[str, Any], data: bytes) -> Output:
        size = facts["sizes"][0]
        return Output(
            state=facts["state"],
            session=facts["session"],
            stdout=b"".join(self._parts["stdout"]) or data[:size],
            stderr=b"".join(self._parts["stderr"]) or data[size:],
            exit_code=facts["exit_code"],
            killed=facts["killed"],
            dropped=facts["dropped"],
        )


async def scan_items(
    ask: Ask, request: dict[str, Any], received: Callable[[str], None]
) -> AsyncIterator[ScanItem]:
    """Batch by batch. When all were taken the agent is told, and counts from there: ``received``
    gets the name of that point.
    """
    facts, _ = await ask(request)
    number = facts["scan"]

    def batch(index: int) -> asyncio.Future[tuple[Any, bytes]]:
        return asyncio.ensure_future(ask({"do": "scan_next", "scan": number, "index": index}))

    coming = batch(0)
    try:
        for index in itertools.count(1):
            rows, data = await coming
            if not rows:
                break
            coming = batch(index)  # the agent reads on while these are taken
            start = 0
            for *row, removed, size in rows:
                content = None
                if size >= 0:
                    content = data[start : start + size]
                    start += size
                yield ScanItem(entry=entry(row), removed=removed, data=content)
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
    facts, _ = await ask({"do": "scan_done", "scan": number})
    received(facts["token"])
