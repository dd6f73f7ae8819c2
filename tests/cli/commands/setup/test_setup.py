"""``sandstream setup``, and that no other command creates or changes a stream."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.cli_process import APP, Cli
from sandstream_bus.errors import NotSetUp
from sandstream_bus.nats.connection import Connection
from support.nats_server import NatsServer, open_bus

from sandstream import Agent, Runner
from sandstream._surface.connection import open_connection
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, text

DAY_NS = 86_400 * 10**9


@pytest.fixture
def cli(nats_server: NatsServer, tmp_path: Path, model_url: str) -> Cli:
    """Commands with only NATS_URL set, on a server that has no streams."""
    cli = Cli(tmp_path / "home", model_url)
    cli.env["NATS_URL"] = nats_server.url
    return cli


def streams(server: NatsServer) -> dict[str, dict[str, Any]]:
    """What the server says of its streams, past all of our code; without what traffic changes."""

    async def main() -> dict[str, dict[str, Any]]:
        connection = await Connection.open(server.options())
        reply = await connection.request("$JS.API.STREAM.LIST", b"")
        await connection.close()
        listed = msgspec.json.decode(reply.data)["streams"] or []
        return {it["config"]["name"]: it["config"] | {"at": it["created"]} for it in listed}

    return asyncio.run(main())


def change(server: NatsServer, name: str, **fields: Any) -> None:
    """As an operator would, past all of our code."""
    config = streams(server)[name]
    config.pop("at")

    async def main() -> None:
        connection = await Connection.open(server.options())
        body = msgspec.json.encode(config | fields)
        reply = await connection.request(f"$JS.API.STREAM.UPDATE.{name}", body)
        await connection.close()
        assert "error" not in msgspec.json.decode(reply.data), reply.data

    asyncio.run(main())


def test_nothing_but_setup_and_up_creates_streams(cli: Cli, nats_server: NatsServer) -> None:
    for command in (
        ("runs",),
        ("submit", "assistant", "hello"),
        ("actor", "harness"),
        ("actor", "memory"),
        ("memory",),
        ("parked",),
    ):
        done = cli(*command)
        assert (done.code, done.out) == (1, ""), done
        assert "has no Sandstream streams for the prefix 'sandstream'" in done.err
        assert "Run `sandstream setup` once to create them" in done.err
    assert cli("doctor").code == 1
    assert streams(nats_server) == {}


def test_runner_says_what_to_run(
    cli: Cli, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", nats_server.url)
    with pytest.raises(NotSetUp, match="`sandstream setup`"):
        asyncio.run(Runner.run(Agent(name="a", model="m"), "hi"))
    assert streams(nats_server) == {}


def test_readers_change_nothing_of_an_installation(
    cli: Cli, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reproduction: settings of its own, then everybody comes with only NATS_URL set."""
    made = cli("setup", "--max-age-days", "3", "--max-bytes", "1GB")
    assert made.code == 0, made
    change(nats_server, "SANDSTREAM_LOG", max_age=365 * DAY_NS, description="ours")
    before = streams(nats_server)
    (tmp_path / "app.py").write_text(APP)
    for command in (("runs",), ("doctor",), ("memory",), ("parked",), ("approvals",)):
        assert cli(*command).code == 0
    with cli.service("actor", "harness"), cli.service("worker", str(tmp_path / "app.py")):
        done = cli("submit", "assistant", "How is the weather?", "--wait", "--json")
        assert done.code == 0, done
    with cli.service("up", "--no-sandbox"):
        pass
    with ScriptedModel([text("Hello.")]) as model:
        monkeypatch.setenv("NATS_URL", nats_server.url)
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        asyncio.run(Runner.run(Agent(name="a", model="m"), "hi"))
    assert streams(nats_server) == before


