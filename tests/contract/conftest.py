"""Fixtures of the contract suite: everything is parametrised by provider."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nats_server import NatsServer

from contract.providers import CONTENDERS, Contender
from contract.sessions import SessionStage
from contract.stage import Stage


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test of what a provider lacks by its nature is no test of that provider."""
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        found = getattr(item, "callspec", None)
        contender = found.params.get("contender") if found is not None else None
        powers = [str(mark.args[0]) for mark in item.iter_markers("needs")]
        without = [str(mark.args[0]) for mark in item.iter_markers("needs_no")]
        sessions = "sessions" in getattr(item, "fixturenames", ())
        fits = contender is None or (
            (contender.client is not None or not sessions)
            and all(contender.has(power) for power in powers)
            and not any(contender.has(power) for power in without)
        )
        (kept if fits else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


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


@pytest.fixture
def public_dir() -> Iterator[Path]:
    """A directory that everybody on this machine may read, as boxes are other users."""
    path = Path(tempfile.mkdtemp(prefix="contract-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="session")
def contract_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("contract-nats"))
    server.start()
    server.set_up()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def sessions(
    contender: Contender,
    contract_server: NatsServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SessionStage]:
    """A client's process with its own home, for the tests of one module."""
    home = tmp_path_factory.mktemp(f"sessions-{contender.name}")
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        for name, value in contender.environment().items():
            patch.setenv(name, value)
        made = SessionStage(contender, home, contract_server.url, runner)
        made.open()
        yield made
        runner.run(made.leave())
    gc.collect()
