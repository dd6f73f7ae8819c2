"""Terminals of E2B boxes: bytes both ways, their end, and what a pause does to them."""

from __future__ import annotations

import asyncio
import os
import re

import pytest
from providers.e2b.e2b_vendors import Arrivals, adapter, new_spec
from sandstream_providers.e2b import terminal as terminals
from sandstream_providers.hosted.vendor import Terminal
from support.waiting import until
from vendors.e2b_boxes import in_loop
from vendors.faults import Fault
from vendors.process import VendorServer

START, INPUT = "POST /process.Process/Start", "POST /process.Process/SendInput"
SIGNAL, PAUSE = "POST /process.Process/SendSignal", "POST /sandboxes/{box}/pause"


async def heard(terminal: Terminal, mark: bytes, said: bytes = b"") -> bytes:
    """All up to and with the mark, and what came with it."""
    while mark not in said:
        data = await terminal.receive()
        assert data, said[-200:]
        said += data
    return said


async def raw(terminal: Terminal, command: bytes) -> bytes:
    """Let the terminal pass all bytes, and run a command. Returns the first bytes of its output."""
    await terminal.send(b"stty raw -echo; printf '%s%s' BE GIN; " + command + b"\n")
    return (await heard(terminal, b"BEGIN")).partition(b"BEGIN")[2]


@in_loop
async def test_bytes_pass_both_ways(vendor: VendorServer) -> None:
    data = bytes(range(256)) * 8 + os.urandom(700_000)
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        terminal = await e2b.terminal(box.id)
        said = await raw(terminal, b"exec cat")
        arrivals = Arrivals(vendor)
        sending = asyncio.create_task(terminal.send(data))
        while len(said) < len(data):
            said += await terminal.receive()
        await sending
        assert said == data
        assert arrivals.names() == [INPUT] * 3
        await terminal.close()


@in_loop
async def test_one_sender_after_the_other(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        terminal = await e2b.terminal(box.id)
        said = await raw(terminal, b"exec cat")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(terminals, "CHUNK", 10)
            await asyncio.gather(*(terminal.send(b"%d" % it * 100) for it in range(4)))
        while len(said) < 400:
            said += await terminal.receive()
        assert said == b"".join(b"%d" % it * 100 for it in range(4))
        await terminal.close()


@in_loop
async def test_much_output_waits_in_the_box(vendor: VendorServer) -> None:
    """The last line is written only after all the others were received."""
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        terminal = await e2b.terminal(box.id)
        said = await raw(terminal, b"seq 1 3000000; echo last >file; cat")
        assert await e2b.execute(box.id, "cat file || echo none", timeout_s=30) == "none\n"
        parts = [said]
        size, lines = len(said), b"".join(b"%d\n" % it for it in range(1, 3_000_001))
        while size < len(lines):
            parts.append(await terminal.receive())
            size += len(parts[-1])
        assert b"".join(parts) == lines
        await terminal.send(b"x")
        assert await terminal.receive() == b"x"
        assert await e2b.execute(box.id, "cat file || echo none", timeout_s=30) == "last\n"
        await terminal.close()


@in_loop
async def test_a_shell_that_ends(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        terminal = await e2b.terminal(box.id)
        await raw(terminal, b"exit 3")
        while await terminal.receive():
            pass
        assert await terminal.receive() == b""
        with pytest.raises(OSError, match="has ended"):
            await terminal.send(b"x")
        arrivals = Arrivals(vendor)
        await terminal.close()
        await terminal.close()
        assert arrivals.names() == []


@in_loop
async def test_nothing_is_left_of_a_closed_terminal(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        terminal = await e2b.terminal(box.id)
        await raw(terminal, b"echo $$ >pid; sleep 1000; cat")
        waiting = asyncio.create_task(terminal.receive())
        await terminal.close()
        assert await waiting == b""
        assert await terminal.receive() == b""
        with pytest.raises(OSError, match="has ended"):
            await terminal.send(b"x")
        alive = "kill -0 $(cat pid) && echo alive"
        while await e2b.execute(box.id, alive, timeout_s=30):
            pass
        assert asyncio.all_tasks() == {asyncio.current_task()}


@in_loop
async def test_a_terminal_that_no_one_reads_is_closed(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        terminal = await e2b.terminal(box.id)
        await raw(terminal, b"yes")
        await terminal.close()
        assert await terminal.receive() == b""
        assert asyncio.all_tasks() == {asyncio.current_task()}


@in_loop
async def test_a_connection_that_is_cut(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        vendor.add_fault(Fault(START, "cut", messages=1))
        terminal = await e2b.terminal(box.id)
        while await terminal.receive():
            pass
        await terminal.close()


@pytest.mark.parametrize("kind", ["lost", "drop", "status"])
def test_input_that_may_be_lost(vendor: VendorServer, kind: str) -> None:
    """Nothing follows a piece that may be missing."""

    @in_loop
    async def test(vendor: VendorServer) -> None:
        async with adapter(vendor) as e2b:
            box = await e2b.create(new_spec())
            terminal = await e2b.terminal(box.id)
            vendor.add_fault(Fault.from_json({"match": INPUT, "kind": kind}))
            with pytest.raises(OSError, match="does not take input"):
                await terminal.send(b"one")
            arrivals = Arrivals(vendor)
            with pytest.raises(OSError, match="has ended"):
                await terminal.send(b"two")
            await terminal.close()
            assert arrivals.names() == [SIGNAL]

    test(vendor)


@in_loop
async def test_a_program_that_does_not_read(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        terminal = await e2b.terminal(box.id)
        await raw(terminal, b"sleep 1000")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(terminals, "SEND_S", 0.5)
            with pytest.raises(OSError, match="does not take input"):
                await terminal.send(b"x" * 1_000_000)
        await terminal.close()


@in_loop
async def test_a_pause_is_not_undone_by_a_terminal(vendor: VendorServer) -> None:
    """Any request to a box with ``auto_resume`` wakes it, also the SDK's own."""
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        terminal = await e2b.terminal(box.id)
        arrivals = Arrivals(vendor)
        await e2b.pause(box.id)
        assert await terminal.receive() == b""
        assert arrivals.names() == [SIGNAL, PAUSE]

        await e2b.wake(box.id)
        terminal = await e2b.terminal(box.id)
        arrivals = Arrivals(vendor)
        vendor.expire(box.id)
        while await terminal.receive():
            pass
        await terminal.close()
        assert arrivals.names() == []
        assert [it.state for it in vendor.boxes()] == ["paused"]

        await e2b.wake(box.id)
        terminal = await e2b.terminal(box.id)
        arrivals = Arrivals(vendor)
        await e2b.stop(box.id)
        await terminal.close()
        assert arrivals.names() == [PAUSE]


@in_loop
async def test_a_vendor_closes_its_terminals(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        one, other = [await e2b.terminal(box.id) for _ in range(2)]
        await one.close()
    assert await one.receive() == await other.receive() == b""
    calls = [call for call in vendor.journal() if call.name == SIGNAL and call.box == box.id]
    assert len(calls) == 2
    # the server ends a stream when its client has gone
    await until(lambda: None not in [it.seconds for it in vendor.journal() if it.box == box.id])


@in_loop
async def test_it_is_a_login_shell_with_a_size(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        await e2b.execute(box.id, "echo 'FROM=profile' >~/.bash_profile", timeout_s=30)
        terminal = await e2b.terminal(box.id)
        await terminal.send(b"echo $FROM $(stty size) E''ND\n")
        said = await heard(terminal, b"END")
        assert re.search(rb"profile 50 200 END", said)
        await terminal.close()
