"""Fixtures of the public surface: one private server for the session, a home per test session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandstream_bus.embedded.lease import ensure_server


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory whose server lives as long as the session."""
    home = tmp_path_factory.mktemp("home")
    lease = asyncio.run(ensure_server(home))
    yield home
    lease.release()


@pytest.fixture
def home(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a program that uses Sandstream without any set-up."""
    monkeypatch.setenv("SANDSTREAM_HOME", str(shared_home))
    monkeypatch.delenv("NATS_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return shared_home
