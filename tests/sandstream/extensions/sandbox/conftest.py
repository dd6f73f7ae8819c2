"""Fixtures of the hosted sandboxes: each test runs once per vendor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.vendor_side import VendorSide
from vendors.shared import shared


@pytest.fixture(params=["daytona", "e2b"])
def vendor(
    request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[VendorSide]:
    """A program's environment with a key of the vendor. The test leaves no box behind, and its
    requests are those that the vendor expects.
    """
    server = shared(request.param)
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    found = VendorSide(request.param, server, frozenset(it.id for it in server.boxes()))
    errors = len(server.protocol_errors())
    yield found
    assert server.protocol_errors()[errors:] == []
    assert found.boxes() == []
