"""With the permissions of their roles, and no more, all actors and people can do their work."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from security.guarded import DEADLINE_S, Guarded, Person
from security.workplace import as_person, publish_junk, workplace
from support.waiting import until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Somebody outside has used all of it, with a plain NATS client. What has to wait for a timer
    has begun.
    """
    with workplace(tmp_path_factory.mktemp("world")) as found:
        as_person(found, "admin", lambda it: _leave_work_to_a_dead_node(found, it))
        as_person(found, "alice", _begin_to_wait)
        as_person(found, "alice", _use)
        yield found


@pytest.fixture(autouse=True)
def _nothing_is_missing(world: Guarded) -> Iterator[None]:
    """No process needs what it may not do. Our client tries what a user may do by doing it."""
    before = len(world.violations())
    yield
    tries = ("carol: ", "dora: ", "erik: ", 'watcher: Publish Violation - Subject "$JS.API.INFO"')
    assert [it for it in world.violations()[before:] if not it.startswith(tries)] == []


async def _leave_work_to_a_dead_node(world: Guarded, admin: Person) -> None:
    node = await asyncio.to_thread(world.start, "gone", "actor", "sandbox", home="other-home")
    node.kill()
    name = (world.directory / "other-home" / "node").read_text().strip()
    request = {"type": "sandbox.request", "op": "o1", "action": {"do": "exec", "argv": ["true"]}}
    subject = f"sandstream.sandbox.lost-box.op.local.{name}"
    ack = await admin.connection.request(subject, json.dumps(request).encode(), timeout=10)
    assert "seq" in json.loads(ack.data), ack.data


async def _begin_to_wait(alice: Person) -> None:
    await alice.submit("teller", "limited", "limited, please")
    await alice.submit("teller", "expired", "in time, please", approval_expires_s=1)


async def _use(alice: Person) -> None:
    live = await alice.connection.subscribe("sandstream.live.*.done")
    weather = await alice.submit("clerk", "w-1", "weather, please")
    assert (await alice.until(weather, "done"))["output"] == "8 degrees."
    assert json.loads((await live.next_msg(timeout=10)).data)["output"] == "8 degrees."

    paying = await alice.submit("clerk", "p-1", "pay, please")
    asked = await alice.until(paying, "approval.requested")
    await alice.ask(f"run.{paying}.input", {"input": "and be quick"})
    await alice.until(paying, "input")
    await alice.ask(f"run.{paying}.approval", {"call": asked["call"], "approve": True})
    assert (await alice.until(paying, "done"))["output"] == "Paid."

    waiting = await alice.submit("clerk", "s-1", "wait, please")
    await alice.until(waiting, "call.app")
    await alice.ask(f"run.{waiting}.cancel", {})
    assert (await alice.until(waiting, "done"))["status"] == "cancelled"

    forging = await alice.submit("smith", "f-1", "forge, please")
    assert (await alice.until(forging, "done"))["output"] == "Forged."
    await alice.ask("memory.shop.merge", {"reason": "asked"})
    await alice.until_stored("sandstream.memory.shop.event")


def _requests(world: Guarded) -> int:
    """How many were ever stored."""
    call = "$JS.API.STREAM.INFO.SANDSTREAM_REQUESTS"

    async def work(admin: Person) -> int:
        return int(json.loads((await admin.connection.request(call)).data)["state"]["last_seq"])

    return int(as_person(world, "admin", work))


