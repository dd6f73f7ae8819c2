"""Making, finding, stopping, pausing and removing boxes, each of them asked for again."""

from __future__ import annotations

import asyncio
import time

import pytest
from contract.providers import POWERS, TRAITS
from contract.stage import OWNER, Heard, Stage, new_op, place_in, run, said, sh, works
from sandstream_providers.interface import (
    BoxGone,
    BoxInfo,
    ExecSpec,
    Provider,
    ProviderError,
    ResolveRule,
)
from support.waiting import eventually


async def _listed(provider: Provider, key: str) -> BoxInfo | None:
    found = [info for info in await provider.list_owned(OWNER) if info.key == key]
    return found[0] if found else None


async def _runs(provider: Provider, key: str) -> bool:
    info = await _listed(provider, key)
    return info is not None and info.state == "running"


def test_powers_are_those_of_the_table(stage: Stage) -> None:
    """So that no test is skipped because a power got lost by accident."""
    given = stage.contender
    assert stage.provider.powers - given.depends == given.powers
    named = given.powers | given.depends | given.traits | given.lacks.keys()
    assert named == POWERS | TRAITS
    assert not (given.powers | given.traits) & given.lacks.keys()


def test_check_tells_people_what_is_there(stage: Stage) -> None:
    found = stage.run(stage.provider.check())
    assert found["isolation"]
    assert all(isinstance(value, str) for value in found.values())


def test_a_new_box_is_running_and_empty(stage: Stage) -> None:
    async def story() -> None:
        spec = stage.spec(labels={"run": "r-1", "odd": "übung = 'x'"})
        before = time.time()
        box = await stage.provider.create(spec)
        assert box.key == spec.key
        assert await box.list(box.root, ResolveRule(roots=[box.root])) == []
        assert await box.sessions() == 0
        assert await said(box, "pwd -P") == f"{box.root}\n"
        info = await _listed(stage.provider, spec.key)
        assert info is not None
        assert (info.state, info.labels) == ("running", spec.labels)
        assert before - 5 <= info.created_at <= time.time() + 5
        assert await stage.provider.list_owned("somebody else") == []
        await stage.provider.delete(spec.key)

    stage.run(story())


