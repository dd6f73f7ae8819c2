"""Lets only one set-up at a time change the streams of an installation.

JetStream has no compare-and-set for stream configurations: of two updates based on the same
configuration, the later one would undo the earlier one. The lock is a stream that cannot be created
twice and contains nothing. Its holder updates it every few seconds; a lock that was not updated
for a minute is taken over.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from datetime import datetime
from typing import Any

from sandstream_bus.errors import BusError, TopologyError
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.topology import Topology

logger = logging.getLogger(__name__)

_NAME_IN_USE = 10058
_STALE_S = 60.0
_BEAT_S = 5.0
_LOOK_AGAIN_S = 0.1
_HOLDER = "sandstream.holder"
_BEAT = "sandstream.beat"


class SetupLock:
    """Use it with ``async with``; waits until the lock is free."""

    def __init__(self, connection: Connection, topology: Topology) -> None:
        self._connection = connection
        self._topology = topology
        self._name = f"{topology.subjects.stream_stem}_SETUP"
        self._holder = uuid.uuid4().hex
        self._beating: asyncio.Task[None] | None = None

    async def __aenter__(self) -> SetupLock:
        is_told = False
        while not await self._take():
            if not is_told:
                logger.warning(
                    "waiting for another set-up to end; if it was killed, this takes a minute"
                )
                is_told = True
            await self._remove_stale()
            await asyncio.sleep(_LOOK_AGAIN_S)
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait({self._beating})
        if _holder_of(await self._look()) == self._holder:
            await self._remove()

    async def check(self) -> None:
        """Raise :class:`TopologyError` if this set-up no longer holds the lock. A lost lock cannot
        be taken again: another set-up may have run in between.
        """
        found = await self._look()
        if found is None:
            raise TopologyError(
                "the NATS server was restarted during the set-up, which can no longer tell whether "
                "it is the only one. Run `sandstream setup` again to continue"
            )
        if _holder_of(found) != self._holder:
            raise TopologyError(
                "another set-up has taken over: this one was silent for too long. Run "
                "`sandstream setup` again"
            )

    async def _beat(self) -> None:
        """Renew the lock during a long set-up, with the server's own time."""
        while True:
            await asyncio.sleep(_BEAT_S)
            try:
                found = await self._look()
                if found is None or _holder_of(found) != self._holder:
                    return  # the next check raises
                config = self._config() | {"metadata": {_HOLDER: self._holder, _BEAT: found["ts"]}}
                call = f"STREAM.UPDATE.{self._name}"
                await self._topology.ask(self._connection, call, config)
            except BusError as error:
                logger.debug("the set-up lock could not be renewed", extra={"why": str(error)})

    def _config(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "subjects": self._topology.subjects.matching("setup"),
            "storage": "memory",
            "max_msgs": 1,
            "metadata": {_HOLDER: self._holder},
        }

    async def _take(self) -> bool:
        try:
            call = f"STREAM.CREATE.{self._name}"
            await self._topology.ask(self._connection, call, self._config())
        except TopologyError as error:
            if error.err_code != _NAME_IN_USE:
                raise
            return False
        return True

    async def _look(self) -> dict[str, Any] | None:
        call = f"STREAM.INFO.{self._name}"
        return await self._topology.ask(self._connection, call, {}, missing_ok=True)

    async def _remove_stale(self) -> None:
        found = await self._look()
        if found is None:
            return
        beat = (found["config"].get("metadata") or {}).get(_BEAT, found["created"])
        if (_time(found["ts"]) - _time(beat)).total_seconds() > _STALE_S:
            await self._remove()

    async def _remove(self) -> None:
        call = f"STREAM.DELETE.{self._name}"
        await self._topology.ask(self._connection, call, {}, missing_ok=True)


def _holder_of(info: dict[str, Any] | None) -> str | None:
    return None if info is None else (info["config"].get("metadata") or {}).get(_HOLDER)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
