"""Terminals at Daytona: bytes pass unchanged both ways, and nothing is left behind."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from providers.daytona.daytona_boxes import (
    Requests,
    Talk,
    in_loop,
    new_box,
    vendor_at,
)
from sandstream_providers.daytona import vendor as adapter
from sandstream_providers.daytona.vendor import DaytonaVendor
from sandstream_providers.hosted.errors import NoSuchBox, VendorBusy, VendorSilent
from support.waiting import eventually, until
from vendors.faults import Fault
from vendors.process import VendorServer

OPEN = "WS /toolbox/process/pty/create-connect"
KILL = "DELETE /toolbox/process/pty/{terminal}"


async def raw(vendor: DaytonaVendor, box: str, program: str) -> Talk:
    """A terminal in raw mode in which only this program runs."""
    talk = Talk(await vendor.terminal(box))
    await talk.terminal.send(f" stty raw -echo; echo REA''DY; exec {program}\n".encode())
    await talk.until(b"READY\n")
    return talk


@in_loop
async def test_all_bytes_pass_both_ways(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        talk = await raw(vendor, box.id, "cat")
        sent = bytes(range(256)) * 2000 + b"the end"
        sending = asyncio.create_task(talk.terminal.send(sent))
        assert await talk.until(b"the end") == sent
        await sending
        await talk.terminal.close()


@in_loop
async def test_much_data_is_sent_in_small_frames(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        data = b"0123456789abcdef" * 20_000
        talk = await raw(vendor, box.id, f"sh -c 'head -c {len(data)} | sha256sum; cat'")
        await talk.terminal.send(data)
        said = await talk.until(b"\n")
        assert said.split()[0].decode() == hashlib.sha256(data).hexdigest()
        await talk.terminal.close()


@in_loop
async def test_output_waits_until_it_is_asked_for(server: VendorServer) -> None:
    pieces = 500
    writer = "i=0; while [ $i -lt %d ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i >at; done"
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        talk = await raw(vendor, box.id, f"sh -c '{writer % pieces}; cat'")
        at = ""

        async def stands_still() -> bool:
            nonlocal at
            before, at = at, await vendor.execute(box.id, "cat at; sleep 0.3", timeout_s=5)
            return at != "" and at == before

        await eventually(stands_still)
        assert int(at) < pieces / 2
        read = 0
        while read < pieces * 65536:
            read += len(await talk.rest())
        await talk.terminal.close()


@in_loop
async def test_the_end_of_the_shell_ends_the_terminal(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        talk = await raw(vendor, box.id, "sh -c 'echo bye; exit 7'")
        terminal = talk.terminal
        assert await talk.until(b"bye\n") == b"bye\n"
        assert await terminal.receive() == b""
        assert await terminal.receive() == b""
        with pytest.raises(OSError, match="has ended"):
            await terminal.send(b"more")
        requests = Requests(server)
        await terminal.close()
        assert requests.names() == []


@in_loop
async def test_close_ends_the_shell(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        terminal = (await raw(vendor, box.id, "sleep 4242")).terminal
        requests = Requests(server)
        await terminal.close()
        await terminal.close()
        assert requests.names() == [KILL]
        assert await vendor.execute(box.id, "pgrep -f 'sleep 424[2]'", timeout_s=5) == ""
        assert await terminal.receive() == b""
        with pytest.raises(OSError):
            await terminal.send(b"more")


@in_loop
async def test_close_ends_one_who_waits_for_output(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        terminal = (await raw(vendor, box.id, "sleep 1000")).terminal
        waiting = asyncio.create_task(terminal.receive())
        await asyncio.sleep(0)
        await terminal.close()
        assert await waiting == b""


@in_loop
async def test_a_connection_that_breaks(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        server.add_fault(Fault(OPEN, "cut", messages=3))
        terminal = await vendor.terminal(box.id)
        await terminal.send(b"sleep 4243 & yes\n")
        while await terminal.receive():
            pass

        async def is_refused() -> None:
            while True:
                await terminal.send(b"x")
                await asyncio.sleep(0.01)

        with pytest.raises(OSError):
            await is_refused()
        requests = Requests(server)
        await terminal.close()
        assert requests.names() == [KILL]
        assert await vendor.execute(box.id, "pgrep -x yes", timeout_s=5) == ""


@in_loop
async def test_a_box_that_stops_ends_its_terminals(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        terminal = (await raw(vendor, box.id, "cat")).terminal
        await vendor.stop(box.id)
        assert await terminal.receive() == b""
        await terminal.close()
        other = await new_box(vendor)
        terminal = (await raw(vendor, other.id, "cat")).terminal
        server.delete(other.id)
        await until(lambda: [it.id for it in server.boxes()] == [box.id])
        assert await terminal.receive() == b""
        await terminal.close()
        with pytest.raises(NoSuchBox):
            await vendor.terminal(other.id)


@in_loop
async def test_a_vendor_that_opens_no_terminal(server: VendorServer) -> None:
    async with vendor_at(server) as vendor, vendor_at(server, call_s=0.5) as hasty:
        box = await new_box(hasty)
        server.add_fault(Fault(OPEN, "hang"))
        with pytest.raises(VendorSilent, match="open a terminal"):
            await hasty.terminal(box.id)
        server.add_fault(Fault(OPEN, "cut"))
        with pytest.raises(VendorSilent, match="no terminal"):
            await vendor.terminal(box.id)
        server.add_fault(Fault(OPEN, "status", status=429, headers={"Retry-After": "3"}))
        with pytest.raises(VendorBusy) as busy:
            await vendor.terminal(box.id)
        assert busy.value.retry_after_s == 3.0
        assert await vendor.execute(box.id, "ls /dev/pts | grep -cv ptmx", timeout_s=5) == "0\n"


@in_loop
async def test_a_caller_that_gives_up(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        server.add_fault(Fault(OPEN, "hang"))
        opening = asyncio.create_task(vendor.terminal(box.id))
        await until(lambda: server.journal()[-1].name == OPEN)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening


@in_loop
async def test_a_kill_that_fails_does_not_keep_the_connection(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        terminal = (await raw(vendor, box.id, "cat")).terminal
        server.add_fault(Fault(KILL, "hang"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(adapter, "KILL_S", 0.3)
            await terminal.close()
        assert await terminal.receive() == b""
