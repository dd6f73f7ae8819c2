"""What a run's first event says about its whole trace."""

from __future__ import annotations

from sandstream_bus.errors import MessageError
from sandstream_bus.wire.messages import RunEvent, RunRestored, RunStarted
from sandstream_bus.wire.specs import RunOptions

from sandstream_actors.run.places import past_events
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.reported import attributes_of
from sandstream_actors.tracing.span import Attributes


def start_of(event: RunEvent) -> RunStarted | None:
    """The run's description, if its first event has one."""
    if isinstance(event, RunStarted):
        return event
    if isinstance(event, RunRestored):
        try:
            return next((it for _, it in past_events(event) if isinstance(it, RunStarted)), None)
        except MessageError:  # the harness parks it; the trace shows what it can
            return None
    return None


def metadata_attributes(options: RunOptions) -> Attributes:
    """The metadata that the caller attached to the run."""
    noted = attributes_of(options.metadata)
    return {f"{semconv.METADATA}.{name}": value for name, value in noted.items()}
