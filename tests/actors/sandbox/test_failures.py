"""Which errors are a call's outcome, and which are faults that are waited out."""

from __future__ import annotations

import pytest
from sandstream_actors.sandbox.failures import failure_of
from sandstream_bus.errors import (
    BusError,
    BusUnavailable,
    LogLost,
    ObjectMissing,
    StoreFull,
    StoreUnwritable,
)


@pytest.mark.parametrize("kind", [BusUnavailable, StoreFull, StoreUnwritable, LogLost])
def test_a_fault_of_the_bus_is_no_outcome(kind: type[BusError]) -> None:
    """The run must not fail because the server was away for a moment."""
    assert failure_of(kind("away"), "open") is None


def test_what_stays_wrong_is_an_outcome() -> None:
    failure = failure_of(ObjectMissing("gone"), "open")
    assert failure is not None
    assert (failure.code, failure.message) == ("bus.object_missing", "gone")
