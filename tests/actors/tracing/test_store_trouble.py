"""A store survives kills, sharing, full disks, damage, wrong versions; it says what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiosqlite
import msgspec
import pytest
from actors.tracing.store_program import SPANS
from actors.tracing.traces_by_hand import facts, opened, span
from sandstream_actors.tracing.store import schema as store_schema
from sandstream_actors.tracing.store.database import put_aside
from sandstream_actors.tracing.store.errors import StoreCorrupt, StoreTooNew, StoreUnavailable
from sandstream_actors.tracing.store.queries import TraceReader
from sandstream_actors.tracing.store.trace_store import TraceStore

HERE = Path(__file__).parent


def _writing(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    program = [sys.executable, str(HERE / "store_program.py"), str(path), name, str(count)]
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=env)


def _is_sound(path: Path) -> bool:
    plain = sqlite3.connect(path)
    try:
        return [row[0] for row in plain.execute("PRAGMA integrity_check")] == ["ok"]
    finally:
        plain.close()


def _whole_runs(path: Path) -> dict[str, bool]:
    """The runs, and whether each is over. Those that are must have all spans, here and in the
    outbox.
    """
    plain = sqlite3.connect(path)
    try:
        runs = {run: bool(over) for run, over in plain.execute("SELECT run, is_over FROM runs")}
        for run, over in runs.items():
            expected = SPANS if over else 0
            for question in (
                "SELECT count(*) FROM spans WHERE run = ?",
                "SELECT count(*) FROM outbox WHERE trace_id = 'trace-' || ?",
            ):
                assert plain.execute(question, (run,)).fetchone() == (expected,), run
        return runs
    finally:
        plain.close()


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    chance = random.Random(7)
    acknowledged: list[str] = []
    for attempt in range(4):
        process = _writing(path, f"p{attempt}", 100_000)
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(chance.randrange(20, 120))]
        process.kill()
        rest = process.stdout.read()  # what was said between the last line and the kill
        process.stdout.close()
        process.wait()
        lines += [line.strip() for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        acknowledged += lines

    async def opens() -> None:
        async with opened(path) as store:
            assert store.replaced is None

    asyncio.run(opens())
    assert _is_sound(path)
    runs = _whole_runs(path)
    assert len(acknowledged) > 80
    assert [run for run in acknowledged if not runs.get(run)] == []


def test_two_processes_write_to_one_store(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    processes = [_writing(path, name, 40) for name in ("one", "two")]
    said = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert [len(lines) for lines in said] == [160, 160]
    assert _is_sound(path)
    assert sorted(_whole_runs(path)) == sorted(said[0] + said[1])


def _small(pages: int) -> Callable[[aiosqlite.Connection], Awaitable[None]]:
    async def prepare(connection: aiosqlite.Connection) -> None:
        await connection.execute_fetchall(f"PRAGMA max_page_count = {pages}")

    return prepare


def test_a_full_disk_is_told_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "t.db"

    async def main() -> None:
        async with opened(path, prepare=_small(64)) as store:
            written = 0
            big = "x" * 3000
            with pytest.raises(StoreUnavailable) as failed:
                while True:
                    run = f"r{written}"
                    spans = [span(run, n, attributes={"text": big}) for n in range(4)]
                    await store.record(facts(run), spans, export=True)
                    written += 1
            assert failed.value.retryable
            assert str(path) in str(failed.value)
            assert "the disk is full" in str(failed.value)
            assert "free some space" in str(failed.value)
            assert written > 0
            assert await store.run(f"r{written}") is None
            assert await store.spans(f"r{written}") == []
            assert len(await store.outbox(1000)) == 4 * written
            await store.outbox_done([n for n, _ in await store.outbox(1000)])
            await store.record(facts("later"), [])
            assert await store.run("later") is not None, "it goes on as soon as there is room"

    asyncio.run(main())
    assert _is_sound(path)


def test_a_disk_without_room_for_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="disk is full"):
        asyncio.run(TraceStore.open(tmp_path / "t.db", prepare=_small(2)))


@pytest.mark.parametrize(
    "rubbish", [b"not a database at all, sorry" * 99, b"SQLite format 3\0" * 99]
)
def test_a_file_that_is_no_store_is_put_aside(
    tmp_path: Path, rubbish: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(rubbish)

    async def main() -> None:
        async with opened(path) as store:
            assert store.replaced is not None
            assert store.replaced.name.startswith("t.db.corrupt-")
            assert store.replaced.read_bytes() == rubbish
            assert path.stat().st_mode & 0o077 == 0, "the new one is its owner's alone, too"
            await store.record(facts(), [span()])
        async with opened(path) as store:
            assert store.replaced is None
            assert await store.run("r1") is not None

    asyncio.run(main())
    (record,) = (it for it in caplog.records if it.levelno == logging.ERROR)
    assert "moved aside" in record.message


def test_what_belongs_to_a_damaged_store_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    names = set()
    for _ in range(3):  # in the same second, mostly
        for suffix in ("", "-wal", "-shm"):
            (tmp_path / f"t.db{suffix}").write_text(suffix)
        aside = put_aside(path, "rubbish")
        names.add(aside)
        assert aside.with_name(f"{aside.name}-wal").read_text() == "-wal"
        assert aside.with_name(f"{aside.name}-shm").read_text() == "-shm"
    assert len(names) == 3
    assert not list(tmp_path.glob("t.db")) and not list(tmp_path.glob("t.db-*"))


def test_damage_that_shows_later_is_repaired_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "t.db"

    async def fill() -> None:
        async with opened(path) as store:
            for n in range(200):
                await store.record(facts(f"r{n}"), [span(f"r{n}", k) for k in range(5)])

    async def use() -> None:
        async with opened(path) as store:
            assert store.replaced is None
            with pytest.raises(StoreCorrupt) as failed:
                await store.spans("r100")
            assert "damaged" in str(failed.value)
            await store.record(facts("after"), [span("after")])
            assert store.replaced is not None and store.replaced.exists()
            assert [it.run for it in await store.runs()] == ["after"]

    async def write_only() -> None:
        async with opened(path) as store:
            with pytest.raises(StoreCorrupt):
                for n in range(300):
                    await store.record(facts(f"n{n}"), [span(f"n{n}", k) for k in range(5)])
            assert store.replaced is not None and store.replaced.exists()
            await store.record(facts("again"), [span("again")])
            assert [it.run for it in await store.runs()] == ["again"]

    asyncio.run(fill())
    _damage(path)
    asyncio.run(use())
    asyncio.run(fill())
    _damage(path)
    asyncio.run(write_only())
    assert _is_sound(path)
    assert len(list(tmp_path.glob("t.db.corrupt-*"))) == 2


def _damage(path: Path) -> None:
    """All but the first pages, where it says what there is."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(12_288)
        file.write(b"\xa5" * (size - 16_384))


