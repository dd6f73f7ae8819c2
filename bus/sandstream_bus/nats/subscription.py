"""A core subscription that outlives its nats-py client."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

logger = logging.getLogger(__name__)

CoreMessage = Msg
"""A message from the transport: subject, data, headers, reply."""
MessageHandler = Callable[[CoreMessage], None]


def is_inbox(subject: str, prefix: str) -> bool:
    """Is it an inbox: below ``prefix``, below a first token with NATS's own prefix (the sender may
    have its own prefix), or the server's own for a sender in another account?
    """
    tokens = subject.split(".")
    if len(tokens) < 2 or not all(tokens) or _NO_TOKEN.search(subject):
        return False
    first = tokens[0]
    is_usual = first in ("_INBOX", "_R_") or first.startswith("_INBOX_")
    return is_usual or subject.startswith(f"{prefix}.")


_NO_TOKEN = re.compile(r"[*>\s\x00-\x1f\x7f]")


class Subscription:
    """A subscription that outlives its nats-py client."""

    def __init__(
        self,
        subject: str,
        handler: MessageHandler,
        on_close: Callable[[Subscription], None] = lambda _: None,
        note: MessageHandler = lambda _: None,
    ) -> None:
        self._on_close = on_close
        self._note = note
        self.subject = subject
        self._handler = handler
        self._inner: Any = None

    async def attach(self, client: NatsClient) -> None:
        self._inner = await client.subscribe(
            self.subject, cb=self._on_message, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def _on_message(self, message: Msg) -> None:
        try:
            self._note(message)
            self._handler(message)
        except Exception:
            logger.exception("a message handler failed", extra={"subject": message.subject})

    async def close(self) -> None:
        self._on_close(self)
        with contextlib.suppress(Exception):  # the connection may be gone already
            await self._inner.unsubscribe()
