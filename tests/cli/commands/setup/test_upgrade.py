"""An installation of format 1 is upgraded: nothing is lost, wherever the upgrade is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from cli.cli_process import Cli, Done, wait_until
from sandstream_bus.crashpoints import CRASH_POINTS
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.fresh import fresh_last
from support.nats_server import NatsServer
from support.servers import old_installation as old
from support.servers.old_installation import COPY, LOG

from sandstream.testing import ScriptedModel, script_for, text, tool_call

pytestmark = pytest.mark.timeout(120)

APP = '''
from sandstream import Agent, function_tool

@function_tool
async def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"21 degrees in {city}"

@function_tool(needs_approval=True)
async def refund(amount: int) -> str:
    """Give money back."""
    return f"refunded {amount}"

assistant = Agent(name="assistant", instructions="Help.", tools=[get_weather], model="gpt-5")
careful = Agent(name="careful", instructions="Ask first.", tools=[refund], model="gpt-5")
'''
WEATHER = [tool_call("get_weather", {"city": "Paris"}), text("It is sunny in Paris.")]
POINTS = [point for point in CRASH_POINTS if point.startswith("upgrade.")]
LOCKED = ("allow_msg_ttl", "allow_msg_schedules", "allow_rollup_hdrs")
T = TypeVar("T")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """With the store of the old installation."""
    old.unpack_store(tmp_path / "nats")
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    scripts = [
        script_for("weather", WEATHER),
        script_for("hear", [text("Yes."), text("Now, too."), text("I do.")]),
        script_for("refund", [tool_call("refund", {"amount": 5}), text("Refunded.")]),
    ]
    with ScriptedModel(conversations=scripts, strict=False) as model:
        yield model


@pytest.fixture
def cli(server: NatsServer, model: ScriptedModel, tmp_path: Path) -> Cli:
    cli = Cli(tmp_path / "home", model.base_url)
    cli.env["NATS_URL"] = server.url
    return cli


def ask(server: NatsServer, question: Callable[[Connection], Awaitable[T]]) -> T:
    async def main() -> T:
        connection = await Connection.open(server.options())
        try:
            return await question(connection)
        finally:
            await connection.close()

    return asyncio.run(main())


def seen(server: NatsServer) -> dict[str, Any]:
    """All that must not depend on how the upgrade went."""

    async def look(connection: Connection) -> dict[str, Any]:
        streams = await old.streams(connection)
        config = streams[LOG]["config"]
        timers = await old.messages_of(connection, "SANDSTREAM_TIMERS")
        marks = {key: it for key, it in config["metadata"].items() if not key.startswith("_nats")}
        return {
            "streams": sorted(streams),
            "log": await old.messages_of(connection, LOG),
            "config": config | {"metadata": marks},
            "places": await old.places(connection, LOG),
            "requests": await old.messages_of(connection, "SANDSTREAM_REQUESTS"),
            "timers": sorted(
                (it.subject, it.data, it.headers["Nats-Schedule"], it.msg_id)
                for it in timers
                if "Nats-Schedule" in it.headers  # doctor tries the stream with another message
            ),
        }

    return ask(server, look)


def upgraded(cli: Cli, **env: str) -> Done:
    done = cli("setup", "--yes", env=env)
    assert done.code == 0, done
    return done


def test_an_upgrade_changes_nothing_but_the_locks(cli: Cli, server: NatsServer) -> None:
    before = ask(server, lambda it: old.messages_of(it, LOG))
    infos = ask(server, old.streams)
    places = ask(server, lambda it: old.places(it, LOG))
    told = upgraded(cli)
    assert "~ upgrade SANDSTREAM_LOG" in told.out
    assert "copied twice (44 messages, " in told.out and "nothing is lost" in told.out
    after = seen(server)
    assert after["log"] == before and len(before) == 44
    assert COPY not in after["streams"] and "SANDSTREAM_SETUP" not in after["streams"]
    config, was = after["config"], infos[LOG]["config"]
    assert [config.get(it, False) for it in LOCKED] == [False] * 3
    assert (config["deny_delete"], config["discard"]) == (True, "new")
    for field in ("max_age", "max_bytes", "num_replicas", "compression", "max_consumers"):
        assert config[field] == was[field]
    assert config["republish"] == was["republish"]
    assert config["metadata"] == {
        "sandstream.topology": "2",
        "sandstream.created": infos[LOG]["created"],
    }
    places.pop("tasks-main")
    assert after["places"] == places
    assert [it.sequence for it in after["requests"]] == [43, 44]
    assert after["requests"] == before[-2:]
    assert [it[0] for it in after["timers"]] == [
        f"sandstream.timer.{run}.approval-t1-0" for run in ("expires", "waits")
    ]
    armed = {it.subject: it for it in before if ".timer." in it.subject}
    for subject, data, due, msg_id in after["timers"]:
        was_armed = armed[subject]
        assert (data, msg_id) == (was_armed.data, was_armed.msg_id)
        assert due == was_armed.headers["Nats-Schedule"]
    assert cli("setup", "--check").code == 0
    assert [it["state"] for it in cli("doctor", "--json").lines if it["name"] == "streams"] == [
        "ok"
    ]


def test_the_upgraded_log_refuses_what_could_erase_it(cli: Cli, server: NatsServer) -> None:
    upgraded(cli)
    headers = (
        {"Nats-TTL": "1s"},
        {"Nats-Schedule": "@at 2100-01-01T00:00:00Z", "Nats-Schedule-Target": "sandstream.run.x.y"},
        {"Nats-Rollup": "all"},
    )

    async def try_all(connection: Connection) -> list[dict[str, Any]]:
        told = [
            msgspec.json.decode(
                (await connection.request("sandstream.run.x.y", b"", headers=it)).data
            )
            for it in headers
        ]
        told.append(await old.api(connection, f"STREAM.MSG.DELETE.{LOG}", {"seq": 3}))
        return told

    assert all("error" in it for it in ask(server, try_all))
    assert len(seen(server)["log"]) == 44


def test_work_goes_on_after_an_upgrade(cli: Cli, server: NatsServer, tmp_path: Path) -> None:
    due = datetime.now(UTC) + timedelta(seconds=4)

    async def hurry(connection: Connection) -> None:
        """One of the approvals expires soon: its timer moves, as the old release would move it."""
        timer = await fresh_last(connection, LOG, "sandstream.timer.expires.>")
        assert timer is not None
        headers = {
            "Nats-Schedule": f"@at {due.strftime('%Y-%m-%dT%H:%M:%S.%fZ')}",
            "Nats-Schedule-Target": timer.headers["Nats-Schedule-Target"],
        }
        await connection.publish(timer.subject, timer.data, msg_id="sooner", headers=headers)

    ask(server, hurry)
    upgraded(cli)
    shown = cli("show", "finished-1")
    assert shown.code == 0 and "It is sunny in Paris." in shown.out
    (tmp_path / "app.py").write_text(APP)
    with cli.service("actor", "harness"), cli.service("worker", str(tmp_path / "app.py")):
        assert cli("approve", "waits").code == 0
        for run, output in (
            ("waits", "Refunded."),
            ("pending-1", "It is sunny in Paris."),
            ("task-44", "It is sunny in Paris."),
        ):
            ended = _ended(cli, run)
            assert (ended["status"], ended["output"]) == ("completed", output), run
        assert _ended(cli, "expires")["status"] == "completed"
        steps = cli("show", "expires", "--json").one["tree"]["steps"]
        assert [it["decided"]["expired"] for it in steps if it["kind"] == "approval"] == [True]
        new = cli("submit", "assistant", "Still?", "--wait", "--session", "talk")
        assert (new.code, new.out) == (0, "I do.\n"), new
    (parked,) = cli("parked", "--json").lines
    assert parked["id"] == "tasks-main/41"


def _ended(cli: Cli, run: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        done = cli("show", run, "--json")
        summary: dict[str, Any] = done.one["summary"] if done.code == 0 else {}
        return summary if summary.get("ended_at") else None

    found: dict[str, Any] = wait_until(look, f"the end of {run}")
    return found


@pytest.mark.parametrize("point", POINTS)
def test_an_upgrade_goes_on_where_it_was_killed(
    cli: Cli, server: NatsServer, tmp_path: Path, point: str
) -> None:
    killed = cli("setup", "--yes", env={"SANDSTREAM_CRASH_AT": point})
    assert killed.code == -9, killed
    told = {it["name"]: it for it in cli("doctor", "--json").lines}
    if point in ("upgrade.final", "upgrade.deleted_copy"):
        assert told["upgrade"]["state"] == "warning"
        assert cli("runs").code == 0
    else:
        assert told["streams"]["state"] == "problem"
        refused = cli("runs")
        assert refused.code == 1 and "`sandstream setup`" in refused.err, refused
    asyncio.run(old.remove_lock(server))
    checked = cli("setup", "--check")
    assert checked.code == 1 and "~ upgrade" in checked.out
    assert cli("setup").code == 0  # who has agreed once is not asked again
    assert seen(server) == _expected(tmp_path)


_EXPECTED: dict[str, Any] = {}


def _expected(tmp_path: Path) -> dict[str, Any]:
    """What an upgrade without a crash leads to."""
    if not _EXPECTED:
        old.unpack_store(tmp_path / "other")
        other = NatsServer(tmp_path / "other")
        other.start()
        try:
            cli = Cli(tmp_path / "home", "http://127.0.0.1:9")
            cli.env["NATS_URL"] = other.url
            upgraded(cli)
            _EXPECTED.update(seen(other))
        finally:
            other.kill()
    return _EXPECTED


def test_everybody_else_says_what_to_do(cli: Cli, server: NatsServer) -> None:
    before = ask(server, old.streams)
    for command in (("runs",), ("up",), ("actor", "harness"), ("submit", "assistant", "hi")):
        done = cli(*command)
        assert done.code == 1, done
        assert "has format 1; this release needs 2. `sandstream setup` upgrades it" in done.err
    checked = cli("setup", "--check")
    assert checked.code == 1 and "~ upgrade SANDSTREAM_LOG" in checked.out
    unasked = cli("setup")
    assert unasked.code == 2 and "use --yes to upgrade the log" in unasked.err
    told = {it["name"]: it for it in cli("doctor", "--json").lines}
    assert "`sandstream setup` upgrades it" in told["streams"]["found"]
    after = ask(server, old.streams)
    assert {name: it["config"] for name, it in after.items()} == {
        name: it["config"] for name, it in before.items()
    }


def test_an_upgrade_waits_for_no_actor_and_harms_none(cli: Cli, server: NatsServer) -> None:
    """An actor of the older release would go on beside the new ones."""

    async def beside_an_actor(connection: Connection) -> Done:
        def alive(question: Any) -> None:
            connection.answer(question, b"{}")

        subscription = await connection.subscribe("sandstream.alive.harness-main", alive)
        done = await asyncio.to_thread(cli, "setup", "--yes")
        await subscription.close()
        return done

    refused = ask(server, beside_an_actor)
    assert refused.code == 1 and "are at work (harness-main)" in refused.err, refused
    assert sorted(ask(server, old.streams)[LOG]["config"]["subjects"])[-1] == "sandstream.trace.>"
    upgraded(cli)


def test_a_private_server_is_upgraded_when_it_is_opened(
    model: ScriptedModel, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    old.unpack_store(home)
    cli = Cli(home, model.base_url)
    both = [cli.start("runs", "--json") for _ in range(2)]  # one upgrades, the other waits for it
    ended = [Done(process.wait(60), *process.communicate()) for process in both]
    assert [it.code for it in ended] == [0, 0], ended
    assert sum("upgrading SANDSTREAM_LOG to format 2" in it.err for it in ended) == 1
    listed = ended[0]
    assert {"finished-1", "talk-0", "waits"} <= {it["run_id"] for it in listed.lines}
    assert "upgrading" not in cli("runs").err
