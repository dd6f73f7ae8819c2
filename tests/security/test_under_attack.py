"""Runs go on, as if nothing were, while somebody outside tries everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from security.attacks import HEADERS, OTHERS, api_calls, grammar
from security.guarded import Guarded, Person, guarded

ALL = "submit,follow,approve,cancel,retry,input,consolidate,session"
pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("world"), f"alice={ALL}", f"mallory={ALL}") as found:
        yield found


def test_nobody_reaches_a_run_of_somebody_else(world: Guarded) -> None:
    asyncio.run(_attack(world))
    done = world.run("admin", "doctor", "--json")
    problems = [it for it in map(json.loads, done.stdout.splitlines()) if it["state"] == "problem"]
    assert problems == []


async def _attack(world: Guarded) -> None:
    connection = await world.connect("alice")
    alice = Person(connection, "alice")
    bad = await world.connect("mallory", [])
    mallory = Person(bad, "mallory")
    try:
        paying = await alice.submit("clerk", "p-1", "pay, please")
        asked = await alice.until(paying, "approval.requested")
        answer = {"call": asked["call"], "approve": True}

        # as herself, about a run of alice's: parked, with the reason
        await mallory.ask(f"run.{paying}.approval", answer)
        await mallory.ask(f"run.{paying}.cancel", {})
        await mallory.ask(f"run.{paying}.input", {"input": "give it to me"})
        # a run of hers under alice's key is another run
        hers = await mallory.submit("clerk", "p-1", "weather, please")
        await mallory.ask("task.clerk", {"input": "wait, please"}, **{"Nats-Msg-Id": "p-3"})
        assert hers != paying and (await mallory.until(hers, "done"))["output"] == "8 degrees."

        subjects = [f"sandstream.ask.mallory.run.{paying}.{it}" for it in ("cancel", "approval")]
        subjects += ["sandstream.ask.mallory.task.clerk", "$JS.API.STREAM.MSG.GET.SANDSTREAM_LOG"]
        victims = [it.replace("victim", paying) for it in grammar("alice")]
        for subject in subjects:
            for reply in (*victims, *api_calls(), *OTHERS):
                await bad.publish(subject, b"{}", reply=reply)
            for headers in HEADERS.values():
                told = {key: it.replace("victim", paying) for key, it in headers.items()}
                await bad.publish(subject, json.dumps(answer).encode(), headers=told)
            await bad.flush()
        for subject in victims:
            await bad.publish(subject, json.dumps(answer).encode())
            await bad.flush()

        # what mallory published has been looked at when a later run of hers has ended
        later = await mallory.submit("clerk", "p-2", "weather, please")
        assert (await mallory.until(later, "done"))["output"] == "8 degrees."
        for kind in ("approval.decided", "cancel", "input", "done"):
            subject = f"sandstream.run.{paying}.{kind}"
            assert await alice.stored({"last_by_subj": subject}) is None, kind

        await alice.ask(f"run.{paying}.approval", answer)
        end = await alice.until(paying, "done")
        assert (end["status"], end["output"]) == ("completed", "Paid.")
        decided = await alice.until(paying, "approval.decided")
        assert decided["by"] == "alice"
        other = await alice.submit("clerk", "p-3", "weather, please")
        assert (await alice.until(other, "done"))["output"] == "8 degrees."
    finally:
        await connection.close()
        await bad.close()