def _said(world: Guarded, user: str, *command: str) -> str:
    done = world.run(user, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _until(world: Guarded, run: str, kind: str) -> Any:
    return as_person(world, "alice", lambda it: it.until(run, kind))


def _output(world: Guarded, agent: str, key: str, input: str, **task: Any) -> str:
    """Of a run of alice's."""

    async def work(alice: Person) -> str:
        run = await alice.submit(agent, key, input, **task)
        return str((await alice.until(run, "done"))["output"])

    return str(as_person(world, "alice", work))


def test_the_command_line_of_a_user_outside(world: Guarded) -> None:
    def said(*command: str) -> str:
        return _said(world, "carol", *command)

    assert "8 degrees." in said("submit", "clerk", "weather, please", "--key", "c-1", "--wait")
    assert "carol=c-1" in said("runs")
    assert "8 degrees." in said("show", "carol=c-1")
    said("watch", "carol=c-1")
    paying = said("submit", "clerk", "pay, please", "--key", "c-2").strip()
    assert paying == "carol=c-2"
    _until(world, paying, "approval.requested")
    said("send", paying, "be quick")
    said("approve", paying)
    assert _until(world, paying, "done")["output"] == "Paid."
    waiting = said("submit", "clerk", "wait, please", "--key", "c-3").strip()
    _until(world, waiting, "call.app")
    said("cancel", waiting)


def test_a_user_retries_and_a_harness_looks_for_the_task(world: Guarded) -> None:
    failed = world.run("carol", "submit", "clerk", "luck, please", "--key", "c-4", "--wait")
    assert failed.returncode == 1
    assert "The second time." in _said(world, "carol", "retry", "carol=c-4", "--wait")

    async def refused(alice: Person) -> str:
        run = await alice.submit("nobody", "refused-1", "hello")
        await alice.until(run, "done")
        await alice.ask(f"run.{run}.retry", {})
        return run

    run = as_person(world, "alice", refused)
    parked = asyncio.run(until(lambda: _reason(world, run)))
    assert f"run {run} would be refused again: no agent 'nobody' is registered" in parked


def _reason(world: Guarded, run: str) -> str:
    """Why a request about a run was parked; empty until it was."""
    for line in _said(world, "admin", "parked", "--json").splitlines():
        found = json.loads(line)["parked"]
        if f".run.{run}." in found["subject"]:
            return str(found["reason"])
    return ""


# --- runs -----------------------------------------------------------------------------------------


def test_a_conversation_over_two_runs(world: Guarded) -> None:
    assert _output(world, "teller", "t-1", "talk, please", session="talk") == "First."
    assert _output(world, "teller", "t-2", "and then?", session="talk") == "Second."
    for user in ("admin", "console", "carol"):
        assert "@alice/talk" in _said(world, user, "conversations")
        assert "Second." in _said(world, user, "conversations", "show", "@alice/talk")
    _said(world, "admin", "conversations", "clear", "@alice/talk", "--yes")


def test_an_agent_as_a_tool(world: Guarded) -> None:
    assert _output(world, "boss", "b-1", "delegate, please") == "Delegated."
    assert _until(world, "alice=b-1_t1-0", "done")["output"] == "Three."


def test_a_handoff_to_another_pool(world: Guarded) -> None:
    assert _output(world, "boss", "n-1", "at night, please") == "Dark."
    assert _until(world, "alice=n-1", "turn.night")["reason"] == "handoff"


def test_big_payloads_go_by_claim(world: Guarded) -> None:
    assert _output(world, "teller", "big-1", "everything, please") == "Fetched."
    claim = _until(world, "alice=big-1", "result.main")
    assert claim["type"] == "claim", claim
    assert _output(world, "teller", "big-2", "a long story, please " * 15_000) == "Long indeed."
    assert _until(world, "alice=big-2", "start.main")["type"] == "claim"
    for user in ("admin", "console", "carol"):
        assert "all of it" in _said(world, user, "show", "alice=big-1", "--json")


# --- people ---------------------------------------------------------------------------------------


def test_a_console_acts_on_the_runs_of_users(world: Guarded) -> None:
    async def begin(alice: Person) -> list[str]:
        asking = await alice.submit("teller", "desk-1", "desk, please")
        waiting = await alice.submit("clerk", "desk-2", "wait, please")
        await alice.until(asking, "approval.requested")
        await alice.until(waiting, "call.app")
        return [asking, waiting]

    asking, waiting = as_person(world, "alice", begin)
    assert asking in _said(world, "console", "approvals")
    _said(world, "console", "send", asking, "be kind")
    _said(world, "console", "approve", asking)
    assert _until(world, asking, "done")["output"] == "The desk has paid."
    _said(world, "console", "cancel", waiting)
    assert _until(world, waiting, "done")["status"] == "cancelled"
    # the log names who the request was made for: the subject says no other name
    assert _until(world, asking, "approval.decided")["by"] == "alice"


COMMANDS = (
    "runs",
    "show alice=w-1",
    "parked",
    "sandboxes",
    "sandboxes show alice=f-1",
    "memory",
    "memory show shop",
    "approvals",
    "conversations",
    "stats",
)


@pytest.mark.parametrize("command", (*COMMANDS, "doctor", "setup --check"))
def test_an_administrator_looks_after_it(world: Guarded, command: str) -> None:
    _said(world, "admin", *command.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_console_reads_everything(world: Guarded, command: str) -> None:
    _said(world, "console", *command.split())


def _doctor(world: Guarded, user: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = world.run(user, "doctor", "--json")
    lines = map(json.loads, done.stdout.splitlines())
    return done.returncode, {it["name"]: it for it in lines}


@pytest.mark.parametrize(
    ("user", "may"),
    [
        ("alice", "follow, submit, approve, cancel, retry, input, consolidate, session"),
        ("console", "follow, submit, approve, cancel, retry, input, consolidate, session"),
        ("dora", "follow, submit; not approve (sandstream.ask.dora.run.doctor.approval); not c"),
    ],
)
def test_doctor_tells_a_user_what_it_may(world: Guarded, user: str, may: str) -> None:
    before = _requests(world)
    code, found = _doctor(world, user)
    assert code == 0, found
    assert found["permissions"]["found"].startswith(f"{user} may {may}")
    assert (found["log"]["state"], found["harness"]["found"]) == ("ok", "live")
    assert "clerk" in found["agents"]["found"]
    assert _requests(world) == before  # it asked for nothing


def test_doctor_says_which_permission_is_missing(world: Guarded) -> None:
    code, found = _doctor(world, "erik")
    assert code == 1
    assert found["permissions"]["found"].startswith("erik may submit; not approve")
    assert "STREAM.INFO.SANDSTREAM_LOG" in found["log"]["found"]
    code, found = _doctor(world, "watcher")
    assert code == 1
    assert "forbids publishing to $JS.API.INFO" in found["jetstream"]["found"]
    assert "role admin" in found["jetstream"]["todo"]


# --- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("program.py", ["8 degrees.", "Forged."]),
        ("keeper.py", ["[b'first', b'second']", "[b'first']", "Found."]),
    ],
)
def test_a_program_runs_agents_of_its_own(world: Guarded, file: str, says: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, file],
        env=world.env("program"),
        cwd=world.directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.stdout.splitlines() == says, done.stderr


def test_one_process_is_all_actors(world: Guarded) -> None:
    assert "8 degrees." in _said(world, "program", "run", "app.py:clerk", "weather, please", "-q")
    world.start("program", "up", "riser.py", home="up-home")
    assert _output(world, "riser", "r-1", "up, please") == "It is up."


# --- work with sandboxes and memories -------------------------------------------------------------


def test_a_workspace_comes_back_from_its_checkpoint(world: Guarded) -> None:
    assert "done" in _said(world, "admin", "sandboxes", "exec", "alice=f-1", "--", "cat", "made")
    _said(world, "admin", "artifacts", "ls", "alice=f-1")
    _said(world, "admin", "sandboxes", "rm", "alice=f-1", "--yes")


def test_a_memory_is_corrected_and_consolidated(world: Guarded) -> None:
    assert _output(world, "smith", "m-1", "correct, please") == "Corrected."
    as_person(world, "alice", lambda it: it.until_stored("sandstream.memory.shop.edit"))
    _said(world, "admin", "memory", "merge", "shop", "--again", "--wait")
    _said(world, "admin", "memory", "diff", "shop")
    _said(world, "admin", "memory", "undo", "shop")


# --- what goes wrong ------------------------------------------------------------------------------

JUNK = {
    "run.{}.call.team": "tools-team",
    "run.{}.call.night": "tools-night",
    "run.{}.start.main": "starts-main",
    "run.{}.sandbox.local": "sandbox-local",
    "run.{}.done": "actor-watcher",
    "sandbox.junk.op.local": "sandbox-local",
    "memory.junk.extract": "memory",
    "due.run.{}.turn.main": "timers",
    "due.memory.junk.merge": "timers-memory",
    "ask.alice.task.teller": "tasks-main",
    "ask.alice.run.{}.cancel": "asks",
}


@pytest.mark.parametrize("kind", JUNK)
def test_every_actor_can_park(world: Guarded, kind: str) -> None:
    async def work(admin: Person) -> None:
        run = f"junk-{list(JUNK).index(kind)}"
        place = await publish_junk(admin, f"sandstream.{kind.format(run)}")
        subject = f"sandstream.parked.{JUNK[kind]}.{place}"
        parked = await admin.until_stored(subject, "SANDSTREAM_PARKED")
        assert parked["body"] == "junk"

    as_person(world, "admin", work)


@pytest.mark.parametrize("broken", ["call.team", "sandbox.local"])
def test_whoever_parks_a_message_ends_its_run(world: Guarded, broken: str) -> None:
    """With all that belongs to it: a conversation that others wait for, a workspace, a child."""
    key = broken.partition(".")[0]

    async def begin(alice: Person) -> tuple[str, str]:
        stuck = await alice.submit("foreman", f"stuck-{key}", "stuck, please", session=key)
        await alice.until(f"{stuck}_t2-0", "approval.requested")
        queued = await alice.submit("teller", f"queued-{key}", "go on, please", session=key)
        await alice.until(queued, "start.main")
        return stuck, queued

    async def end(alice: Person) -> None:
        ended = await alice.until(stuck, "done")
        assert ended["error"]["code"] == "parked"
        assert (await alice.until(f"{stuck}_t2-0", "done"))["status"] == "cancelled"
        await alice.until(queued, "done")
        opened = await alice.stored({"seq": 1, "next_by_subj": f"sandstream.run.{stuck}.sandbox.>"})
        sandbox = json.loads(base64.b64decode(opened["data"]))["sandbox"]
        await alice.until_stored(f"sandstream.sandbox.{sandbox}.state", kind="sandbox.stopped")

    stuck, queued = as_person(world, "alice", begin)
    junk = f"sandstream.run.{stuck}.{broken}"
    body = '{"type": "call.started", "call": "t9-9", "host": "nobody"}'  # out of place there
    as_person(world, "admin", lambda it: publish_junk(it, junk, body))
    as_person(world, "alice", end)


def test_an_administrator_redrives_and_drops(world: Guarded) -> None:
    place = as_person(
        world, "alice", lambda it: it.ask("run.carol=c-9.cancel", {"reason": "not mine"})
    )["seq"]
    parked = f"asks/{place}"
    subject = f"sandstream.parked.asks.{place}"
    as_person(world, "console", lambda it: it.until_stored(subject, "SANDSTREAM_PARKED"))
    for user in ("admin", "console"):
        assert parked in _said(world, user, "parked", "ls", "--json")
        assert "belongs to" in _said(world, user, "parked", "show", parked)
    again = json.loads(_said(world, "admin", "parked", "redrive", parked, "--json"))["sequence"]
    subject = f"sandstream.parked.asks.{again}"
    as_person(world, "console", lambda it: it.until_stored(subject, "SANDSTREAM_PARKED"))
    _said(world, "admin", "parked", "drop", f"asks/{again}")


# --- what had to wait -----------------------------------------------------------------------------


def test_a_limited_call_waits_for_its_timer(world: Guarded) -> None:
    assert _until(world, "alice=limited", "done")["output"] == "At last."
    assert _until(world, "alice=limited", "turn.main")["type"] == "turn.requested"


def test_a_question_expires(world: Guarded) -> None:
    assert _until(world, "alice=expired", "done")["output"] == "Too late."
    assert _until(world, "alice=expired", "approval.decided")["expired"]


def test_an_actor_of_ones_own_has_read_along(world: Guarded) -> None:
    watched = (world.directory / "watched").read_text()
    assert "alice=w-1 completed sandstream.run.alice=w-1.start.main\n" in watched


def test_the_work_of_a_dead_node_is_taken_over(world: Guarded) -> None:
    reply = as_person(
        world, "console", lambda it: it.until_stored("sandstream.sandbox.lost-box.reply.o1")
    )
    assert reply["error"]["message"] == "there is no sandbox lost-box"