def test_variables_that_differ_are_ignored_with_one_line(cli: Cli, nats_server: NatsServer) -> None:
    assert cli("setup", "--max-age-days", "3").code == 0
    before = streams(nats_server)
    asked = {"SANDSTREAM_MAX_AGE_DAYS": "30", "SANDSTREAM_REPLICAS": "1"}
    done = cli("runs", env=asked)
    assert done.code == 0
    (line,) = (it for it in done.err.splitlines() if "warning" in it)
    assert line == (
        "sandstream: warning: SANDSTREAM_MAX_AGE_DAYS: ignored, the installation has its own "
        "settings: 1 replica, 3 days, no limit of size. `sandstream setup` changes them"
    )
    told = {it["name"]: it for it in cli("doctor", "--json", env=asked).lines}["retention"]
    assert told["state"] == "warning" and "SANDSTREAM_MAX_AGE_DAYS" in told["found"]
    again = cli("setup", env=asked)
    assert again.code == 0 and "--max-age-days" in again.err
    assert streams(nats_server) == before


def test_variables_are_the_defaults_of_a_new_installation(
    cli: Cli, nats_server: NatsServer
) -> None:
    env = {"SANDSTREAM_MAX_AGE_DAYS": "7", "SANDSTREAM_MAX_BYTES": "1GB"}
    made = cli("setup", "--max-age-days", "9", env=env)
    assert made.code == 0, made
    assert made.err.endswith("is set up: 1 replica, 9 days, at most 1 GB\n")
    found = streams(nats_server)
    assert found["SANDSTREAM_LOG"]["max_age"] == 9 * DAY_NS
    assert sum(it["max_bytes"] for it in found.values()) <= 10**9


def test_setup_shows_what_it_creates_and_then_has_nothing_to_do(
    cli: Cli, nats_server: NatsServer
) -> None:
    checked = cli("setup", "--check")
    assert checked.code == 1 and "+ create  SANDSTREAM_LOG " in checked.out
    assert "1 replica, 30 days" in checked.out
    assert streams(nats_server) == {}
    made = cli("setup", "--json")
    assert made.code == 0
    assert {it["action"] for it in made.lines} == {"create"}
    assert {it["stream"] for it in made.lines} == set(streams(nats_server))
    again = cli("setup", "--check")
    assert (again.code, again.out) == (0, "")
    assert again.err == "nothing to change: 1 replica, 30 days, no limit of size\n"


def test_what_loses_data_wants_a_yes(cli: Cli, nats_server: NatsServer) -> None:
    assert cli("setup").code == 0
    before = streams(nats_server)
    refused = cli("setup", "--max-age-days", "2")
    assert refused.code == 2 and "--yes" in refused.err
    assert "max_age: 30 days → 2 days  (older messages are deleted at once)" in refused.out
    assert streams(nats_server) == before
    assert cli("setup", "--max-age-days", "60").code == 0  # loses nothing
    done = cli("setup", "--max-age-days", "2", "--yes", "--json")
    assert done.code == 0
    log = next(it for it in done.lines if it["stream"] == "SANDSTREAM_LOG")
    assert (log["field"], log["found"], log["wanted"]) == ("max_age", 60 * DAY_NS, 2 * DAY_NS)
    assert log["loses"]
    assert streams(nats_server)["SANDSTREAM_LOG"]["max_age"] == 2 * DAY_NS


