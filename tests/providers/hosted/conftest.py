"""The vendors, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from providers.hosted.accounts import ROUTES, SETTINGS, Account
from vendors.process import VendorServer


@pytest.fixture(scope="module", params=sorted(ROUTES))
def account(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Account]:
    """One server for all tests of a file. A start costs as much as a test."""
    name = request.param
    with (
        VendorServer.start(name, home=tmp_path_factory.mktemp(name), **SETTINGS[name]) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        for variable in ("NO_PROXY", "no_proxy"):
            patch.setenv(variable, server.env[variable])
        yield Account(name, server)