def test_a_store_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "traces" / "t.db"

    async def main() -> None:
        async with opened(path) as store:
            await store.record(facts("r1"), [])
            for file in path.parent.iterdir():
                file.unlink()
            path.parent.rmdir()
            await store.record(facts("r2"), [])
        async with opened(path) as store:
            assert [it.run for it in await store.runs()] == ["r2"]

    asyncio.run(main())


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """Root may write anywhere, so the trouble is a file where a directory should be."""
    (tmp_path / "file").write_text("")
    (tmp_path / "dir.db").mkdir()
    with pytest.raises(StoreUnavailable, match=r"cannot be made .*SANDSTREAM_HOME"):
        asyncio.run(TraceStore.open(tmp_path / "file" / "t.db"))
    with pytest.raises(StoreUnavailable, match=r"cannot be opened .*SANDSTREAM_HOME"):
        asyncio.run(TraceStore.open(tmp_path / "dir.db"))


def test_a_store_of_a_newer_version_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "t.db"

    async def make() -> None:
        async with opened(path) as store:
            await store.record(facts(), [])
            await store.count(store_schema.VERSION_KEY, 7 - len(store_schema.MIGRATIONS))

    asyncio.run(make())
    before = path.read_bytes()
    for opening in (TraceStore.open(path), TraceReader.open_to_read(path)):
        with pytest.raises(StoreTooNew) as failed:
            asyncio.run(opening)
        assert "has version 7" in str(failed.value)
        assert not failed.value.retryable
    assert path.read_bytes() == before