@pytest.mark.parametrize(("answer", "code", "days"), [("n", 1, 30), ("y", 0, 2)])
def test_a_person_is_asked(
    cli: Cli, nats_server: NatsServer, answer: str, code: int, days: int
) -> None:
    nats_server.set_up()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sandstream.cli", "setup", "--max-age-days", "2"],
        env=cli.env,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    _, said = process.communicate(timeout=30)
    os.close(ours)
    assert process.returncode == code, said
    assert "5 changes can lose data. Go on? [y/N]" in said
    assert streams(nats_server)["SANDSTREAM_LOG"]["max_age"] == days * DAY_NS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--max-age-days", "-1"), "0 means for ever"),
        (("--max-age-days", "nan"), "0 means for ever"),
        (("--max-age-days", "0.01"), "below one hour"),
        (("--max-bytes", "many"), "is not a size"),
        (("--max-bytes", "1MB"), "too few"),
        (("--replicas", "0"), "not above zero"),
        (("--replicas", "9"), "from 1 to 5"),
    ],
)
def test_bad_settings_are_refused_before_anything(
    cli: Cli, nats_server: NatsServer, arguments: tuple[str, ...], said: str
) -> None:
    done = cli.here("setup", *arguments)
    assert done.code == 2 and said in done.err, done
    assert streams(nats_server) == {}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SANDSTREAM_REPLICAS", "many", "it is not a number"),
        ("SANDSTREAM_REPLICAS", "1.5", "it is not a whole number"),
        ("SANDSTREAM_REPLICAS", "nan", "it is not a whole number"),
        ("SANDSTREAM_MAX_AGE_DAYS", "-3", "0 keeps events for ever"),
        ("SANDSTREAM_MAX_AGE_DAYS", "inf", "0 keeps events for ever"),
        ("SANDSTREAM_MAX_AGE_DAYS", "0.001", "below one hour"),
        ("SANDSTREAM_MAX_BYTES", "10", "too few"),
    ],
)
def test_bad_variables_are_named(cli: Cli, name: str, value: str, said: str) -> None:
    done = cli("runs", env={name: value})
    assert done.code == 2
    assert f"{name}='{value}': " in done.err and said in done.err


def test_a_short_age_is_possible_and_warned_about(cli: Cli, nats_server: NatsServer) -> None:
    done = cli("setup", "--max-age-days", "0.5")
    assert done.code == 0
    assert "events are kept 12 hours: a run that waits longer" in done.err
    kept = cli("setup", "--max-age-days", "0")
    assert kept.code == 0 and "kept for ever" in kept.err
    assert {it["max_age"] for it in streams(nats_server).values()} == {0}


def test_a_stream_that_does_not_fit_is_named_and_mended(cli: Cli, nats_server: NatsServer) -> None:
    assert cli("setup").code == 0
    change(nats_server, "SANDSTREAM_LOG", allow_direct=False)
    done = cli("runs")
    assert done.code == 1
    assert "SANDSTREAM_LOG: allow_direct is false, must be true" in done.err
    doctor = cli("doctor")
    assert doctor.code == 1 and "allow_direct is false" in doctor.out
    mended = cli("setup")
    assert mended.code == 0
    assert "~ change  SANDSTREAM_LOG  allow_direct: false → true\n" in mended.out
    assert cli("runs").code == 0


def test_up_sets_up_an_empty_server(cli: Cli, nats_server: NatsServer) -> None:
    cli.env["SANDSTREAM_MAX_AGE_DAYS"] = "5"
    with cli.service("up", "--no-sandbox", "--no-tracing", "--no-memory"):
        assert streams(nats_server)["SANDSTREAM_LOG"]["max_age"] == 5 * DAY_NS


def test_the_private_server_needs_no_setup_and_can_be_changed(
    tmp_path: Path, model_url: str
) -> None:
    cli = Cli(tmp_path / "home", model_url)
    assert cli("runs").code == 0
    changed = cli("setup", "--max-age-days", "90")
    assert changed.code == 0 and "max_age: 30 days → 90 days" in changed.out
    asked = cli("runs", env={"SANDSTREAM_MAX_AGE_DAYS": "7"})
    assert (
        asked.code == 0 and "the installation has its own settings: 1 replica, 90 days" in asked.err
    )


def test_replicas_need_a_cluster(cli: Cli, nats_server: NatsServer, tmp_path: Path) -> None:
    said = "3 replicas need a NATS cluster of at least 3 servers"
    refused = cli("setup", "--replicas", "3")
    assert refused.code == 1 and said in refused.err
    private = cli("runs", env={"NATS_URL": "", "SANDSTREAM_REPLICAS": "3"})
    assert private.code == 1 and said in private.err
    assert streams(nats_server) == {}


