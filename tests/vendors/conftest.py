"""Fixtures of the tests of local vendor servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from vendors.daytona_stories import Stage
from vendors.process import VendorServer


@pytest.fixture(scope="module")
def daytona_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorServer]:
    """A local Daytona server. A start costs as much as a test, so the tests of a file share it."""
    with VendorServer.start("daytona", home=tmp_path_factory.mktemp("daytona")) as vendor:
        yield vendor


@pytest.fixture
def stage(daytona_server: VendorServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """The server as new: without boxes, faults and settings."""
    stage = Stage(daytona_server, monkeypatch)
    yield stage
    stage.leave()
