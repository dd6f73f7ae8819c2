"""Characters that steer a terminal, turn the direction of reading or cannot be seen: planted in
real messages, and looked for in everything that commands print for people and actors log.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.cli_process import Cli, wait_until
from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    ErrorInfo,
    Parked,
    RunDone,
    RunWaiting,
    TokenUsage,
)
from support.nats_server import NatsServer, open_bus
from support.scripted_log import answer, begin, calls, raw, says
from support.tracing.traced_log import LogWriter

from sandstream._inspect.visible_text import DECEIVING, in_one_line, visible

TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
HIDDEN = "\u200b\u2060\u00ad\ufeff\u3164\U000e0041\u2028"
STEERING = "\x1b[31m\x9b2J\x07\x00"
ODD = f"start{TURNING}{HIDDEN}{STEERING}end"
"""What strangers may say."""
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def looks_harmless(text: str) -> bool:
    return not DECEIVING.search(text) and not STEERS.search(text)


# --- the characters ---------------------------------------------------------------------------


@pytest.mark.parametrize("char", [*TURNING, *HIDDEN])
def test_each_is_shown_as_its_code(char: str) -> None:
    code = f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"
    code = code if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
    assert visible(f"a{char}b") == f"a{code}b"


@pytest.mark.parametrize(
    "text", ["plain", "日本語", "👩‍👩‍👧 ❤️", "می‌خواهم", "क्‍ष", "שלום", "e\u0301", "a\tb\nc"]
)
def test_what_people_write_stays(text: str) -> None:
    assert visible(text) == text


def test_joiners_hide_nothing_in_words() -> None:
    assert visible("pay\u200dpal \u200c") == "pay\\u200dpal \\u200c"


def test_one_line_is_one_line() -> None:
    assert in_one_line("a\r\nb\x1b[31m\0\tc\u2028") == "a\\r\\nb\\x1b[31m\\x00\\tc\\u2028"


# --- the command line -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Commands on a server whose runs are full of such text: one that failed, one that waits."""
    folder = tmp_path_factory.mktemp("strange")
    server = NatsServer(folder / "nats")
    server.start()
    try:
        asyncio.run(_write(server))
        cli = Cli(folder / "home", "http://127.0.0.1:9")
        cli.env |= {"NATS_URL": server.url, "COLUMNS": "400"}
        yield cli
    finally:
        server.kill()


async def _write(server: NatsServer) -> None:
    async with open_bus(server) as bus:
        await _write_run(bus, "failed")
        await _write_run(bus, "waiting")
        await bus.rebuild_index()
        parked = Parked(
            subject=bus.subjects.task("nobody"),
            sequence=7,
            consumer=ODD,
            reason=f"because {ODD}",
            deliveries=1,
            body=ODD,
            headers={ODD: ODD},
        )
        subject = bus.subjects.parked("harness-main", 7)
        await bus.connection.publish(subject, msgspec.json.encode(parked), msg_id="parked")


async def _write_run(bus: Bus, name: str) -> None:
    run = LogWriter(bus, name)
    options = {"workflow_name": ODD, "group_id": ODD, "metadata": {"odd": ODD}}
    started = begin("f", options=options, name=ODD)
    await run.put("start.main", _with_odd_input(started))
    odd_call = raw({"type": "function_call", "name": ODD, "call_id": ODD, "arguments": ODD})
    await run.put("model", answer(1, says(ODD), calls("f", "c1", ODD), odd_call))
    call = CallRequested(
        call="t1-0", kind="tool", turn=1, agent="a", name=ODD, arguments=ODD, reply_pool="main"
    )
    await run.put("call.h", call)
    error = ErrorInfo(code="tool_error", message=ODD)
    result = CallFinished(call="t1-0", kind="tool", turn=1, output=raw(ODD), error=error)
    await run.put("result.main", result)
    asked = ApprovalRequested(call="t1-1", turn=1, agent=ODD, name=ODD, call_id=ODD, arguments=ODD)
    await run.put("approval.requested", asked)
    await run.put("waiting", RunWaiting(turn=1, approvals=[asked]))
    if name == "waiting":
        return
    decided = ApprovalDecided(call="t1-1", approve=False, by=ODD, message=ODD)
    await run.put("approval.decided", decided)
    end = RunDone(
        status="failed",
        agent=ODD,
        turns=1,
        usage=TokenUsage(),
        error=ErrorInfo(code="tool_error", message=ODD),
    )
    await run.put("done", end)