def test_the_private_server_gets_a_stream_that_a_release_adds(
    tmp_path: Path, model_url: str
) -> None:
    """A store of a release that had no such stream: whoever opens it notices nothing."""
    cli = Cli(tmp_path / "home", model_url)
    assert cli("setup", "--max-age-days", "9").code == 0

    async def configs(*, without: str = "") -> dict[str, Any]:
        async with open_connection(Settings.from_env(cli.env), name="test") as connection:
            if without:
                await connection.request(f"$JS.API.STREAM.DELETE.{without}", b"")
            reply = await connection.request("$JS.API.STREAM.LIST", b"")
            listed = msgspec.json.decode(reply.data)["streams"]
            return {it["config"]["name"]: it["config"] for it in listed}

    before = asyncio.run(configs())
    assert "SANDSTREAM_PARKED" not in asyncio.run(configs(without="SANDSTREAM_PARKED"))
    assert cli("runs").code == 0
    assert asyncio.run(configs()) == before


def test_two_set_ups_at_once(cli: Cli, nats_server: NatsServer) -> None:
    both = [
        cli.start("setup", *options)
        for options in (("--max-age-days", "40"), ("--max-age-days", "40", "--max-bytes", "1GB"))
    ]
    for process in both:
        _, said = process.communicate(timeout=30)
        # the second may find streams without a limit, which it must not set without a yes
        assert process.returncode in (0, 1, 2), said
    assert cli("setup", "--max-age-days", "40", "--max-bytes", "1GB", "--yes").code == 0
    found = streams(nats_server)
    assert found["SANDSTREAM_LOG"]["max_age"] == 40 * DAY_NS
    assert "SANDSTREAM_SETUP" not in found
    assert cli("runs").code == 0


def test_doctor_warns_before_a_stream_is_full(cli: Cli, nats_server: NatsServer) -> None:
    assert cli("setup").code == 0
    change(nats_server, "SANDSTREAM_TIMERS", max_bytes=1000)
    change(nats_server, "SANDSTREAM_AGENTS", max_bytes=1000, discard="new")

    async def fill() -> None:
        async with open_bus(nats_server) as bus:
            await bus.connection.publish("sandstream.due.x", b"x" * 800, msg_id="1")
            await bus.connection.publish("sandstream.agent.x", b"x" * 800, msg_id="1")

    asyncio.run(fill())
    found = [it["found"] for it in cli("doctor", "--json").lines if it["name"] == "space"]
    assert len(found) == 2
    assert any("SANDSTREAM_TIMERS" in it and "the oldest events are deleted" in it for it in found)
    assert any("SANDSTREAM_AGENTS" in it and "it refuses more" in it for it in found)


def test_doctor_warns_when_objects_go_before_their_events(
    cli: Cli, nats_server: NatsServer
) -> None:
    assert cli("setup").code == 0
    change(nats_server, "SANDSTREAM_LOG", max_age=90 * DAY_NS)
    told = {it["name"]: it for it in cli("doctor", "--json").lines}["objects"]
    assert told["state"] == "warning"
    assert told["found"] == "big payloads go after 31 days, their events after 90 days"
    assert told["todo"] == "sandstream setup --max-age-days 90"
    assert cli("setup", "--max-age-days", "90").code == 0
    assert "objects" not in {it["name"] for it in cli("doctor", "--json").lines}


def test_actors_need_no_right_to_change_streams(tmp_path: Path, model_url: str, app: Path) -> None:
    """What docs/operations.md advises to deny is denied here; the work is done all the same."""
    denied = ", ".join(f'"$JS.API.STREAM.{it}.>"' for it in ("CREATE", "UPDATE", "DELETE"))
    users = (
        "{ user: admin, password: a }, "
        f"{{ user: actor, password: b, permissions: {{ publish: {{ deny: [{denied}] }} }} }}"
    )
    server = NatsServer(tmp_path / "nats", config=f"authorization {{ users: [ {users} ] }}")
    server.start()
    try:
        cli = Cli(tmp_path / "home", model_url)
        cli.env |= {"NATS_URL": server.url, "NATS_USER": "actor", "NATS_PASSWORD": "b"}
        assert cli("setup", env={"NATS_USER": "admin", "NATS_PASSWORD": "a"}).code == 0
        with cli.service("actor", "harness"), cli.service("worker", str(app)):
            done = cli("submit", "assistant", "How is the weather?", "--wait")
            assert done.code == 0, done
    finally:
        server.kill()
