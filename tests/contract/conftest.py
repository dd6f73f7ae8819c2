"""Fixtures of the contract suite: everything is parametrised by provider."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from contract.providers import CONTENDERS, Contender
from contract.stage import Stage


@pytest.fixture(scope="module", params=CONTENDERS, ids=lambda contender: contender.name)
def contender(request: pytest.FixtureRequest) -> Contender:
    found: Contender = request.param
    return found


@pytest.fixture(scope="module")
def stage(contender: Contender, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A provider with its own home, for the tests of one module."""
    home = tmp_path_factory.mktemp(f"home-{contender.name}")
    with asyncio.Runner() as runner:
        made = Stage(contender, home, runner)
        runner.run(made.provider.check())
        yield made
        runner.run(made.leave())
    gc.collect()  # what a test left open is a warning of this module, not of a later one
