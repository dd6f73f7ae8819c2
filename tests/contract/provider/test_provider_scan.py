"""Scans for snapshots: what changed since the last one that was received, without the rest."""

from __future__ import annotations

import hashlib

import pytest
from contract.stage import Stage, new_op, place_in, said
from sandstream_providers.interface import (
    INLINE_BYTES,
    Box,
    Entry,
    ResolveRule,
    ScanItem,
    ScanOutdated,
)


async def _scan(box: Box, *exclude: str, full: bool = False) -> dict[str, ScanItem]:
    return {item.entry.path: item async for item in box.scan(exclude, full=full)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_everything_first_then_what_changed(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            await said(
                box, "mkdir -p a/b; echo 1 > a/b/file; chmod 640 a/b/file; ln -s a link; mkfifo p"
            )
            first = await _scan(box)
            assert sorted(first) == ["a", "a/b", "a/b/file", "link"]
            file = first["a/b/file"]
            assert (file.entry.kind, file.entry.mode, file.entry.size) == ("file", 0o640, 2)
            assert (file.entry.digest, file.data) == (_digest(b"1\n"), b"1\n")
            assert (first["link"].entry.kind, first["link"].entry.target) == ("link", "a")
            assert await _scan(box) == {}
            await said(box, "echo 2 > new; rm link; chmod 600 a/b/file; rmdir a/b 2>/dev/null; :")
            second = await _scan(box)
            assert sorted(second) == ["a/b/file", "link", "new"]
            assert second["link"].removed
            assert second["new"].data == b"2\n"
            assert second["a/b/file"].entry.mode == 0o600
            assert await _scan(box) == {}

    stage.run(story())


def test_a_full_scan_names_everything(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            await said(box, "echo 1 > old")
            await _scan(box)
            await said(box, "echo 2 > new")
            full = await _scan(box, full=True)
            assert sorted(full) == ["new", "old"]
            assert full["old"].entry.digest == _digest(b"1\n")
            assert full["old"].data is None
            assert full["new"].data == b"2\n"

    stage.run(story())


def test_a_scan_that_was_not_received_to_its_end_does_not_count(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            await said(box, "for i in 1 2 3 4 5 6; do head -c 3000000 /dev/urandom > f$i; done")
            items = box.scan([], full=False)
            async for _ in items:
                break
            await items.aclose()  # type: ignore[attr-defined]
            assert sorted(await _scan(box)) == ["f1", "f2", "f3", "f4", "f5", "f6"]

    stage.run(story())


def test_excluded_paths_and_all_below_them(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            await said(box, "mkdir -p a/b c; touch a/b/x a/y c/z ab")
            assert sorted(await _scan(box, "a/b", "c/z", "none")) == ["a", "a/y", "ab", "c"]
            second = await _scan(box, "c")
            assert {path: item.removed for path, item in second.items()} == {
                "a/b": False,
                "a/b/x": False,
                "c": True,  # it is excluded now, so the next snapshot does not hold it
            }

    stage.run(story())


def test_big_files_come_by_their_digest(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            size = INLINE_BYTES + 1
            await said(box, f"head -c {size} /dev/urandom > big; head -c {size - 1} big > small")
            found = await _scan(box)
            big, small = found["big"], found["small"]
            assert big.data is None
            whole = await box.read(f"{box.root}/big", ResolveRule(roots=[box.root]))
            assert big.entry.digest == _digest(whole)
            assert small.data == whole[:-1]

    stage.run(story())


def test_odd_names_contents_and_closed_files(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            place = await place_in(box)
            await place.write("\udcff\n", bytes(range(256)))
            await place.write("closed", b"secret", mode=0o000)
            await place.write("empty", b"")
            folder = place.path.rpartition("/")[2]
            found = await _scan(box)
            assert found[f"{folder}/\udcff\n"].data == bytes(range(256))
            assert found[f"{folder}/closed"].data == b"secret"
            assert found[f"{folder}/closed"].entry.mode == 0
            assert found[f"{folder}/empty"].entry.digest == _digest(b"")

    stage.run(story())


def test_primed_files_need_not_be_read(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            place = await place_in(box)
            await place.write("file", b"restored")
            path = f"{place.path.rpartition('/')[2]}/file"
            told = Entry(path=path, kind="file", size=8, digest="f" * 64)
            other = Entry(path=f"{path}-none", kind="file", size=8, digest="f" * 64)
            await box.prime([told, other])
            found = (await _scan(box))[path]
            assert (found.entry.digest, found.data) == ("f" * 64, None), "it was believed"
            await place.write("file", b"changed!")
            assert (await _scan(box))[path].data == b"changed!"
            await box.prime([Entry(path=path, kind="file", size=9, digest="f" * 64)])
            found = (await _scan(box, full=True))[path]
            assert found.entry.digest == _digest(b"changed!"), "another size: not believed"

    stage.run(story())


def test_clear_empties_the_root_but_for_what_is_kept(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            tree = "mkdir -p a/b/c d; touch a/b/c/x a/b/y a/z d/w top; chmod 000 d; ln -s / out"
            await said(box, tree)
            op = new_op()
            await box.clear(op, ["a/b/c", "top", "none"])
            assert await said(box, "find . -type f | sort") == "./a/b/c/x\n./top\n"
            await said(box, "touch later")
            await box.clear(op, ["a/b/c", "top", "none"])
            assert await said(box, "ls") == "a\nlater\ntop\n", "once per operation"
            await box.clear(new_op())
            assert await said(box, "ls -A; pwd") == f"{box.root}\n"

    stage.run(story())


def test_what_somebody_else_has_scanned_meanwhile(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box, stage.another_process() as other:
            theirs = await other.get(box.key)
            assert theirs is not None
            await said(box, "echo 1 > file")
            await _scan(box)
            await said(box, "echo 2 > file")
            await _scan(theirs, full=True)
            # a scan for changes would leave out what only the other one was told
            with pytest.raises(ScanOutdated):
                await _scan(box)
            found = await _scan(box, full=True)
            assert found["file"].entry.digest == _digest(b"2\n")
            await said(box, "echo 3 > file")
            assert (await _scan(box))["file"].data == b"3\n"

    stage.run(story())
