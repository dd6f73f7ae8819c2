"""The same program in containers: each SDK's own Docker client, on the same engine and image."""

from __future__ import annotations

import pytest
from support.engines import engine

from comparison.both import Reports, check, observe_both
from comparison.program import load
from comparison.programs import DOCKER

pytestmark = pytest.mark.timeout(900)  # the first run starts the engine and installs the peer

NAMES = [name for name, it in load().items() if it.topic in DOCKER]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.ensure())
        patch.setenv("COMPARISON_IMAGE", engine.PYTHON)
        patch.setenv("COMPARISON_LIMIT_S", "60")  # an engine with many containers is slow
        return observe_both(tmp_path_factory.mktemp("docker-comparison"), NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_same_program_in_containers(name: str, reports: Reports) -> None:
    check(name, reports)
