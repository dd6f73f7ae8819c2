"""``sandstream stats``: true sums of the log, in tables that fit, with and without an actor."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import termios
from pathlib import Path

import pytest
from cli.cli_process import Cli
from sandstream_bus.wire.messages import ErrorInfo
from support.nats_server import NatsServer, open_bus
from support.tracing.traced_log import LogWriter

from sandstream.cli.exits import Exit
from sandstream.cli.grammar import since


@pytest.fixture
def here(cli: Cli, nats_server: NatsServer) -> Cli:
    """Commands on a server of one's own."""
    nats_server.set_up()
    cli.env["NATS_URL"] = nats_server.url
    return cli


def _write(server: NatsServer, *, first: int = 0) -> None:
    """Of nine runs one has failed, one waits, one is under way."""
    failed = ErrorInfo(code="model_failed", message="no")

    async def main() -> None:
        async with open_bus(server) as bus:
            for number in range(first, first + 9):
                run = LogWriter(bus, f"r{number}")
                await run.start()
                if number % 9 == 0:
                    await run.end(status="failed", error=failed)
                elif number % 9 == 1:
                    await run.work()
                    await run.wait()
                elif number % 9 > 2:
                    await run.work()
                    await run.end()

    asyncio.run(main())


def test_sums_for_programs(here: Cli, nats_server: NatsServer) -> None:
    _write(nats_server)
    stats = here.here("stats", "--json").one
    total = stats["total"]
    assert [total[it] for it in ("runs", "completed", "failed", "waiting", "running")] == [
        *(9, 6, 1, 1, 1)
    ]
    assert stats["failures"] == {"model_failed": 1}
    (agent,) = stats["agents"]
    assert (agent["name"], agent["runs"]) == ("a", 9)
    (model,) = stats["models"]
    assert (model["name"], model["calls"]) == ("m", 14)
    assert model["input_tokens"] == agent["input_tokens"] == total["input_tokens"] == 140
    (tool,) = stats["tools"]
    assert (tool["name"], tool["calls"]) == ("f", 7)
    assert sum(day["runs"] for day in stats["days"]) == 9

    _write(nats_server, first=9)
    later = here.here("stats", "--json").one
    assert later["total"]["runs"] == 18, "what came since is read from the log"
    assert later["models"][0]["calls"] == 28


def test_tables(here: Cli, nats_server: NatsServer) -> None:
    _write(nats_server)
    done = here.here("stats")
    assert (done.code, done.err) == (Exit.OK, "")
    lines = done.out.splitlines()
    assert lines[0] == "9 runs in the last 24h: 6 completed, 1 failed, 1 waiting, 1 running"
    assert lines[1] == "140 tokens in, 70 out"
    assert lines[2] == "failures: model_failed 1"
    tables = {line.split()[0] for line in lines if line.split()[:1] and line.split()[0].isupper()}
    assert tables == {"AGENT", "MODEL", "TOOL"}
    row = next(line for line in lines if line.startswith("a "))
    assert row.split()[:9] == ["a", "9", "6", "1", "1", "1", "15", "140", "70"]
    by_day = here.here("stats", "--by", "day", "--since", "2w").out
    assert "in the last 2w" in by_day
    assert "DAY" in by_day and "AGENT" not in by_day and "TOOL" not in by_day
    assert "MODEL" not in here.here("stats", "--by", "tool").out


def test_an_installation_without_runs(here: Cli) -> None:
    done = here.here("stats")
    assert (done.code, done.out) == (Exit.OK, "")
    assert done.err.startswith("no runs yet; start one: sandstream run")


def test_nothing_of_what_was_asked_for(here: Cli, nats_server: NatsServer) -> None:
    _write(nats_server)
    other = here.here("stats", "--agent", "nobody\x1b[31m")
    assert other.err == "no runs of agent nobody in the last 24h; look further back: --since all\n"
    ever = here.here("stats", "--agent", "nobody", "--since", "all")
    assert ever.err.startswith("no runs of agent nobody; omit --agent")
    late = here.here("stats", "--since", "2999-01-01")
    assert late.err == "no runs since 2999-01-01; look further back: --since all\n"
    assert other.code == ever.code == late.code == Exit.OK


@pytest.mark.parametrize("text", ["", "yesterday", "5x", "-3h", "h", "1e3s", "2026-13-01", "²d"])
def test_a_time_that_is_none(cli: Cli, text: str) -> None:
    done = cli.here("stats", f"--since={text}")
    assert done.code == Exit.USAGE
    assert "is not a time: say how long ago" in done.err
    assert not cli.home.exists(), "nothing was started for it"


def test_times() -> None:
    yesterday = since("24h").ns
    assert 0 <= since("0s").ns - yesterday - 86_400 * 10**9 < 60 * 10**9
    assert since("1.5m").ns > since("2m").ns
    assert since("all").ns == since("999999999w").ns == 0
    assert since("1970-01-02T00:00:00+00:00") == (86_400 * 10**9, "since 1970-01-02T00:00:00+00:00")


def test_a_damaged_store_is_built_again(here: Cli, nats_server: NatsServer) -> None:
    _write(nats_server)
    before = here.here("stats", "--json")
    (path,) = (here.home / "traces").glob("*.db")
    whole = path.read_bytes()
    for damaged in (b"rubbish" * 1000, whole[:8192] + b"\xa5" * (len(whole) - 8192)):
        for name in ("-wal", "-shm"):
            path.with_name(path.name + name).unlink(missing_ok=True)
        path.write_bytes(damaged)
        after = here.here("stats", "--json")
        assert after.err.startswith("the trace store was damaged and is rebuilt")
        assert after.one["total"] == before.one["total"]
    assert here.here("stats", "--json").err == ""


def test_a_store_that_cannot_be_made(here: Cli) -> None:
    here.home.mkdir(parents=True)
    (here.home / "traces").write_text("in the way")
    done = here.here("stats")
    assert done.code == Exit.FAILED
    assert "cannot be made" in done.err and str(here.home) in done.err


@pytest.mark.parametrize("columns", [60, 80])
def test_it_fits_the_terminal(here: Cli, nats_server: NatsServer, columns: int) -> None:
    _write(nats_server)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {"TERM": "xterm", "NO_COLOR": "1"}
    process = here.start("stats", env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as screen:  # noqa: PTH123 - a descriptor
        shown = b""
        try:
            while data := screen.read(65_536):
                shown += data
        except OSError:  # how a terminal says that nobody is there any more
            pass
    assert process.wait() == 0
    lines = shown.decode().splitlines()
    tables = lines[lines.index("") :]
    assert max(map(len, tables)) <= columns
    header = next(line for line in tables if line.startswith("AGENT"))
    assert ("RUNNING" in header) == (columns == 80)
    assert "P95" in header and "FAILED" in header


def test_stats_beside_a_tracing_actor(served: Cli, finished: str) -> None:
    """Both write to one store."""
    stats = served.here("stats", "--json", "--since", "all").one
    assert "assistant" in {it["name"] for it in stats["agents"]}
    assert "get_weather" in {it["name"] for it in stats["tools"]}
    assert len(list(Path(served.home / "traces").glob("*.db"))) == 1
