"""Fixtures of the tests of the E2B adapter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from vendors.process import VendorServer


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorServer]:
    """A local E2B, which no proxy may stand in front of."""
    with (
        VendorServer.start("e2b", home=tmp_path_factory.mktemp("e2b")) as started,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("NO_PROXY", started.env["NO_PROXY"])
        patch.setenv("no_proxy", started.env["no_proxy"])
        yield started
