"""The cluster that all scenarios share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.servers.nats_cluster import NatsCluster


@pytest.fixture(scope="session")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    cluster = NatsCluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.end()
