"""The upgrade of a log that three servers keep."""

from __future__ import annotations

import asyncio

import pytest
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.topology import Topology
from sandstream_bus.setup.upgrade import upgrade
from sandstream_bus.wire.subjects import Subjects
from support.servers.nats_cluster import NatsCluster
from support.servers.old_installation import messages_of, old_log, places
from support.waiting import eventually

PREFIX = "older"
LOG = "OLDER_LOG"
MESSAGES = 2000


@pytest.mark.timeout(240)
def test_a_replicated_log_is_upgraded_and_stays_replicated(nats_cluster: NatsCluster) -> None:
    async def main() -> None:
        connection = await Connection.open(nats_cluster.options())
        topology = Topology(Subjects(PREFIX))
        config = old_log(PREFIX, num_replicas=3)
        await topology.ask(connection, f"STREAM.CREATE.{LOG}", config)
        for number in range(MESSAGES):
            kind = "task.a" if number % 100 == 99 else f"run.r{number % 40}.x"
            await connection.publish(f"{PREFIX}.{kind}", b"{}", msg_id=str(number), budget_s=60)
        durable = {"durable_name": "harness-main", "name": "harness-main", "num_replicas": 0}
        durable |= {"ack_policy": "explicit", "filter_subjects": [f"{PREFIX}.run.>"]}
        body = {"stream_name": LOG, "config": durable}
        await topology.ask(connection, f"CONSUMER.CREATE.{LOG}.harness-main", body)

        async def all_messages() -> list[object]:
            found = await messages_of(connection, LOG)
            return list(found) if len(found) == MESSAGES else []

        before = await eventually(all_messages, within_s=60)
        await upgrade(connection, topology)
        assert await eventually(all_messages, within_s=60) == before
        for stream in (LOG, topology.requests, topology.timers):
            info = await topology.stream_info(connection, stream)
            assert info["config"]["num_replicas"] == 3
            assert len(info["cluster"]["replicas"]) == 2
        assert (await topology.stream_info(connection, LOG))["config"]["deny_delete"] is True
        assert await places(connection, LOG) == {"harness-main": (0, MESSAGES - MESSAGES // 100)}
        ack = await connection.publish(f"{PREFIX}.run.r1.x", b"{}", msg_id="new", budget_s=60)
        assert (ack.stream, ack.seq) == (LOG, MESSAGES + 1)
        await connection.close()

    asyncio.run(main())
