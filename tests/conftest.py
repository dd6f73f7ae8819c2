"""Fixtures that many tests share."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import engine
from support.nats_server import NatsServer
from support.quick import QuickTests


def pytest_configure(config: pytest.Config) -> None:
    """Restore Ctrl-C: a script that starts the tests in its background ignores it, and all
    processes of the tests would inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(QuickTests())
    gc.disable()  # collecting the tests makes no garbage worth looking for


def pytest_unconfigure() -> None:
    """The last process that needed the Docker engine of the tests takes it down."""
    engine.release()


def pytest_collection_finish() -> None:
    """Objects that the imports made are no garbage of a test: keep the collector away from them."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Restore the level of the root logger: a command that runs in this process changes it."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


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
