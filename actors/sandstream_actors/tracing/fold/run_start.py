"""What a run's first event says about all of its trace."""

from __future__ import annotations

from sandstream_bus.codec import NOT_JSON
from sandstream_bus.messages import RunEvent, RunRestored, RunStarted
from sandstream_bus.specs import RunOptions

from sandstream_actors.run_places import past_events
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.reported import attributes_of
from sandstream_actors.tracing.span import Attributes


def start_of(event: RunEvent) -> RunStarted | None:
    """A run's own description, where its first event has one."""
    if isinstance(event, RunStarted):
        return event
    if isinstance(event, RunRestored):
        try:
            return next((it for _, it in past_events(event) if isinstance(it, RunStarted)), None)
        except NOT_JSON:  # the harness parks it; what can be drawn is drawn
            return None
    return None


def metadata_attributes(options: RunOptions) -> Attributes:
    """What the caller notes about the run."""
    noted = attributes_of(options.metadata)
    return {f"{semconv.METADATA}.{name}": value for name, value in noted.items()}
