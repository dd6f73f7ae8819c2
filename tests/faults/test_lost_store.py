"""The store is emptied or replaced by an older copy while actors and callers are at work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from faults.installation import Installation
from sandstream_bus.embedded.lease import stop_server
from sandstream_bus.errors import LogLost
from support.waiting import until

from sandstream import Agent, Runner, function_tool
from sandstream._run.process import Process
from sandstream.testing import ScriptedModel, script_for, text, tool_call

GONE = "the stream SANDSTREAM_LOG is gone: the NATS store at"
OTHER = "the log is another one than before: the NATS store was emptied or replaced."
OLDER = "the log was set back: it ended at "
DROPPED = "dropped work that the log no longer contains: "


def do(name: str, *more: Any) -> Any:
    """A conversation in which the tool is called once."""
    return script_for(name, [tool_call("act", {"name": name}), text(f"{name} is done.")])


def command(line: str) -> Any:
    return tool_call("exec_command", {"cmd": line})


def test_an_emptied_store_is_said_once_and_work_begins_anew(tmp_path: Path) -> None:
    """The runs of the lost log are gone. Their callers hear of it, and no result of their calls
    gets into the new log.
    """

    async def main(here: Installation) -> None:
        waiting = asyncio.ensure_future(here.cli("submit", "clerk", "first", "--wait"))
        await until(lambda: here.effects == ["first"], what="the call is under way")

        await asyncio.to_thread(here.empty_store)
        for name in ("harness", "worker"):
            line = await here.actors[name].says(GONE)
            assert "Restore it from a backup, or run `sandstream setup`" in line
            assert "to start with an empty log." in line
        caller = await waiting
        assert (caller.code, caller.out) == (1, "")
        assert GONE in caller.err
        run = caller.err.split()[1]
        (found,) = await here.doctor("log")
        assert found["state"] == "problem"
        assert "the NATS store was emptied or replaced" in found["found"]

        await asyncio.to_thread(here.make_streams)
        for name in ("harness", "worker"):
            await here.actors[name].says(OTHER)
        dropped = await here.actors["worker"].says(DROPPED)
        assert f"run {run}, call t1-0" in dropped
        await here.actors["worker"].says("agents are registered again: clerk, coder")
        here.open_gate("first")
        here.open_gate("second")
        again = await here.cli("submit", "clerk", "second", "--wait")
        assert (again.code, again.out) == (0, "second is done.\n")
        assert here.effects == ["first", "second"]
        for actor in here.actors.values():
            assert actor.count(GONE) == actor.count(OTHER) == 1, actor.said
            assert "Traceback" not in actor.said
        shown = await here.cli("show", run)
        assert "there is no run" in shown.err

    with (
        ScriptedModel(conversations=[do("first"), do("second")], strict=False) as model,
        Installation(tmp_path / "it", model.base_url) as here,
    ):
        here.start_all()
        asyncio.run(main(here))


def test_a_command_of_a_lost_part_of_the_log_is_reported_and_not_repeated(tmp_path: Path) -> None:
    """An older copy of the store is put back. A sandbox remembers a command that the log does not
    know, and the run hears of it.
    """

    async def main(here: Installation) -> None:
        waiting = asyncio.ensure_future(here.cli("submit", "coder", "work", "--wait"))
        await until(lambda: here.effects == ["before"], what="the first call is under way")
        copy = await asyncio.to_thread(here.copy_store)
        here.open_gate("before")
        await until(lambda: here.effects[1:] == ["after"], what="the second call is under way")
        assert here.in_boxes("two.txt") == ["two"]

        await asyncio.to_thread(here.replace_store, copy)
        for actor in here.actors.values():
            line = await actor.says(OLDER)
            assert "The NATS store was replaced by an older copy" in line
        dropped = await here.actors["worker"].says(DROPPED)
        assert "call t4-0" in dropped
        # the function tool may run again, the command must not
        await until(lambda: here.effects[2:] == ["before", "after"], within_s=30)
        assert here.in_boxes("two.txt") == ["two"]
        said = await here.actors["sandbox"].says("knows a call that the log does not: run ")
        assert "call t3-0" in said
        here.open_gate("after")
        caller = await waiting
        assert (caller.code, caller.out) == (0, "All done.\n"), caller
        shown = await here.cli("show", caller.err.split()[1])
        assert "log_lost" in shown.out, shown.out
        (found,) = await here.doctor("log")
        assert found["state"] == "warning"
        assert OLDER in found["found"]
        for actor in here.actors.values():
            assert actor.count(OLDER) == 1, actor.said
            assert "Traceback" not in actor.said

    work = [
        command("echo one >> one.txt"),
        tool_call("act", {"name": "before"}),
        command("echo two >> two.txt"),
        tool_call("act", {"name": "after"}),
        text("All done."),
    ]
    with (
        ScriptedModel(conversations=[script_for("work", work)], strict=False) as model,
        Installation(tmp_path / "it", model.base_url) as here,
    ):
        here.start_all(sandbox=True)
        asyncio.run(main(here))


def test_boxes_of_a_lost_log_are_named_and_left_alone(tmp_path: Path) -> None:
    async def main(here: Installation) -> None:
        waiting = asyncio.ensure_future(here.cli("submit", "coder", "work", "--wait"))
        await until(lambda: here.effects == ["after"], within_s=30, what="the call is under way")
        await asyncio.to_thread(here.empty_store)
        await asyncio.to_thread(here.make_streams)
        line = await here.actors["sandbox"].says("box of the lost log")
        assert "1 box of the lost log left on node " in line
        assert here.in_boxes("one.txt") == ["one"]
        assert (await waiting).code == 1
        again = await here.cli("submit", "coder", "hello", "--wait")
        assert (again.code, again.out) == (0, "Well.\n"), again

    work = [command("echo one >> one.txt"), tool_call("act", {"name": "after"}), text("Never.")]
    scripts = [script_for("work", work), script_for("hello", [text("Well.")])]
    with (
        ScriptedModel(conversations=scripts, strict=False) as model,
        Installation(tmp_path / "it", model.base_url) as here,
    ):
        here.start_all(sandbox=True)
        asyncio.run(main(here))


def test_a_run_whose_cancellation_was_lost_goes_on(tmp_path: Path) -> None:
    """What a process remembers of a lost log does not count in the older one."""

    async def main(here: Installation) -> None:
        waiting = asyncio.ensure_future(here.cli("submit", "clerk", "first", "--wait"))
        await until(lambda: here.effects == ["first"], what="the call is under way")
        copy = await asyncio.to_thread(here.copy_store)
        run = (await here.cli("runs", "--json")).out.split('"run_id":"')[1].partition('"')[0]
        assert (await here.cli("cancel", run)).code == 0
        assert "cancelled" in (await waiting).err

        await asyncio.to_thread(here.replace_store, copy)
        await until(lambda: here.effects == ["first", "first"], within_s=30)
        here.open_gate("first")
        watched = await here.cli("watch", run)
        assert watched.code == 0, watched
        assert "first is done." in watched.out

    with (
        ScriptedModel(conversations=[do("first")], strict=False) as model,
        Installation(tmp_path / "it", model.base_url) as here,
    ):
        here.start_all()
        asyncio.run(main(here))


def test_a_sandbox_of_a_lost_part_of_the_log_is_reset_and_reported(tmp_path: Path) -> None:
    """The copy is from before the run. Submitted again under its key, the run finds its box."""

    async def main(here: Installation) -> None:
        submit = ("submit", "coder", "work", "--key", "k-1", "--wait")
        copy = await asyncio.to_thread(here.copy_store)
        waiting = asyncio.ensure_future(here.cli(*submit))
        await until(lambda: here.effects == ["after"], within_s=30, what="the call is under way")
        assert here.in_boxes("two.txt") == ["two"]

        await asyncio.to_thread(here.replace_store, copy)
        caller = await waiting
        run = caller.err.split()[1]
        assert caller.code == 1
        assert f"run {run} is no longer in the log: {OLDER}" in caller.err
        here.open_gate("after")
        again = await here.cli(*submit)
        assert (again.code, again.out) == (0, "All done.\n"), again
        await here.actors["sandbox"].says("was used by a lost part of the log")
        await here.actors["sandbox"].says(f"knows a call that the log does not: run {run}, call ")
        assert here.effects == ["after", "after"]
        shown = await here.cli("show", run)
        assert "log_lost" in shown.out

    work = [
        command("echo two >> two.txt"),
        tool_call("act", {"name": "after"}),
        text("All done."),
    ]
    with (
        ScriptedModel(conversations=[script_for("work", work)], strict=False) as model,
        Installation(tmp_path / "it", model.base_url) as here,
    ):
        here.start_all(sandbox=True)
        asyncio.run(main(here))


@pytest.mark.needs_process
def test_a_private_server_makes_its_streams_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller of the lost run hears of it; the next run of the same process works."""
    monkeypatch.setenv("SANDSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NATS_URL", raising=False)

    @function_tool
    async def lose() -> str:
        process = await Process.of_this_loop()
        await process.bus.connection.request("$JS.API.STREAM.DELETE.SANDSTREAM_LOG", b"")
        return "lost"

    agent = Agent(name="loser", tools=[lose], model="gpt-4.1")

    async def main(model: ScriptedModel) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        with pytest.raises(LogLost, match=r"SANDSTREAM_LOG is gone|is no longer in the log"):
            await asyncio.wait_for(Runner.run(agent, "lose it"), 20)
        result = await asyncio.wait_for(Runner.run(agent, "hello"), 20)
        assert result.final_output == "well"

    scripts = [
        script_for("lose it", [tool_call("lose", {}), text("never")]),
        script_for("hello", [text("well")]),
    ]
    with ScriptedModel(conversations=scripts, strict=False) as model:
        asyncio.run(main(model))
    asyncio.run(stop_server(tmp_path / "home"))
