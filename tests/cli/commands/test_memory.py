"""``sandstream memory``: what there is, what it says, how it changed; on a real server."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from cli.cli_process import Cli
from cli.cli_terminal import on_terminal
from sandstream_actors.memory.scope.files import revised, with_files
from sandstream_bus.bus import Bus
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.wire.memories import (
    MemoryChanged,
    MemoryFailed,
    MemoryState,
    Merge,
    Rollout,
    Unfinished,
)
from sandstream_bus.wire.memory_specs import MemoryUse
from support.nats_server import NatsServer, open_bus

from sandstream.cli.commands.memory.merge import Waiting
from sandstream.cli.exits import CliError
from sandstream.client import Client
from sandstream.settings import Settings

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[0m"
AT = "2026-01-31T12:00:00.000Z"
SUMMARY, HANDBOOK = "memories/memory_summary.md", "memories/MEMORY.md"


@pytest.fixture
def cli(nats_server: NatsServer, tmp_path: Path) -> Iterator[Cli]:
    """Commands on a server where nobody serves anything."""
    cli = Cli(tmp_path / "home", "http://127.0.0.1:9")
    nats_server.set_up()
    cli.env["NATS_URL"] = nats_server.url
    yield cli


def on_bus(cli: Cli, work: Any) -> Any:
    """What the work, a coroutine function of a bus, comes to."""

    async def main() -> Any:
        async with await Client.connect(Settings.from_env(cli.env)) as client:
            return await work(client.bus)

    return asyncio.run(main())


async def put(
    bus: Bus,
    scope: str,
    files: Mapping[str, bytes | None],
    *,
    by: str = "memory-1",
    runs: tuple[str, ...] = (),
    remarks: tuple[str, ...] = (),
    **more: Any,
) -> MemoryState:
    """A consolidation with these files."""

    async def decide(state: MemoryState) -> MemoryState:
        tree = await with_files(bus, scope, state.tree, files)
        state = msgspec.structs.replace(state, **more)
        return await revised(bus, state, tree, "merge", by=by, runs=runs, remarks=remarks)

    return await bus.memories.change(scope, decide)


def rollout(name: str, **more: Any) -> Rollout:
    made = Rollout(id=name, name=name, runs=[f"run-{name}"], updated_at=AT, extracted=1)
    return msgspec.structs.replace(made, **more)


async def alice(bus: Bus) -> None:
    """A memory with a bit of everything."""
    rollouts = {
        "a": rollout("a", is_merged=True, slug="tabs"),
        "b": rollout("b", slug="names"),
        "c": rollout("c", extracted=0, extracting="x-1", attempt=2),
        "d": rollout("d", extracted=0, problem=f"no {HOSTILE} JSON"),
        "e": rollout("e", empty=True),
    }
    await put(
        bus,
        "alice",
        {
            HANDBOOK: b"# Style\n- spaces\n",
            SUMMARY: f"She likes tabs. {HOSTILE}\n".encode(),
            "memories/raw_memories/a.md": b"tabs",
            "memories/raw_memories/b.md": b"names",
            "sessions/a.jsonl": b"\xff\xfe",
        },
        runs=("run-a",),
        rollouts=rollouts,
        selected=["a"],
        use=MemoryUse(memories_dir="notes"),
    )
    left_out = f"{HOSTILE}.md was deleted"
    await put(bus, "alice", {HANDBOOK: b"# Style\n- tabs\n"}, runs=("run-b",), remarks=(left_out,))


def test_the_list_says_what_is_pending_and_what_failed(cli: Cli) -> None:
    async def prepare(bus: Bus) -> None:
        await alice(bus)
        await put(bus, "sandbox:box-1", {SUMMARY: b"x"})

    assert "no memories" in cli.here("memory").err
    on_bus(cli, prepare)
    found = cli.here("memory", "--json").one
    assert (found["scope"], found["revision"], found["rollouts"], found["runs"]) == (
        "alice",
        2,
        5,
        5,
    )
    assert (found["to_extract"], found["given_up"], found["to_merge"]) == (1, 1, 1)
    assert found["problems"] == [f"rollout d: no {HOSTILE} JSON"]
    assert found["size_bytes"] == sum(map(len, ("# Style\n- tabs\n", "tabs", "names", ".."))) + len(
        f"She likes tabs. {HOSTILE}\n"
    )
    listed = cli.here("memory")
    header, row = listed.out.splitlines()
    assert header.split() == [
        "SCOPE",
        "REV",
        "ROLLOUTS",
        "SIZE",
        "CHANGED",
        "EXTRACT",
        "MERGE",
        "PROBLEM",
    ]
    assert row.split()[:3] == ["alice", "2", "5"] and "\x1b" not in listed.out
    assert "1 of workspaces: --all" in listed.err
    scopes = {it["scope"] for it in cli.here("memory", "ls", "--all", "--json").lines}
    assert scopes == {"alice", "sandbox:box-1"}


def test_a_memory_is_shown_with_its_rollouts_files_and_summary(cli: Cli) -> None:
    on_bus(cli, alice)
    shown = cli.here("memory", "show", "alice")
    assert shown.code == 0 and "\x1b" not in shown.out
    facts, rollouts, files, summary = shown.out.split("\n\n")
    assert "1 rollout to extract, 1 given up, 1 to merge" in facts
    states = {line.split()[0]: line for line in rollouts.splitlines()[1:]}
    for name, state in zip(
        "abcde",
        ("merged", "to merge", "extracting, try 2", "failed", "nothing to keep"),
        strict=True,
    ):
        assert state in states[name] and f"run-{name}" in states[name]
    assert "raw_memories/ (2 files)" in files and "MEMORY.md" in files
    assert summary.splitlines() == ["SUMMARY", "She likes tabs. 0;ownedred"]
    whole = cli.here("memory", "show", "alice", "--json").one
    assert whole["text"] == f"She likes tabs. {HOSTILE}\n"
    assert [it["id"] for it in whole["rollouts"]] == list("abcde")
    assert {it["path"] for it in whole["files"]} >= {HANDBOOK, SUMMARY}


def test_a_file_is_found_by_any_of_its_names(cli: Cli) -> None:
    on_bus(cli, alice)
    for name in ("MEMORY.md", HANDBOOK, "notes/MEMORY.md", "./notes//MEMORY.md"):
        assert cli.here("memory", "show", "alice", name).out == "# Style\n- tabs\n"
    assert cli.here("memory", "show", "alice", "--raw").out == f"She likes tabs. {HOSTILE}\n"
    below = cli.here("memory", "show", "alice", "raw_memories")
    assert [it.split()[-1] for it in below.out.splitlines()[1:]] == [
        "raw_memories/a.md",
        "raw_memories/b.md",
    ]
    record = cli.here("memory", "show", "alice", "sessions/a.jsonl", "--json").one
    assert record == {"path": "sessions/a.jsonl", "size_bytes": 2, "data": "//4="}


def test_what_is_not_there_is_said_with_what_is_near(cli: Cli) -> None:
    on_bus(cli, alice)
    for arguments, near in {
        ("show", "alicia"): "'alice'",
        ("show", "alice", "memory.md"): "'MEMORY.md'",
        ("diff", "alice", "7"): "near it: 1, 2",
        ("undo", "alice", "7"): "near it: 1, 2",
        ("rm", "alice", "--run", "run_a", "--yes"): "'run-a'",
        ("rm", "alice", "--rollout", "f", "--yes"): "no rollout 'f'",
        ("rm", "bob", "--yes"): "no memory 'bob'",
        ("merge", "Alice"): "'alice'",
    }.items():
        done = cli.here("memory", *arguments)
        assert (done.code, done.out) == (3, "") and near in done.err, done
    assert cli.here("memory", "show", "").code == 2
    assert cli.here("memory", "show", "alice", "skills\x1b[2J").err.count("\x1b") == 0
    assert cli.here("memory", "show", "alice", "--raw", "--json").code == 2
    assert cli.here("memory", "show", "alice", "raw_memories", "--raw").code == 2


def test_a_diff_is_that_of_one_change(cli: Cli) -> None:
    async def prepare(bus: Bus) -> None:
        await alice(bus)
        await bus.memories.change("bob", _touched)

    async def _touched(state: MemoryState) -> MemoryState:
        return msgspec.structs.replace(state, merges=1)

    on_bus(cli, prepare)
    last = cli.here("memory", "diff", "alice")
    assert "revision 2 · merge" in last.err and "by memory-1 · of 1 run" in last.err
    assert "red.md was deleted" in last.err and "\x1b" not in last.err
    assert "-- spaces\n+- tabs\n" in last.out and SUMMARY not in last.out
    first = cli.here("memory", "diff", "alice", "1", "--json").one
    assert first["change"]["runs"] == ["run-a"] and "+- spaces\n" in first["diff"]
    listed = cli.here("memory", "diff", "alice", "--list").out.splitlines()[1:]
    assert [it.split()[:2] for it in listed] == [["2", "merge"], ["1", "merge"]]
    none = cli.here("memory", "diff", "bob")
    assert (none.code, none.out) == (0, "") and "no changes yet" in none.err


def test_a_file_or_a_change_may_be_named_behind_options(cli: Cli) -> None:
    on_bus(cli, alice)
    assert cli.here("memory", "show", "alice", "--raw", HANDBOOK).out == "# Style\n- tabs\n"
    assert cli.here("memory", "diff", "alice", "--json", "1").one["change"]["number"] == 1
    for wrong, why in (("x", "not a whole number"), ("0", "not above zero")):
        done = cli.here("memory", "undo", "alice", "--as", "ada", wrong)
        assert done.code == 2 and why in done.err
    for more in (("1", "2"), ("1", "--nope"), ("--nope", "1")):
        done = cli.here("memory", "undo", "alice", "--as", "ada", *more)
        assert done.code == 2 and "unrecognized arguments: " in done.err


def test_a_merge_is_asked_for_and_waits_for_an_actor(cli: Cli) -> None:
    async def prepare(bus: Bus) -> None:
        await alice(bus)
        await put(bus, "bob", {SUMMARY: b"x"})

    async def requests(bus: Bus) -> list[str]:
        subject = f"{bus.subjects.prefix}.memory.*.merge"
        found = await stale_many(bus.connection, bus.topology.log, subject, after=0)
        return [f"{it.subject} {it.data.decode()}" for it in found]

    on_bus(cli, prepare)
    asked = cli.here("memory", "merge", "alice", "--json")
    assert asked.code == 0 and asked.one["scope"] == "alice"
    assert "no memory actor is live" in asked.err
    assert "nothing is left to consolidate" in cli.here("memory", "merge", "bob").err
    assert on_bus(cli, requests) == [
        'sandstream.memory.alice.merge {"type":"memory.merge","reason":"asked"}'
    ]
    late = cli.here("memory", "merge", "alice", "--wait", "--timeout", "0.3")
    assert late.code == 5 and "it continues in the background" in late.err
    assert cli.here("memory", "merge", "alice", "--timeout", "1").code == 2


def test_doctor_says_that_work_waits_and_what_is_parked(cli: Cli) -> None:
    def memory() -> Any:
        lines = cli.here("doctor", "--json").lines
        return next(check for check in lines if check["name"] == "memory")

    async def settle(bus: Bus) -> None:
        await bus.memories.delete("alice")
        await bus.memories.change("bob", _bob)

    async def _bob(state: MemoryState) -> MemoryState:
        return msgspec.structs.replace(state, revision=1)

    async def leave_unread(bus: Bus) -> None:
        await bus.memories.change("asked for", _asked)
        spec = ConsumerSpec(name="memory", filters=[bus.subjects.done("*")])
        await bus.topology.ensure_consumer(bus.connection, spec)
        await bus.connection.publish(bus.subjects.done("r1"), b"{}", msg_id="r1")

    async def _asked(state: MemoryState) -> MemoryState:
        return msgspec.structs.replace(state, wanted="asked")

    async def take_and_die(bus: Bus) -> None:
        """What a reader that was killed has taken is not acknowledged, and nobody is there."""
        client = await nats.connect(cli.env["NATS_URL"])
        log = bus.topology.log
        reader = await client.jetstream().pull_subscribe_bind("memory", stream=log)
        await reader.fetch(1)
        await client.close()
        info = await bus.topology.consumer_info(bus.connection, "memory")
        assert info is not None and info["num_ack_pending"] == 1

    on_bus(cli, alice)
    found = memory()
    assert found["state"] == "warning" and "work on alice" in found["found"]
    assert "sandstream actor memory" in found["todo"]
    on_bus(cli, settle)
    assert memory()["found"] == "no actor is live; 1 scope, nothing waits"
    on_bus(cli, leave_unread)
    on_bus(cli, lambda bus: bus.memories.delete("bob"))
    assert "a memory actor has 1 message to read" in cli.here("memory").err
    on_bus(cli, lambda bus: bus.memories.change("bob", _bob))
    assert "no actor is live; 1 message not read yet" in memory()["found"]
    on_bus(cli, take_and_die)
    assert "no actor is live; 1 message not read yet" in memory()["found"]
    assert "perhaps unread runs" in cli.here("memory", "merge", "bob").err


def test_an_undo_is_a_change_that_can_be_undone(cli: Cli) -> None:
    on_bus(cli, alice)
    undone = cli.here("memory", "undo", "alice", "--as", "ann")
    assert undone.code == 0, undone
    assert undone.out == "M MEMORY.md\n"
    assert "revision 3 · undo" in undone.err and "by ann" in undone.err
    assert cli.here("memory", "show", "alice", "MEMORY.md").out == "# Style\n- spaces\n"
    again = cli.here("memory", "undo", "alice", "3", "--json").one
    assert (again["revision"], again["changed"]) == (4, [HANDBOOK])
    assert cli.here("memory", "show", "alice", "MEMORY.md").out == "# Style\n- tabs\n"


def test_what_came_from_a_run_is_forgotten_with_all_that_was_derived(cli: Cli) -> None:
    on_bus(cli, alice)
    unasked = cli.here("memory", "rm", "alice", "--run", "run-a")
    assert unasked.code == 2 and "use --yes" in unasked.err
    done = cli.here("memory", "rm", "alice", "--run", "run-a", "--yes", "--json")
    assert done.one["runs"] == ["run-a"]
    assert {"memories/raw_memories/a.md", "sessions/a.jsonl"} <= set(done.one["removed"])
    whole = cli.here("memory", "show", "alice", "--json").one
    assert [it["id"] for it in whole["rollouts"]] == ["b", "c", "d", "e"]
    kind = cli.here("memory", "diff", "alice", "--list", "--json").lines[0]["kind"]
    assert kind == "remove"
    assert cli.here("memory", "rm", "alice", "--rollout", "b", "--yes").code == 0
    assert cli.here("memory", "show", "alice", "raw_memories").code == 3


def test_a_removal_that_was_interrupted_is_completed_by_the_same_command(cli: Cli) -> None:
    async def interrupted(bus: Bus) -> None:
        await alice(bus)
        await put(bus, "bob", {HANDBOOK: b"# Style\n"})
        unfinished = Unfinished(kind="remove", revision=3, at=AT, rollouts=["z"])

        async def decide(state: MemoryState) -> MemoryState:
            return msgspec.structs.replace(state, forgotten=["run-z"], unfinished=unfinished)

        await bus.memories.change("alice", decide)
        gone = Unfinished(kind="delete", revision=3, at=AT)

        async def emptied(state: MemoryState) -> MemoryState:
            outdated = await bus.memories.all_of("bob")
            return MemoryState(scope="bob", outdated=outdated, unfinished=gone)

        await bus.memories.change("bob", emptied)

    async def unfinished(bus: Bus) -> tuple[Any, Any]:
        state = (await bus.memories.read("alice")).state
        return state.unfinished, (await bus.memories.stored()).keys()

    on_bus(cli, interrupted)
    for arguments in (("alice", "--rollout", "z"), ("alice", "--run", "run-z"), ("bob",)):
        done = cli.here("memory", "rm", *arguments, "--yes")
        assert done.code == 0, done
    assert on_bus(cli, unfinished) == (None, {"alice"})
    assert cli.here("memory", "rm", "bob", "--yes").code == 3


def test_a_whole_memory_is_forgotten_once_somebody_has_agreed(cli: Cli) -> None:
    on_bus(cli, alice)
    code, text, _ = on_terminal(cli, "memory", "rm", "alice", typed="n\n")
    assert code == 1 and "forget all of memory alice (5 rollouts, 5 files" in text
    assert "nothing was forgotten" in text
    ours, theirs = pty.openpty()
    asking = cli.start("memory", "rm", "alice", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    told = b""
    while b"[y/N]" not in told:
        told += os.read(ours, 1024)
    asking.send_signal(signal.SIGINT)
    assert asking.wait(30) == 130
    os.close(ours)
    done = cli.here("memory", "rm", "alice", "--yes")
    assert done.code == 0 and "forgotten: memory alice (5 rollouts" in done.err
    assert cli.here("memory", "--json").out == ""


def test_a_diff_on_a_terminal_is_coloured_and_harmless(cli: Cli) -> None:
    async def prepare(bus: Bus) -> None:
        await put(bus, "alice", {HANDBOOK: f"# Style\n{HOSTILE}\n".encode()})

    on_bus(cli, prepare)
    code, text, raw = on_terminal(cli, "memory", "diff", "alice")
    assert code == 0 and "\x1b[32m+# Style\x1b[0m" in raw
    assert "+0;ownedred\n" in text and "\x1b]" not in raw


def test_who_waits_for_a_merge_is_told_what_happens(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async def settled(state: MemoryState) -> MemoryState:
        rollouts = {"b": rollout("b", is_merged=True, slug="names")}
        return msgspec.structs.replace(state, rollouts=rollouts, selected=["b"], merging=None)

    async def merging(state: MemoryState) -> MemoryState:
        merge = Merge(number=1, run="m-1", sandbox="s", base="", selected=["b"])
        return msgspec.structs.replace(state, merging=merge)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await alice(bus)
            spec = ConsumerSpec(name="memory", filters=[bus.subjects.done("*")])
            await bus.topology.ensure_consumer(bus.connection, spec)
            subject = bus.subjects.memory_event("alice")
            await bus.memories.change("alice", merging)
            waits = asyncio.ensure_future(Waiting(bus, "alice", 0).wait())
            failed = MemoryFailed(step="extract", attempt=1, error=f"no {HOSTILE}", rollout="c")
            await bus.memories.send(subject, failed, msg_id="1")
            changed = MemoryChanged(revision=3, kind="merge", runs=["run-b"])
            await bus.memories.send(subject, changed, msg_id="2")
            while "merge of 1 run" not in "".join(told):
                assert not waits.done(), waits.exception()
                await asyncio.sleep(0.05)
                told.append(capsys.readouterr().err)
            await bus.memories.change("alice", settled)
            assert (await waits).merging is None
            final = MemoryFailed(step="merge", attempt=4, error="refused", is_final=True)
            await bus.memories.send(subject, final, msg_id="3")
            with pytest.raises(CliError, match=r"merge failed \(try 4\): refused; given up"):
                await Waiting(bus, "alice", 0).wait()

    told: list[str] = []
    asyncio.run(main())
    text = "".join(told)
    assert "consolidates: sandstream watch m-1\n" in text and "\x1b" not in text
    assert "extraction of rollout c failed (try 1): no 0;ownedred; it is tried again\n" in text
    assert "revision 3: merge of 1 run\n" in text