@pytest.mark.needs("root")
def test_the_root_is_where_it_was_asked_for(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(root="/srv/my work") as box:
            assert box.root == "/srv/my work"
            assert await said(box, "touch here; pwd; ls") == "/srv/my work\nhere\n"

    stage.run(story())


def test_create_with_a_known_key_gives_the_box_as_it_is(stage: Stage) -> None:
    async def story() -> None:
        spec = stage.spec()
        first = await stage.provider.create(spec)
        await said(first, "echo mine > file")
        for _ in range(2):
            again = await stage.provider.create(spec)
            assert await said(again, "cat file") == "mine\n"
        async with stage.another_process() as other:
            assert await said(await other.create(spec), "cat file") == "mine\n"
            mine = [info for info in await other.list_owned(OWNER) if info.key == spec.key]
            assert len(mine) == 1
        await stage.provider.delete(spec.key)

    stage.run(story())


def test_two_processes_that_create_at_once_get_one_box(stage: Stage) -> None:
    async def story() -> None:
        spec = stage.spec()
        async with stage.another_process() as other:
            boxes = await asyncio.gather(stage.provider.create(spec), other.create(spec))
            await said(boxes[0], "echo one > file")
            assert await said(boxes[1], "cat file") == "one\n"
        await stage.provider.delete(spec.key)

    stage.run(story())


def test_get_finds_what_there_is(stage: Stage) -> None:
    async def story() -> None:
        assert await stage.provider.get("c-nobody-made-this") is None
        async with stage.fresh() as box, stage.another_process() as other:
            await said(box, "echo mine > file")
            found = await other.get(box.key)
            assert found is not None
            assert (found.key, found.root) == (box.key, box.root)
            assert await said(found, "cat file") == "mine\n"

    stage.run(story())


@pytest.mark.parametrize("key", ["", "../up", "a/b", ".hidden", "with space", "x" * 129])
def test_bad_keys_are_refused(stage: Stage, key: str) -> None:
    async def story() -> None:
        labels = {"owner": OWNER}
        spec = stage.spec(labels=labels)
        spec = type(spec)(key=key, labels=labels)
        with pytest.raises(ProviderError):
            await stage.provider.create(spec)
        assert await _listed(stage.provider, key) is None

    stage.run(story())


def test_stop_ends_processes_and_keeps_files(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            heard = Heard()
            once = new_op()
            await sh(box, "echo once >> file", op=once)
            script = "echo up; sleep 30; echo late >> file"
            running = new_op()
            task = asyncio.create_task(sh(box, script, op=running, on_output=heard))
            await heard.until(b"up")
            for _ in range(2):
                await stage.provider.stop(box.key)
                info = await _listed(stage.provider, box.key)
                assert info is not None
                assert info.state == "stopped"
            with pytest.raises(BoxGone):
                await task
            again = await stage.provider.get(box.key)
            assert again is not None
            assert await said(again, "cat file") == "once\n"
            assert await again.sessions() == 0
            # the first outcome, and nothing is done
            assert (await sh(again, "echo once >> file", op=once)).exit_code == 0
            lost = await sh(again, script, op=running)
            assert (lost.state, lost.exit_code, lost.stdout) == ("lost", None, b"up\n")
            assert await said(again, "cat file") == "once\n"

    stage.run(story())


def test_stop_and_delete_of_what_is_not_there(stage: Stage) -> None:
    async def story() -> None:
        for _ in range(2):
            await stage.provider.stop("c-nobody-made-this")
            await stage.provider.delete("c-nobody-made-this")
        assert await _listed(stage.provider, "c-nobody-made-this") is None

    stage.run(story())


def test_create_starts_a_stopped_box_again(stage: Stage) -> None:
    async def story() -> None:
        spec = stage.spec()
        box = await stage.provider.create(spec)
        await said(box, "echo mine > file")
        await stage.provider.stop(spec.key)
        assert await said(await stage.provider.create(spec), "cat file") == "mine\n"
        await stage.provider.delete(spec.key)

    stage.run(story())


def test_delete_ends_all_and_leaves_nothing(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            heard = Heard()
            task = asyncio.create_task(sh(box, "echo up; sleep 30", on_output=heard))
            await heard.until(b"up")
            for _ in range(2):
                await stage.provider.delete(box.key)
            with pytest.raises(BoxGone):
                await task
            assert await stage.provider.get(box.key) is None
            assert await _listed(stage.provider, box.key) is None
            with pytest.raises(BoxGone):
                await works(box)

    stage.run(story())


@pytest.mark.needs("pause")
def test_a_paused_box_stands_still_until_it_is_woken(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            await works(box)
            for _ in range(2):
                await stage.provider.pause(box.key)
                info = await _listed(stage.provider, box.key)
                assert info is not None
                assert info.state == "paused"
            task = asyncio.create_task(sh(box, "echo awake"))
            done, _ = await asyncio.wait([task], timeout=0.3)
            assert not done, "a frozen box ran a command"
            for _ in range(2):
                await stage.provider.resume(box.key)
            assert (await task).stdout == b"awake\n"
            await eventually(lambda: _runs(stage.provider, box.key), what="it is listed as awake")

    stage.run(story())


@pytest.mark.needs("pause")
def test_get_and_create_wake_a_paused_box(stage: Stage) -> None:
    async def story() -> None:
        spec = stage.spec()
        box = await stage.provider.create(spec)
        heard = Heard()
        op = new_op()
        script = "echo up; read line; echo got $line"
        await run(box, "sh", "-c", script, op=op, wait_s=0, keep_stdin=True)
        task = asyncio.create_task(sh(box, script, op=op, keep_stdin=True, on_output=heard))
        await heard.until(b"up")
        await stage.provider.pause(spec.key)
        async with stage.another_process() as other:
            found = await other.get(spec.key)
            assert found is not None
            await works(found)
        await stage.provider.pause(spec.key)
        await works(await stage.provider.create(spec))
        running = await sh(box, script, op=op, wait_s=0, keep_stdin=True)
        assert running.state == "running", "what ran before the pause runs on"
        await box.interact(new_op(), running.session, b"it\n", wait_s=10)
        assert b"got it\n" in (await task).stdout
        await stage.provider.delete(spec.key)

    stage.run(story())


@pytest.mark.needs("pause")
def test_pausing_what_is_not_running(stage: Stage) -> None:
    async def story() -> None:
        for key in ("c-nobody-made-this", (await stage.box()).key):
            await stage.provider.stop(key)
            with pytest.raises(BoxGone):
                await stage.provider.pause(key)
            with pytest.raises(BoxGone):
                await stage.provider.resume(key)

    stage.run(story())


@pytest.mark.parametrize("end", ["stop", "delete"])
@pytest.mark.needs("pause")
def test_a_paused_box_can_be_ended(stage: Stage, end: str) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            await said(box, "sleep 30 >/dev/null 2>&1 & echo mine > file")
            await stage.provider.pause(box.key)
            await getattr(stage.provider, end)(box.key)
            found = await stage.provider.get(box.key)
            if end == "delete":
                assert found is None
            else:
                assert found is not None
                assert await said(found, "cat file") == "mine\n"

    stage.run(story())


def test_close_lets_go_and_boxes_live_on(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            heard = Heard()
            op = new_op()
            async with stage.another_process() as other:
                theirs = await other.get(box.key)
                assert theirs is not None
                script = "echo up; read line; echo $line"
                started = await sh(theirs, script, op=op, wait_s=0, keep_stdin=True)
            with pytest.raises(BoxGone):
                await works(theirs)
            task = asyncio.create_task(sh(box, script, op=op, on_output=heard, keep_stdin=True))
            await heard.until(b"up")
            await box.interact(new_op(), started.session, b"on\n", wait_s=10)
            assert (await task).exit_code == 0

    stage.run(story())


def test_a_box_whose_processes_died_comes_back_with_its_files(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            heard = Heard()
            op = new_op()
            script = "echo mine > file; echo up; sleep 30; echo late > file"
            task = asyncio.create_task(sh(box, script, op=op, on_output=heard))
            await heard.until(b"up")
            await stage.crash(box.key)
            with pytest.raises(BoxGone):
                await task
            found = await stage.provider.get(box.key)
            assert found is not None
            lost = await sh(found, script, op=op)
            assert (lost.state, lost.exit_code) == ("lost", None)
            assert await said(found, "cat file") == "mine\n"
            await works(found)

    stage.run(story())


def test_a_lost_box_is_gone(stage: Stage) -> None:
    async def story() -> None:
        spec = stage.spec()
        box = await stage.provider.create(spec)
        await said(box, "echo mine > file")
        await stage.lose(spec.key)
        with pytest.raises(BoxGone) as caught:
            await works(box)
        assert caught.value.retryable
        assert await stage.provider.get(spec.key) is None
        assert await _listed(stage.provider, spec.key) is None
        await stage.provider.delete(spec.key)

    stage.run(story())


@pytest.mark.needs("free_keys")
def test_the_key_of_a_lost_box_is_free(stage: Stage) -> None:
    async def story() -> None:
        spec = stage.spec()
        await said(await stage.provider.create(spec), "echo mine > file")
        await stage.lose(spec.key)
        assert await said(await stage.provider.create(spec), "ls") == ""
        await stage.provider.delete(spec.key)

    stage.run(story())


def test_the_environment_of_commands(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_TOKEN", "not for boxes")

    async def story() -> None:
        async with stage.fresh(env={"A": "box", "B": "box ü\n'\""}) as box:
            script = 'printf "%s|%s|%s|%s" "$A" "$B" "$C" "$HOST_TOKEN"'
            assert await said(box, script) == "box|box ü\n'\"||"
            output = await sh(box, script, env={"A": "mine", "C": "new"})
            assert output.stdout.decode() == "mine|box ü\n'\"|new|"
            assert await said(box, script) == "box|box ü\n'\"||"

    stage.run(story())


def test_boxes_do_not_see_each_other(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as one, stage.fresh() as two:
            place = await place_in(one)
            await place.write("file", b"mine")
            assert await said(two, "ls") == ""
            op = new_op()
            for box, text in ((one, "one"), (two, "two")):  # ids are of a box, not of a provider
                output = await box.run(op, ExecSpec(argv=["echo", text], cwd=box.root))
                assert output.stdout.decode() == f"{text}\n"
            await two.kill_all()
            await works(one)

    stage.run(story())
