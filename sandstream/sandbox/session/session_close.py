"""What the memories of a workspace hear when a session is closed: it is time to consolidate."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from sandstream_actors.sandbox.record import SandboxRecord
from sandstream_bus.errors import BusError
from sandstream_bus.memory_messages import MergeRequested
from sandstream_bus.subjects import scope_token

from sandstream.exceptions import AgentsException

if TYPE_CHECKING:
    from sandstream.sandbox.session.sandbox_session import SandboxSession

logger = logging.getLogger(__name__)


async def session_closed(session: SandboxSession, record: SandboxRecord) -> None:
    """Have the memories of the workspace consolidated. Nothing waits for that, unless the agent's
    memory was configured so; a problem with it is no problem of the session.
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
            logger.warning("memory %r did not hear of the close: %s", scope, error)
    if session.waits_for_memory:
        await wait_quietly(session)


async def wait_quietly(what: Any) -> None:
    """Wait for a memory on behalf of something that has succeeded without it."""
    from sandstream.sandbox.memory_waiting import wait_for_memory

    try:
        await wait_for_memory(what)
    except (AgentsException, BusError) as error:
        logger.warning("the memory is not complete: %s", error)