def _with_odd_input(started: Any) -> Any:
    said = raw({"role": "user", "content": ODD})
    return msgspec.structs.replace(started, input=[said])


COMMANDS = [
    ("show", "failed"),
    ("show", "failed", "--all", "--events"),
    ("show", "waiting", "--all"),
    ("watch", "failed"),
    ("replay", "failed", "--instant"),
    ("runs",),
    ("runs", "--status", "failed"),
    ("approvals",),
    ("parked",),
    ("parked", "show", "harness-main/7"),
    ("reject", "waiting", "no such call " + ODD),
    ("show", "no such run" + ODD),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda it: " ".join(it)[:30])
def test_commands_print_nothing_that_deceives(strange: Cli, command: tuple[str, ...]) -> None:
    done = strange.here(*command)
    assert looks_harmless(done.out), DECEIVING.findall(done.out) + STEERS.findall(done.out)
    assert looks_harmless(done.err), DECEIVING.findall(done.err) + STEERS.findall(done.err)
    assert "start" in done.out + done.err


def test_json_is_exact(strange: Cli) -> None:
    shown = json.loads(strange.here("show", "failed", "--json").out)
    assert shown["summary"]["error"]["message"] == ODD
    asked = json.loads(strange.here("approvals", "--json").out)
    assert (asked["tool"], asked["arguments"]) == (ODD, ODD)


def test_a_page_shows_codes_and_isolates_texts(strange: Cli, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    assert strange.here("show", "failed", "--html", str(page), "--all").code == 0
    text = page.read_text()
    assert not DECEIVING.search(text) and not STEERS.search(text)
    assert "⟨U+202E⟩" in text and "⟨U+200E⟩" in text


# --- logs ---------------------------------------------------------------------------------------

FORGED = "sandstream: error: all is lost"


@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_log_line_is_one_line_whatever_was_said(
    nats_server: NatsServer, tmp_path: Path, debug: str
) -> None:
    nats_server.set_up()
    cli = Cli(tmp_path / "home", "http://127.0.0.1:9")
    log = tmp_path / "log"
    env = {"NATS_URL": nats_server.url, "SANDSTREAM_DEBUG": debug, "PYTHONWARNINGS": "default"}
    with log.open("wb") as err:
        actor = cli.start("actor", "harness", "--json", env=env, stderr=err)
        try:
            assert actor.stdout.readline()
            asyncio.run(_bother(nats_server))
            wait_until(lambda: log.read_bytes().count(b"message parked") >= 2, "it is parked")
        finally:
            actor.terminate()
            try:
                actor.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                actor.kill()
    told = log.read_text()
    assert looks_harmless(told), DECEIVING.findall(told) + STEERS.findall(told)
    assert "\\x1b" in told and "\\u202e" in told and "\\n" in told
    assert [line for line in told.splitlines() if line.startswith(FORGED)] == []


async def _bother(server: NatsServer) -> None:
    """Messages that nobody can handle, with text that wants to be a line of the log."""
    said = f"{ODD}\n{FORGED}".replace("\x00", "\\u0000")
    async with open_bus(server) as bus:
        # a subject may hold what a terminal obeys
        for number, run in enumerate(("r0-\x1b[31m\u202e", "r1")):
            subject = f"{bus.subjects.prefix}.run.{run}.cancel"
            await bus.connection.publish(subject, _json_with(said), msg_id=f"m{number}")


def _json_with(text: str) -> bytes:
    return json.dumps({"type": text}).encode()
