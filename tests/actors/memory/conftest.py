"""What all tests of the memory actor have."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from actors.memory.rig import Play
from actors.memory.rig import play as play_scene
from support.nats_server import NatsServer


@pytest.fixture(autouse=True)
def model_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")


@pytest.fixture
def play(nats_server: NatsServer, tmp_path: Path) -> Play:
    """Plays a scene: ``play(scene, *what the model says)``."""
    return functools.partial(play_scene, nats_server, tmp_path / "home")
