"""Fixtures that many tests share."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nats_server import NatsServer


def pytest_configure() -> None:
    """Whoever starts the tests in the background of a script ignores Ctrl-C, and all processes of
    the tests would inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What the imports made is no garbage of a test: looking for that need not go through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A fresh server with its store below ``tmp_path``."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    try:
        yield server
    finally:
        server.kill()
        gc.collect()  # what a test left open is a warning of that test, not of a later one
