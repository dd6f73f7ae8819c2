"""The local Daytona for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from vendors.process import VendorServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorServer]:
    """One vendor for all tests of a file; :func:`.daytona_boxes.in_loop` cleans up after each."""
    with (
        VendorServer.start("daytona", home=tmp_path_factory.mktemp("daytona")) as started,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, started.env[name])
        yield started
