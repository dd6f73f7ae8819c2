"""A core subscription that outlives the client it was made with."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

logger = logging.getLogger(__name__)

CoreMessage = Msg
"""A message as the transport delivers it: subject, data, headers, reply."""
MessageHandler = Callable[[CoreMessage], None]


class Subscription:
    """A subscription that outlives the nats-py client it was made with."""

    def __init__(
        self,
        subject: str,
        handler: MessageHandler,
        on_close: Callable[[Subscription], None] = lambda _: None,
    ) -> None:
        self._on_close = on_close
        self.subject = subject
        self._handler = handler
        self._inner: Any = None

    async def attach(self, client: NatsClient) -> None:
        self._inner = await client.subscribe(
            self.subject, cb=self._on_message, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def _on_message(self, message: Msg) -> None:
        try:
            self._handler(message)
        except Exception:
            logger.exception("a message handler failed", extra={"subject": message.subject})

    async def close(self) -> None:
        self._on_close(self)
        with contextlib.suppress(Exception):  # the connection may be gone already
            await self._inner.unsubscribe()
