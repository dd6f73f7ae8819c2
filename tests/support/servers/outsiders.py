"""A server with permissions: actors may do everything, users only what belongs to them. The
permissions are written by hand here, so that tests state what an outside user needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandstream_bus.nats.connect_options import ConnectOptions
from support.nats_server import NatsServer

from sandstream.settings import Settings

LOG = "SANDSTREAM_LOG"


def outsider(name: str, *, publish: tuple[str, ...] = (), reads: bool = True) -> dict[str, Any]:
    """A user who may send requests in their own name, read the log by message, and listen."""
    may = [f"sandstream.ask.{name}.>", *publish]
    if reads:
        may += [f"$JS.API.STREAM.INFO.{LOG}", f"$JS.API.STREAM.MSG.GET.{LOG}"]
    return {
        "user": name,
        "password": "pw",
        "permissions": {
            "publish": {"allow": may},
            "subscribe": {"allow": ["sandstream.live.>", f"_INBOX_{name}.>"]},
        },
    }


def actor() -> dict[str, Any]:
    return {"user": "actor", "password": "pw"}


@contextmanager
def guarded_server(directory: Path, users: list[dict[str, Any]]) -> Iterator[NatsServer]:
    """A server with these users and with streams."""
    config = f"authorization {{ users: {json.dumps([actor(), *users])} }}"
    server = NatsServer(directory, config=config)
    server.start()
    try:
        server.set_up(user="actor", password="pw")
        yield server
    finally:
        server.kill()


def settings_of(server: NatsServer, name: str, user: str | None = None) -> Settings:
    """Settings of a user on that server; ``user``: the name in which they send requests."""
    options = ConnectOptions(
        servers=[server.url], user=name, password="pw", inbox_prefix=f"_INBOX_{name}"
    )
    return Settings(home=Path("/nonexistent"), nats=options, user=user)
