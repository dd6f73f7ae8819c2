"""A vendor's box is saved before it is paused, and checked when it is woken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from actors.sandbox.vendor_yard import NEW, OLD, VendorYard, said, vendor_id, vendor_yard
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.failures import Refused
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.news import IDLE
from sandstream_actors.sandbox.reaper import Reaper
from sandstream_bus.logs.sandboxes import SandboxMovedOn
from sandstream_bus.wire.sandboxes import (
    PlanFile,
    SandboxIntended,
    SandboxLost,
    SandboxPaused,
    SandboxReady,
    SandboxSpec,
    WorkspacePlan,
)
from sandstream_providers.interface import ProviderError
from support.nats_server import NatsServer
from support.waiting import until

SPEC = SandboxSpec(
    provider="vendor", plan=WorkspacePlan(files=[PlanFile(path="given", data=b"given\n")])
)
KEPT = SandboxSpec(provider="vendor", plan=SPEC.plan, keep_paused=True)


def play(server: NatsServer, home: Path, plot: Callable[[VendorYard], Awaitable[None]]) -> None:
    async def main() -> None:
        async with vendor_yard(server, home) as it:
            await plot(it)

    asyncio.run(main())


async def events(lifecycle: Lifecycle, kind: type) -> list[object]:
    found = await lifecycle._bus.sandboxes.read("one")
    return [it.event for it in found if isinstance(it.event, kind)]


async def key_of(lifecycle: Lifecycle) -> str:
    return (await lifecycle.record("one")).key


def test_a_box_is_saved_before_it_is_paused(nats_server: NatsServer, tmp_path: Path) -> None:
    async def plot(it: VendorYard) -> None:
        lifecycle, _ = await it.lifecycle()
        opened = await lifecycle.open("one", SPEC)
        key = await key_of(lifecycle)
        assert opened.box_id == vendor_id(key)
        assert await said(lifecycle, "one", "echo new > new; mkdir d; echo deep > d/deep") == ""
        await lifecycle.pause("one", IDLE)
        record = await lifecycle.record("one")
        assert (record.state, record.is_saved, record.is_kept) == ("paused", True, False)
        assert it.host.is_paused(key)
        files = {entry.path for entry in await lifecycle._store.entries(record.tree)}
        assert files == {"given", "new", "d", "d/deep"}
        assert await said(lifecycle, "one", "cat new") == "new"
        record = await lifecycle.record("one")
        assert (record.state, record.generation, record.key) == ("ready", 1, key)
        assert record.box_id == vendor_id(key)

    play(nats_server, tmp_path, plot)


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (["lose"], "2 paths missing"),
        (["cut"], "1 file cut short"),
        (["lose", "cut"], "2 paths missing and 1 file cut short"),
    ],
)
def test_a_box_that_lost_files_while_it_was_paused_is_replaced(
    nats_server: NatsServer, tmp_path: Path, harm: list[str], found: str
) -> None:
    async def plot(it: VendorYard) -> None:
        lifecycle, _ = await it.lifecycle()
        await lifecycle.open("one", SPEC)
        key = await key_of(lifecycle)
        await said(lifecycle, "one", "echo a > a; echo b > b; echo long > c")
        await lifecycle.pause("one", IDLE)
        if "lose" in harm:
            it.host.lose(key, "a", "given")
        if "cut" in harm:
            (it.host.workspace(key) / "c").write_bytes(b"")
        live = await lifecycle.live("one")
        assert live.record.generation == 2
        assert live.record.box_id == vendor_id(live.record.key) != vendor_id(key)
        assert live.notice.startswith(f"The sandbox was lost ({found} after its box was woken)")
        assert await said(lifecycle, "one", "cat given a b c") == "given\na\nb\nlong"
        (lost,) = await events(lifecycle, SandboxLost)
        assert isinstance(lost, SandboxLost) and lost.restorable
        await until(lambda: it.host.billed() == [live.record.key])

    play(nats_server, tmp_path, plot)


def test_other_changes_are_no_loss(nats_server: NatsServer, tmp_path: Path) -> None:
    """A command that was frozen in the middle goes on writing."""

    async def plot(it: VendorYard) -> None:
        lifecycle, _ = await it.lifecycle()
        await lifecycle.open("one", SPEC)
        key = await key_of(lifecycle)
        await lifecycle.pause("one", IDLE)
        workspace = it.host.workspace(key)
        (workspace / "given").write_bytes(b"given and more\n")
        (workspace / "late").write_bytes(b"late\n")
        (workspace / "given").chmod(0o755)
        assert await said(lifecycle, "one", "cat given late") == "given and more\nlate"
        assert await key_of(lifecycle) == key

    play(nats_server, tmp_path, plot)


def test_a_use_by_another_replica_gives_up_a_pause(nats_server: NatsServer, tmp_path: Path) -> None:
    """Otherwise its changes would count as a loss when the box is woken."""

    async def plot(it: VendorYard) -> None:
        (one, host), (two, _) = await it.lifecycle(), await it.lifecycle()
        await one.open("one", SPEC)
        await two.live("one")
        host.may_pause.clear()
        with two.using("one"):
            pause = asyncio.ensure_future(one.pause("one", IDLE))
            await until(lambda: bool(two._removals._tasks) or pause.done())
            await asyncio.gather(*two._removals._tasks)
            host.may_pause.set()
            with pytest.raises(SandboxMovedOn):
                await pause
        assert (await one.record("one")).state == "ready"
        assert not it.host.is_paused(await key_of(one))
        assert await said(two, "one", "rm given; ls") == ""
        await one.pause("one", IDLE)
        assert await said(two, "one", "ls") == ""
        assert (await one.record("one")).generation == 1

    play(nats_server, tmp_path, plot)


def test_an_idle_box_that_is_in_use_again_stays_awake(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def plot(it: VendorYard) -> None:
        lifecycle, _ = await it.lifecycle()
        await lifecycle.open("one", SPEC)
        live = await lifecycle.live("one")
        await lifecycle.checkpoint(live)
        async with lifecycle._store._scans[live.box].lock:  # the pause waits for its checkpoint
            pause = asyncio.ensure_future(lifecycle.pause("one", IDLE))
            await until(lambda: "one" not in lifecycle._live)
            using = lifecycle.using("one")
            using.__enter__()
        await pause
        using.__exit__(None, None, None)
        record = await lifecycle.record("one")
        assert (record.state, lifecycle.idle(float("inf"))) == ("ready", [])
        assert not it.host.is_paused(record.key)
        assert lifecycle._known("one") is not None

    play(nats_server, tmp_path, plot)


def test_a_pause_that_the_vendor_refuses_leaves_the_box_in_use(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def plot(it: VendorYard) -> None:
        lifecycle, host = await it.lifecycle()
        await lifecycle.open("one", SPEC)
        host.refusal = ProviderError("not now")
        with pytest.raises(ProviderError, match="not now"):
            await lifecycle.pause("one", "asked for")
        assert (await lifecycle.record("one")).state == "ready"
        assert await said(lifecycle, "one", "cat given") == "given"

    play(nats_server, tmp_path, plot)


# --- boxes that are kept --------------------------------------------------------------------------


def test_a_closed_sandbox_may_keep_its_box(nats_server: NatsServer, tmp_path: Path) -> None:
    async def plot(it: VendorYard) -> None:
        old, _ = await it.lifecycle(OLD)
        new, _ = await it.lifecycle(NEW)
        await old.open("one", KEPT)
        key = await key_of(old)
        await said(old, "one", "echo new > new")
        saved = await old.close("one", checkpoint=True, delete=False, reason="closed")
        record = await old.record("one")
        assert (record.state, record.is_saved, record.is_kept) == ("paused", True, True)
        assert (saved.tree, saved.files) == (record.tree, 2)
        again = await old.close("one", checkpoint=True, delete=False)
        assert (again.tree, (await old.record("one")).last_seq) == (record.tree, record.last_seq)
        await sweep(new)
        assert (await new.record("one")).last_seq == record.last_seq, "it waits for a session"
        assert it.host.billed() == [key] and it.host.is_paused(key)
        opened = await new.open("one", None, anew=True)
        assert (opened.box_id, opened.generation) == (vendor_id(key), 1)
        assert await said(new, "one", "cat new") == "new"
        record = await new.record("one")
        assert (record.node, record.state, record.is_kept) == (NEW, "ready", False)
        await new.close("one", checkpoint=True, delete=False)
        await new.close("one", checkpoint=False, delete=True)
        assert (await new.record("one")).state == "deleted"
        await until(lambda: it.host.billed() == [])

    play(nats_server, tmp_path, plot)


async def sweep(lifecycle: Lifecycle) -> list[str]:
    reaper = Reaper(lifecycle._bus, lifecycle, lifecycle._provider, every_s=3600)
    return await reaper.sweep()


def test_the_running_box_of_a_program_that_is_gone(nats_server: NatsServer, tmp_path: Path) -> None:
    """Its program may come back until the second look."""

    async def plot(it: VendorYard) -> None:
        old, _ = await it.lifecycle(OLD)
        new, _ = await it.lifecycle(NEW)
        await old.open("one", SPEC)
        key = await key_of(old)
        await said(old, "one", "echo new > new")
        reaper = Reaper(new._bus, new, new._provider, every_s=3600)
        await reaper.sweep()
        record = await new.record("one")
        assert (record.state, it.host.billed()) == ("ready", [key])
        await reaper.sweep()
        record = await new.record("one")
        assert (record.state, record.reason) == ("stopped", "its program is gone")
        await until(lambda: it.host.billed() == [])
        await new.open("one", None)
        assert await said(new, "one", "cat given new") == "given\nnew"

    play(nats_server, tmp_path, plot)


def test_the_kept_box_of_a_session_that_is_gone_is_removed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def plot(it: VendorYard) -> None:
        lifecycle, _ = await it.lifecycle()
        spec = SandboxSpec(provider="vendor", plan=SPEC.plan, session="gone")
        await lifecycle.open("one", spec)
        await lifecycle.close("one", checkpoint=True, delete=False)
        assert (await lifecycle.record("one")).is_kept
        await sweep(lifecycle)
        assert (await lifecycle.record("one")).state == "stopped"
        await until(lambda: not it.host.billed(), what="the box is gone")

    play(nats_server, tmp_path, plot)


def test_a_kept_box_that_the_vendor_deleted_is_restored(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def plot(it: VendorYard) -> None:
        old, _ = await it.lifecycle(OLD)
        new, _ = await it.lifecycle(NEW)
        await old.open("one", KEPT)
        key = await key_of(old)
        await said(old, "one", "echo new > new")
        await old.close("one", checkpoint=True, delete=False)
        await it.host.delete(key)
        opened = await new.open("one", None, anew=True)
        assert opened.box_id not in ("", vendor_id(key))
        assert "its box is gone" in opened.notice
        assert await said(new, "one", "cat given new") == "given\nnew"

    play(nats_server, tmp_path, plot)


def test_a_box_without_a_checkpoint_is_made_again_only_if_asked(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def plot(it: VendorYard) -> None:
        lifecycle, _ = await it.lifecycle()
        await lifecycle.open("one", SPEC)
        key = await key_of(lifecycle)
        await said(lifecycle, "one", "echo new > new")
        await it.host.delete(key)
        lifecycle.forget_all()
        with pytest.raises(Refused, match="it had no checkpoint"):
            await lifecycle.open("one", None)
        opened = await lifecycle.open("one", None, anew=True)
        assert opened.box_id not in ("", vendor_id(key))
        assert opened.notice.startswith("The sandbox was lost (its box is gone) and had no check")
        assert await said(lifecycle, "one", "ls") == "given"

    play(nats_server, tmp_path, plot)


def test_a_box_that_cannot_be_paused_is_not_kept(nats_server: NatsServer, tmp_path: Path) -> None:
    async def plot(it: VendorYard) -> None:
        lifecycle, host = await it.lifecycle()
        await lifecycle.open("one", KEPT)
        await said(lifecycle, "one", "echo new > new")
        host.refusal = ProviderError("this kind of box cannot be paused")
        await lifecycle.close("one", checkpoint=True, delete=False)
        assert (await lifecycle.record("one")).state == "stopped"
        await until(lambda: it.host.billed() == [])
        assert await said(lifecycle, "one", "cat new") == "new"

    play(nats_server, tmp_path, plot)


@pytest.mark.parametrize("keeps", [True, False])
def test_the_box_of_a_program_that_is_gone(
    nats_server: NatsServer, tmp_path: Path, keeps: bool
) -> None:
    """The vendor has put it to sleep. Another program of any machine looks after it."""

    async def plot(it: VendorYard) -> None:
        old, _ = await it.lifecycle(OLD)
        new, _ = await it.lifecycle(NEW)
        await old.open("one", KEPT if keeps else SPEC)
        key = await key_of(old)
        await said(old, "one", "echo new > new")
        await sweep(new)
        assert (await new.record("one")).state == "ready", "it may still be at work"
        await it.host.pause(key)
        await sweep(new)
        record = await new.record("one")
        assert (record.state, record.is_kept) == (("paused", True) if keeps else ("stopped", False))
        await until(lambda: it.host.billed() == ([key] if keeps else []))
        assert await said(new, "one", "cat new") == "new"

    play(nats_server, tmp_path, plot)


def test_the_paused_box_of_a_program_that_is_gone_is_left_paused(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Its run waits for a person: the box costs nothing, and is not stopped."""

    async def plot(it: VendorYard) -> None:
        shared, _ = await it.lifecycle()
        new, _ = await it.lifecycle(NEW)
        await shared.open("one", SPEC)
        await shared.pause("one", IDLE)
        last = (await shared.record("one")).last_seq
        await sweep(new)
        assert (await new.record("one")).last_seq == last
        assert it.host.is_paused(await key_of(new))

    play(nats_server, tmp_path, plot)


