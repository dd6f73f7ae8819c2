"""Batches of changes: all or nothing, in order, with modes, links, removals and moves."""

from __future__ import annotations

import pytest
from contract.stage import Place, Stage, new_op, place_in
from sandstream_providers.interface import (
    FileWrite,
    NotFound,
    NotPermitted,
    PathEscapes,
    ProviderError,
    WrongKind,
)


def test_all_kinds_in_one_batch(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.said("echo old > replaced; echo x > moved; mkdir -p gone/deep")
        await place.change(
            FileWrite(path=place.at("new/deep/file"), data=b"data", mode=0o751),
            FileWrite(path=place.at("replaced"), data=b"new"),
            FileWrite(path=place.at("dir"), kind="dir", mode=0o700),
            FileWrite(path=place.at("link"), kind="link", target="new/deep/file"),
            FileWrite(path=place.at("gone"), kind="remove"),
            FileWrite(path=place.at("moved"), kind="move", target=place.at("dir/moved")),
            FileWrite(path=place.at("never there"), kind="remove"),
        )
        assert await place.said("cat new/deep/file replaced link dir/moved") == "datanewdatax\n"
        assert await place.said("stat -c %a new/deep/file new dir; ls") == (
            "751\n755\n700\ndir\nlink\nnew\nreplaced\n"
        )

    stage.run(story())


def test_modes_of_new_and_old_things(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.write("file", b"")
        await place.change(FileWrite(path=place.at("dir"), kind="dir"))
        assert await place.said("stat -c %a file dir") == "644\n755\n"
        await place.said("chmod 600 file; chmod 710 dir")
        await place.write("file", b"other")
        await place.change(FileWrite(path=place.at("dir"), kind="dir"))
        assert await place.said("stat -c %a file dir") == "600\n710\n"
        await place.write("file", b"other", mode=0o4755)
        await place.change(FileWrite(path=place.at("dir"), kind="dir", mode=0o1777))
        assert await place.said("stat -c %a file dir") == "4755\n1777\n"

    stage.run(story())


def test_exclusive_and_must_exist(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.write("new", b"1", exclusive=True)
        with pytest.raises(WrongKind):
            await place.write("new", b"2", exclusive=True)
        with pytest.raises(NotFound):
            await place.write("missing", b"3", must_exist=True)
        await place.write("new", b"4", must_exist=True)
        with pytest.raises(NotFound):
            await place.change(FileWrite(path=place.at("gone"), kind="remove", must_exist=True))
        with pytest.raises(NotFound):
            await place.change(
                FileWrite(path=place.at("gone"), kind="move", target=place.at("else"))
            )
        assert await place.said("ls; cat new") == "new\n4"

    stage.run(story())


FAILURES: dict[str, tuple[FileWrite, type[ProviderError]]] = {
    "file over directory": (FileWrite(path="{}/dir", data=b"x"), WrongKind),
    "directory over file": (FileWrite(path="{}/file", kind="dir"), WrongKind),
    "link over directory": (FileWrite(path="{}/dir", kind="link", target="x"), WrongKind),
    "below a file": (FileWrite(path="{}/file/below", data=b"x"), WrongKind),
    "exclusive": (FileWrite(path="{}/file", data=b"x", exclusive=True), WrongKind),
    "must exist": (FileWrite(path="{}/none", data=b"x", must_exist=True), NotFound),
    "move of nothing": (FileWrite(path="{}/none", kind="move", target="{}/x"), NotFound),
    "move onto directory": (FileWrite(path="{}/file", kind="move", target="{}/dir"), WrongKind),
    "out of the root": (FileWrite(path="{}/out/x", data=b"x"), PathEscapes),
    "move out": (FileWrite(path="{}/file", kind="move", target="{}/out/x"), PathEscapes),
    "move the root": (FileWrite(path="{root}", kind="move", target="{}/x"), NotPermitted),
    "remove the root": (FileWrite(path="{root}", kind="remove"), NotPermitted),
    "name too long": (FileWrite(path="{}/" + "n" * 300, data=b"x"), WrongKind),
}


def _placed(change: FileWrite, place: Place) -> FileWrite:
    def fill(text: str) -> str:
        return text.replace("{root}", place.box.root).replace("{}", place.path)

    return FileWrite(
        path=fill(change.path),
        kind=change.kind,
        data=change.data,
        target=fill(change.target),
        exclusive=change.exclusive,
        must_exist=change.must_exist,
    )


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("at", ["middle", "last"])
def test_one_failure_undoes_all(stage: Stage, failure: str, at: str) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.said(
            "mkdir -p dir/inner tree; echo a > dir/inner/a; echo file > file; chmod 600 file;"
            "echo old > old; ln -s old link; touch tree/leaf; ln -s / out; echo m > m"
        )
        before = await place.tree()
        template, error = FAILURES[failure]
        changes = [
            FileWrite(path=place.at("made/deep/new"), data=b"new"),
            FileWrite(path=place.at("old"), data=b"changed", mode=0o777),
            FileWrite(path=place.at("tree"), kind="remove"),
            FileWrite(path=place.at("m"), kind="move", target=place.at("made/m")),
            FileWrite(path=place.at("link2"), kind="link", target="old"),
            FileWrite(path=place.at("dir/inner"), kind="dir", mode=0o700),
        ]
        changes.insert({"middle": 3, "last": 6}[at], _placed(template, place))
        op = new_op()
        for _ in range(2):
            with pytest.raises(error):
                await place.box.change(op, changes, place.rule)
            assert await place.tree() == before

    stage.run(story())


def test_later_changes_see_earlier_ones(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.change(
            FileWrite(path=place.at("a"), data=b"1"),
            FileWrite(path=place.at("a"), kind="move", target=place.at("b")),
            FileWrite(path=place.at("a"), data=b"2"),
            FileWrite(path=place.at("b"), data=b"3", must_exist=True),
            FileWrite(path=place.at("c"), kind="dir"),
            FileWrite(path=place.at("c"), kind="remove"),
            FileWrite(path=place.at("c"), data=b"4", exclusive=True),
        )
        assert await place.said("cat a b c") == "234"

    stage.run(story())


def test_an_empty_batch_and_a_long_one(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.change()
        names = [f"d{number % 7}/f{number}" for number in range(300)]
        await place.change(*(FileWrite(path=place.at(it), data=it.encode()) for it in names))
        assert await place.said("find . -type f | wc -l; cat d3/f10") == "300\nd3/f10"

    stage.run(story())


def test_nothing_of_the_work_is_seen_in_listings_and_scans(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            place = await place_in(box)
            await place.write("file", b"data")
            assert [it.path for it in await box.list(box.root, place.rule)] == [
                place.path.rpartition("/")[2]
            ]
            paths = [item.entry.path async for item in box.scan([], full=True)]
            assert all("stage" not in path for path in paths)

    stage.run(story())


def test_filling_an_empty_place(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        entries = [
            FileWrite(path=place.at("dir"), kind="dir", mode=0o750),
            FileWrite(path=place.at("dir/file"), data=b"data", mode=0o640),
            FileWrite(path=place.at("made/for/it"), data=b"deep", mode=0o755),
            FileWrite(path=place.at("link"), kind="link", target="dir/file"),
            FileWrite(path=place.at("\udcff"), data=bytes(range(256)), mode=0o600),
        ]
        op = new_op()
        await place.box.fill(op, entries, place.rule)
        assert await place.said("cat link made/for/it; stat -c %a dir dir/file made/for/it") == (
            "datadeep750\n640\n755\n"
        )
        assert await place.read("\udcff") == bytes(range(256))
        await place.write("dir/file", b"later")
        await place.box.fill(op, entries, place.rule)
        assert await place.read("dir/file") == b"later", "once per operation"
        await place.box.fill(new_op(), entries, place.rule)
        assert await place.read("dir/file") == b"data"

    stage.run(story())


def test_filling_does_not_lead_out(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.said("ln -s /etc out")
        for path in (place.at("out/x"), "/etc/x", f"{place.box.root}/../x"):
            with pytest.raises(PathEscapes):
                await place.box.fill(new_op(), [FileWrite(path=path, data=b"x")], place.rule)
        await place.box.fill(
            new_op(), [FileWrite(path=place.at("out"), data=b"mine", mode=0o644)], place.rule
        )
        assert await place.said("readlink out || cat out") == "mine"

    stage.run(story())