def test_a_store_from_before_takeovers_keeps_its_runs_and_spans(tmp_path: Path) -> None:
    """Its retries were mixed with messages that were delivered again: now they are the calls'."""
    path = tmp_path / "t.db"
    made = {"run": "r1", "trace_id": "a" * 32, "root": "r1", "agent": "a", "status": "completed"}
    told = {"trace_id": "a" * 32, "span_id": "b" * 16, "run": "r1", "operation": "chat"}
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in store_schema.MIGRATIONS[0]:
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES (?, 1)", (store_schema.VERSION_KEY,))
        for table, known in (("runs", made | {"retries": 5}), ("spans", told | {"retries": 2})):
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            kinds = {name: "" if kind == "TEXT" else 0 for _, name, kind, *_ in columns}
            rest = {"rest": msgspec.msgpack.encode([{}, [], [], 0, True])}
            row = kinds | ({} if table == "runs" else rest) | known
            marks = ", ".join("?" * len(row))
            names = ", ".join(row)
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*row.values()])

    async def main() -> None:
        async with opened(path) as store:
            (run,) = await store.runs()
            assert (run.run, run.retries, run.takeovers) == ("r1", 2, 0)
            assert [it.span_id for it in await store.spans("r1")] == ["b" * 16]
            (model,) = (await store.stats()).models
            assert (model.retries, model.attempts, model.takeovers) == (2, 1, 0)

    asyncio.run(main())


def test_an_older_store_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.db"

    async def write(run: str) -> None:
        async with opened(path) as store:
            await store.record(facts(run), [span(run)])

    async def read() -> list[str]:
        reader = await TraceReader.open_to_read(path)
        assert reader is not None
        try:
            return [it.run for it in await reader.runs()]
        finally:
            await reader.close()

    asyncio.run(write("r1"))
    step = ("ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'",)
    monkeypatch.setattr(store_schema, "MIGRATIONS", [*store_schema.MIGRATIONS, step])
    monkeypatch.setattr(
        "sandstream_actors.tracing.store.database.MIGRATIONS", store_schema.MIGRATIONS
    )
    with pytest.raises(StoreUnavailable, match="has version 2"):
        asyncio.run(read())
    asyncio.run(write("r2"))
    asyncio.run(write("r3"))
    assert sorted(asyncio.run(read())) == ["r1", "r2", "r3"]
    plain = sqlite3.connect(path)
    assert plain.execute("SELECT DISTINCT colour FROM runs").fetchall() == [("blue",)]
    assert plain.execute("SELECT value FROM meta WHERE key = 'version'").fetchone() == (3,)
    plain.close()


def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.db"
    kept = store_schema.MIGRATIONS
    monkeypatch.setattr(store_schema, "MIGRATIONS", [*kept, ("CREATE TABLE x (y)", "NONSENSE")])
    with pytest.raises(StoreUnavailable):
        asyncio.run(TraceStore.open(path))
    plain = sqlite3.connect(path)
    assert plain.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    plain.close()


def test_reading_makes_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "none" / "t.db"
    empty = tmp_path / "empty.db"
    empty.touch()

    async def main() -> None:
        assert await TraceReader.open_to_read(path) is None
        assert not path.parent.exists()
        assert await TraceReader.open_to_read(empty) is None
        assert empty.stat().st_size == 0
        async with opened(path) as store:
            await store.record(facts(), [span()])
        before = path.read_bytes()
        reader = await TraceReader.open_to_read(path)
        assert reader is not None
        assert (await reader.run("r1")) == facts()
        await reader.close()
        assert path.read_bytes() == before

    asyncio.run(main())


def test_reading_a_damaged_store_leaves_it_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(b"rubbish" * 1000)
    with pytest.raises(StoreCorrupt):
        asyncio.run(TraceReader.open_to_read(path))
    assert [it.name for it in tmp_path.iterdir()] == ["t.db"]


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            pass
        with pytest.raises(StoreUnavailable, match="is closed"):
            await store.record(facts(), [])
        with pytest.raises(StoreUnavailable, match="is closed"):
            await store.run("r1")

    asyncio.run(main())
