"""Requests the consolidation of a workspace's memories when a session closes."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_bus.errors import BusError
from sandstream_bus.wire.memories import MergeRequested
from sandstream_bus.wire.subjects import scope_token

from sandstream.exceptions import AgentsException

if TYPE_CHECKING:
    from sandstream.sandbox.session.sandbox_session import SandboxSession

logger = logging.getLogger(__name__)


async def session_closed(session: SandboxSession, record: SandboxRecord) -> None:
    """Request the consolidation of the workspace's memories. The session waits for it only if the
    agent's memory is configured so. Problems with it do not fail the session.
    """
    bus = await session.remote.link.bus()
    for scope in record.memories:
        try:
            await bus.memories.send(
                bus.subjects.memory_merge(scope),
                MergeRequested(reason="closed"),
                msg_id=f"{scope_token(scope)}:closed:{uuid.uuid4().hex}",
            )
        except BusError as error:
            logger.warning("memory %r was not told of the close: %s", scope, error)
    if session.waits_for_memory:
        await wait_quietly(session)


async def wait_quietly(what: Any) -> None:
    """Wait for a memory; failures are only logged, because the work itself has succeeded."""
    from sandstream.sandbox._memory.freshness import wait_for_memory

    try:
        await wait_for_memory(what)
    except (AgentsException, BusError) as error:
        logger.warning("the memory is not complete: %s", error)