def test_a_box_that_another_process_began_to_make_is_found(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """It died before the log said that the box is ready: a second box would cost twice."""

    async def plot(it: VendorYard) -> None:
        old, _ = await it.lifecycle(OLD)
        new, host = await it.lifecycle(NEW)
        await old.open("one", SPEC)
        before = await old.record("one")
        (intended,) = await events(old, SandboxIntended)
        assert isinstance(intended, SandboxIntended)
        await old._bus.sandboxes.append("one", intended, after=before.last_seq)
        opened = await new.open("one", SPEC)
        record = await new.record("one")
        assert (record.key, record.generation, record.node) == (before.key, 1, NEW)
        assert opened.box_id == vendor_id(before.key)
        assert [spec.may_exist for spec in host.specs] == [True]
        assert it.host.billed() == [before.key]

    play(nats_server, tmp_path, plot)


# --- the record -----------------------------------------------------------------------------------


def test_the_record_of_a_kept_box() -> None:
    record = SandboxRecord("one")
    spec = SandboxSpec(run="r1")
    record.apply(1, SandboxIntended(spec=spec, generation=1, provider="vendor", node="n", key="k"))
    record.apply(2, SandboxReady(generation=1, node="n", key="k", root="/w", box_id="v-1"))
    record.apply(3, SandboxPaused(generation=1, saved=True))
    assert (record.is_saved, record.is_kept, record.is_closed) == (True, False, False)
    assert not record.was_let_go_by("r1", 2)
    record.apply(4, SandboxPaused(generation=1, saved=True, kept=True))
    assert record.is_closed and record.is_live and record.box_id == "v-1"
    assert record.was_let_go_by("r1", 3) and not record.was_let_go_by("r1", 5)
    assert not record.is_newer_than(3)
    record.apply(5, SandboxReady(generation=1, node="m", key="k", root="/w", box_id="v-1"))
    assert (record.is_saved, record.is_kept, record.is_closed) == (False, False, False)
    assert record.is_newer_than(3), "a late repeat of the close does not concern it"
