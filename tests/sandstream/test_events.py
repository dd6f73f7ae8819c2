"""`sandstream.events` is where users import events from."""

from __future__ import annotations

from typing import Any, get_args

from sandstream_bus.wire.messages import RunEvent

from sandstream import Actor, events


def test_every_event_that_an_actor_can_handle_is_public() -> None:
    kinds: tuple[type[Any], ...] = get_args(RunEvent)
    assert len(kinds) > 10
    for kind in kinds:
        assert getattr(events, kind.__name__, None) is kind, kind.__name__
        Actor("every").on(kind)
