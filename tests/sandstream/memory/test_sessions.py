"""Sessions: what is stored comes back, in order, whoever else is at work; and what becomes of it in
a model's input.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from actors.model.recording_server import Recorded, RecordingServer, Reply, json_reply
from openai import AsyncOpenAI, NotFoundError
from sandstream_bus.errors import InvalidSubject
from sandstream_bus.logs.conversations import ConversationBusy

from sandstream import memory
from sandstream._run.process import Process
from sandstream.exceptions import UserError
from sandstream.memory import (
    BusSession,
    OpenAIConversationsSession,
    Session,
    SessionABC,
    SessionSettings,
    SQLiteSession,
)
from sandstream.memory.session import call_session
from sandstream.memory.session_input import items_to_store, prepared_input
from sandstream.models import defaults

Item = dict[str, Any]


def said(text: str, role: str = "user") -> Item:
    return {"role": role, "content": text}


def texts(items: list[Item]) -> list[str]:
    return [item["content"] for item in items]


async def check_contract(session: Session) -> None:
    """What every session does, an empty one given."""
    assert isinstance(session, Session)
    assert isinstance(session, SessionABC)
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.add_items([])
    await session.clear_session()
    await session.add_items([said("1"), said("2")])
    odd: Item = {"type": "x", "text": "ünï \0 \U0001f600", "list": [1, 2.5, None, True, {"a": []}]}
    await session.add_items([odd])
    assert await session.get_items() == [said("1"), said("2"), odd]
    assert await session.get_items(limit=2) == [said("2"), odd]
    assert await session.get_items(0) == []
    assert len(await session.get_items(99)) == 3
    assert await session.pop_item() == odd
    assert await session.get_items() == [said("1"), said("2")]
    session.session_settings = SessionSettings(limit=1)
    assert await session.get_items() == [said("2")]
    assert await session.get_items(5) == [said("1"), said("2")]
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items([said("again")])
    assert await session.get_items() == [said("again")]


# --- settings -------------------------------------------------------------------------------------


def test_settings_are_overlaid() -> None:
    assert SessionSettings(limit=5).resolve(None) == SessionSettings(limit=5)
    assert SessionSettings(limit=5).resolve(SessionSettings()) == SessionSettings(limit=5)
    assert SessionSettings(limit=5).resolve(SessionSettings(limit=0)) == SessionSettings(limit=0)
    assert SessionSettings().resolve({"limit": 3}).to_dict() == {"limit": 3}
    with pytest.raises(UserError, match="no field limits"):
        SessionSettings().resolve({"limits": 3})
    with pytest.raises(UserError, match="must be an int or None; it is '3'"):
        SessionSettings(limit="3")  # type: ignore[arg-type]
    assert SQLiteSession("s", session_settings={"limit": 2}).session_settings == SessionSettings(2)


def test_the_run_is_shown_only_to_sessions_that_ask_for_it() -> None:
    seen: list[Any] = []

    class Plain:
        def get_items(self, limit: int | None = None) -> list[Item]:
            return [said(str(limit))]

    class Curious:
        async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Item]:
            seen.append(wrapper)
            return []

        async def add_items(self, items: list[Item], wrapper: Any = None) -> None: ...
        async def pop_item(self, wrapper: Any = None) -> None: ...
        async def clear_session(self, wrapper: Any = None) -> None: ...

    class Halfway(Curious):
        async def pop_item(self) -> None: ...  # type: ignore[override]

    async def main() -> None:
        context: Any = object()
        assert await call_session(Plain(), "get_items", limit=1, wrapper=context) == [said("1")]
        await call_session(Curious(), "get_items", wrapper=context)
        await call_session(Curious(), "get_items")
        await call_session(Halfway(), "get_items", wrapper=context)
        assert seen == [context, None, None]

    asyncio.run(main())


# --- SQLite ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["file", "memory"])
def test_sqlite_session(tmp_path: Path, where: str) -> None:
    path = tmp_path / "talk.db" if where == "file" else ":memory:"

    async def main() -> None:
        session = SQLiteSession("a", path)
        await check_contract(session)
        session.close()
        for use in (session.get_items(), session.add_items([]), session.pop_item()):
            with pytest.raises(RuntimeError, match="'a' is closed"):
                await use

    asyncio.run(main())


def test_a_memory_session_outlives_its_loop_and_is_its_own() -> None:
    first, second = SQLiteSession("same"), SQLiteSession("same")
    asyncio.run(first.add_items([said("1")]))
    asyncio.run(first.add_items([said("2")]))
    assert texts(asyncio.run(first.get_items())) == ["1", "2"]
    assert asyncio.run(second.get_items()) == []


def test_sessions_of_one_file_are_apart(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "talk.db"
        a, b = SQLiteSession("a", path), SQLiteSession("b", str(path))
        other = SQLiteSession("a", path, 'odd "sessions"', "odd messages")
        await a.add_items([said("a")])
        await b.add_items([said("b")])
        await other.add_items([said("other")])
        await b.clear_session()
        assert await a.get_items() == [said("a")]
        assert await SQLiteSession("a", path).get_items() == [said("a")]
        assert await other.get_items() == [said("other")]

    asyncio.run(main())


def test_the_tables_are_those_of_the_sdk(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    asyncio.run(SQLiteSession("a", path).add_items([said("ü")]))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        columns = {
            table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            for table in ("agent_sessions", "agent_messages")
        }
        assert columns == {
            "agent_sessions": ["session_id", "created_at", "updated_at"],
            "agent_messages": ["id", "session_id", "message_data", "created_at"],
        }
        assert db.execute("SELECT id, session_id, message_data FROM agent_messages").fetchall() == [
            (1, "a", json.dumps(said("ü")))
        ]
        assert db.execute("SELECT session_id FROM agent_sessions").fetchall() == [("a",)]
        (index,) = db.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE INDEX%'")
        assert index == ("idx_agent_messages_session_id",)


def test_rows_that_are_not_json_are_passed_over(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "talk.db"
        session = SQLiteSession("a", path)
        for text in ("1", "2", "3"):
            await session.add_items([said(text)])
            with closing(sqlite3.connect(path)) as db, db:
                insert = "INSERT INTO agent_messages (session_id, message_data) VALUES ('a', ?)"
                db.executemany(insert, [("nonsense",), ('{"cut": ',)])
        assert texts(await session.get_items()) == ["1", "2", "3"]
        assert texts(await session.get_items(2)) == ["2", "3"]
        assert await session.pop_item() == said("3")
        assert await session.pop_item() == said("2")
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT count(*) FROM agent_messages").fetchone() == (3,)

    asyncio.run(main())


def test_an_add_is_all_or_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        session = SQLiteSession("a", tmp_path / "talk.db")
        await session.add_items([said("1")])
        with pytest.raises(TypeError, match="not JSON serializable"):
            await session.add_items([said("2"), {"no": object()}])
        for delay in range(12):  # cancelled at each of its steps
            adding = asyncio.ensure_future(session.add_items([said("a"), said("b")]))
            for _ in range(delay):
                await asyncio.sleep(0)
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
        kept = texts(await session.get_items())
        assert kept == ["1", *["a", "b"] * (len(kept) // 2)]
        await session.add_items([said("end")])
        assert texts(await session.get_items())[-1] == "end"

    asyncio.run(main())


WRITER = """
import asyncio, sys
from sandstream.memory.sqlite_session import SQLiteSession

async def main(path, name):
    session = SQLiteSession("a", path)
    said = lambda text: {"role": "user", "content": f"{name} {text}"}
    await asyncio.gather(*(session.add_items([said(n), said(f"{n}'")]) for n in range(20)))

asyncio.run(main(*sys.argv[1:]))
"""


def test_many_tasks_and_processes_write_to_one_session(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    others = [subprocess.Popen([*command, name]) for name in ("one", "two")]
    assert [other.wait() for other in others] == [0, 0]
    found = texts(asyncio.run(SQLiteSession("a", path).get_items()))
    assert found[1::2] == [f"{text}'" for text in found[::2]]
    wanted = [f"{name} {n}" for name in ("one", "two") for n in range(20)]
    assert sorted(found[::2]) == sorted(wanted)


def test_each_item_is_popped_once() -> None:
    async def main() -> None:
        session = SQLiteSession("a")
        await session.add_items([said(str(n)) for n in range(20)])
        popped = await asyncio.gather(*(session.pop_item() for _ in range(30)))
        assert sorted(texts([it for it in popped if it]), key=int) == [str(n) for n in range(20)]

    asyncio.run(main())


def test_a_session_that_nobody_closes_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        await SQLiteSession("a", tmp_path / "talk.db").add_items([said("1")])
        await SQLiteSession("a").get_items()
        gc.collect()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(it.message) for it in caught if it.category is ResourceWarning] == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["talk.db"]  # no log: all closed


def test_a_database_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        SQLiteSession("a", tmp_path / "missing" / "talk.db")
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"not a database, but long enough to be looked at" * 50)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        SQLiteSession("a", broken)


# --- on the bus -----------------------------------------------------------------------------------


def test_bus_session(home: Path) -> None:
    async def main() -> None:
        await check_contract(BusSession("ünï/cødé *.>" + "x" * 300))

    asyncio.run(main())


def test_a_bus_session_is_the_same_everywhere_and_outlives_its_loop(home: Path) -> None:
    session = BusSession("shared")
    asyncio.run(session.add_items([said("1")]))

    async def main() -> None:
        bus = (await Process.of_this_loop()).bus
        assert await BusSession("shared", bus=bus).get_items() == [said("1")]
        await bus.conversations.join("shared", "run-1", "p")
        assert await session.get_items() == [said("1")]
        for change in (session.add_items([said("2")]), session.pop_item(), session.clear_session()):
            with pytest.raises(ConversationBusy, match="busy with run run-1"):
                await change

    asyncio.run(main())


def test_what_a_bus_session_cannot_be_is_refused_at_once(home: Path) -> None:
    with pytest.raises(UserError, match="'queue' or 'refuse'; it is 'wait'"):
        BusSession("a", busy="wait")  # type: ignore[arg-type]
    with pytest.raises(InvalidSubject, match="must not be empty"):
        BusSession("")

    async def main() -> None:
        session = BusSession("poisoned")
        for poison in ({"no": object()}, {"no": "\ud800"}):
            with pytest.raises(UserError, match="item 1 must be JSON"):
                await session.add_items([said("fine"), poison])
        assert await session.get_items() == []

    asyncio.run(main())


# --- at OpenAI ------------------------------------------------------------------------------------


class Conversations:
    """The Conversations API as far as a session uses it, behind real HTTP."""

    def __init__(self) -> None:
        self.items: dict[str, list[Item]] = {}
        self.begun = self.added = 0

    def __call__(self, request: Recorded) -> Reply:
        url = urlsplit(request.path)
        _, _, _, *rest = url.path.split("/")
        if not rest:
            self.begun += 1
            self.items[f"conv_{self.begun}"] = []
            return json_reply({"id": f"conv_{self.begun}", "object": "conversation"})
        if rest[0] not in self.items:
            return json_reply({"error": {"message": "no such conversation"}}, 404)
        found = self.items[rest[0]]
        if request.method == "DELETE" and len(rest) == 1:
            del self.items[rest[0]]
            return json_reply({"id": rest[0], "deleted": True})
        if request.method == "DELETE":
            found[:] = [item for item in found if item["id"] != rest[2]]
            return json_reply({"id": rest[0]})
        if request.method == "POST":
            return self._add(found, request.json["items"])
        return self._page(found, {name: value[0] for name, value in parse_qs(url.query).items()})

    def _add(self, found: list[Item], items: list[Item]) -> Reply:
        if len(items) > 20:
            return json_reply({"error": {"message": "too many items"}}, 400)
        for item in items:
            self.added += 1
            found.append({"id": f"item_{self.added}", **item})
        return json_reply({"object": "list", "data": items})

    def _page(self, found: list[Item], query: dict[str, str]) -> Reply:
        ordered = found if query["order"] == "asc" else found[::-1]
        ids = [item["id"] for item in ordered]
        start = ids.index(query["after"]) + 1 if "after" in query else 0
        page = ordered[start : start + 3]
        return json_reply(
            {
                "object": "list",
                "data": page,
                "has_more": start + 3 < len(ordered),
                "last_id": page[-1]["id"] if page else None,
            }
        )


def test_openai_conversations_session() -> None:
    async def main() -> None:
        api = Conversations()
        async with RecordingServer(api) as server:
            client = AsyncOpenAI(api_key="k", base_url=server.url)
            session = OpenAIConversationsSession(openai_client=client)
            assert isinstance(session, SessionABC)
            with pytest.raises(ValueError, match="no id yet"):
                _ = session.session_id
            await session.add_items([])
            await session.clear_session()
            assert server.requests == []
            assert await session.get_items() == []
            assert session.session_id == "conv_1"
            await session.add_items([said(str(n)) for n in range(45)])
            sizes = [len(it.json["items"]) for it in server.requests if it.path.endswith("/items")]
            assert sizes == [20, 20, 5]
            assert server.requests[-1].headers["authorization"] == "Bearer k"
            assert texts(await session.get_items()) == [str(n) for n in range(45)]
            before = len(server.requests)
            assert texts(await session.get_items(4)) == ["41", "42", "43", "44"]
            assert len(server.requests) - before == 2, "only the pages that are needed"
            assert await session.get_items(0) == []
            assert await session.pop_item() == {"id": "item_45", **said("44")}
            assert len(api.items["conv_1"]) == 44
            await session.clear_session()
            assert api.items == {}
            await session.add_items([said("anew")])
            assert session.session_id == "conv_2"
            known = OpenAIConversationsSession(
                conversation_id="conv_2", openai_client=client, session_settings={"limit": 1}
            )
            assert texts(await known.get_items()) == ["anew"]
            gone = OpenAIConversationsSession(conversation_id="a/b ?", openai_client=client)
            with pytest.raises(NotFoundError, match="no such conversation"):
                await gone.get_items()
            assert server.requests[-1].path.startswith("/v1/conversations/a%2Fb%20%3F/items?")
            await client.close()

    asyncio.run(main())


def test_a_lost_answer_of_several_requests_is_not_sent_again() -> None:
    async def main() -> None:
        api = Conversations()

        def serve(request: Recorded) -> Reply:
            reply = api(request)
            return json_reply({}, 500) if api.added == 40 else reply

        async with RecordingServer(serve) as server:
            client = AsyncOpenAI(api_key="k", base_url=server.url, max_retries=3)
            session = OpenAIConversationsSession(openai_client=client)
            with pytest.raises(Exception, match="500"):
                await session.add_items([said(str(n)) for n in range(45)])
            assert texts(api.items["conv_1"]) == [str(n) for n in range(40)]
            await client.close()

    asyncio.run(main())


def test_without_a_client_the_programs_default_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with RecordingServer(Conversations()) as server:
            monkeypatch.setattr(defaults, "_defaults", defaults._Defaults(key="from-program"))
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            session = OpenAIConversationsSession()
            await session.add_items([said("1")])
            assert server.requests[0].headers["authorization"] == "Bearer from-program"
            await session.close()
            client = AsyncOpenAI(api_key="other", base_url=server.url)
            monkeypatch.setattr(defaults, "_defaults", defaults._Defaults(client=client))
            await OpenAIConversationsSession().get_items()
            assert server.requests[-1].headers["authorization"] == "Bearer other"
            await client.close()

    asyncio.run(main())


# --- a model's input ------------------------------------------------------------------------------


def call(call_id: str, kind: str = "function_call", **more: Any) -> Item:
    return {"type": kind, "call_id": call_id, **more}


def output(call_id: str, kind: str = "function_call_output", **more: Any) -> Item:
    return {"type": kind, "call_id": call_id, "output": "o", **more}


def thought(item_id: str) -> Item:
    return {"type": "reasoning", "id": item_id, "summary": []}


def prepared(*args: Any, **options: Any) -> tuple[list[Item], list[Item]]:
    return asyncio.run(prepared_input(*args, **options))


@pytest.mark.parametrize(
    ("history", "kept"),
    [
        ([said("1"), call("a"), output("a")], [0, 1, 2]),
        ([said("1"), call("a"), call("b"), output("b")], [0, 2, 3]),
        ([thought("r1"), thought("r2"), call("a"), said("2")], [3]),
        ([thought("r1"), call("a"), output("a")], [0, 1, 2]),
        ([output("gone"), said("1")], [0, 1]),
        ([call("a", "shell_call"), output("a")], [1]),
        ([call("a"), output("a"), call("a"), output("a")], [0, 3]),
        ([{"type": "tool_search_call"}, {"type": "tool_search_output"}], [0, 1]),
        ([{"type": "tool_search_call"}, said("1")], [1]),
        ([call("p", "program"), call("a", caller={"type": "program", "caller_id": "p"})], []),
    ],
    ids=range(10),
)
def test_calls_without_outputs_are_not_shown_to_a_model(
    history: list[Item], kept: list[int]
) -> None:
    """With the reasoning that led to them; and nothing is taken from the new input."""
    before = json.dumps(history)
    new = [call("new")]
    seen, stored = prepared(history, new)
    assert seen == [history[place] for place in kept] + new
    assert stored == new
    assert json.dumps(history) == before


def test_a_window_that_begins_after_a_call_has_no_output_of_it() -> None:
    history = [call("a"), output("a"), said("2"), call("b"), output("b")]
    assert prepared(history, "hi", None, {"limit": 4})[0] == [*history[2:], said("hi")]
    assert prepared(history, "hi", None, {"limit": 0})[0] == [said("hi")]
    assert prepared(history, "hi", None, {"limit": -1})[0] == [*history, said("hi")]


def test_duplicates_leave_the_latest_where_it_can_stand() -> None:
    old, new = output("a", n=1), output("a", n=2)
    history = [call("a", v=1), old, said("x"), said("x"), call("a", v=2), new]
    assert prepared(history, [])[0] == [call("a", v=2), said("x"), said("x"), new]


def test_what_is_not_for_models_is_stripped() -> None:
    history = [thought("r") | {"created_by": "x"}, said("1") | {"_agents_tool_title": "t"}]
    assert prepared(history, [])[0] == [thought("r"), said("1")]
    omitted = prepared(history, [thought("n")], reasoning_item_id_policy="omit")[0]
    assert omitted == [{"type": "reasoning", "summary": []}, said("1"), thought("n")]
    answer = {"type": "message", "role": "assistant", "id": "msg_1", "content": []}
    seen, _ = prepared([answer], [answer], from_conversations_api=True)
    assert seen == [{"type": "message", "role": "assistant", "content": []}, answer]


def test_the_callback_says_what_the_model_sees_and_only_new_items_are_stored() -> None:
    history, new = [said("1"), said("2")], [said("2"), said("3")]

    def reorder(past: list[Item], fresh: list[Item]) -> list[Item]:
        return [*fresh, *past, said("note", "system")]

    async def rewrite(past: list[Item], fresh: list[Item]) -> list[Item]:
        past[0]["content"] = "changed"
        fresh[1]["content"] += "!"
        return [said("2"), *past[:1], *fresh]

    def drop(past: list[Item], fresh: list[Item]) -> list[Item]:
        return past[1:]

    note = said("note", "system")
    assert prepared(history, new, reorder) == ([*new, *history, note], [*new, note])
    seen, stored = prepared(history, new, rewrite)
    assert texts(seen) == ["2", "changed", "2", "3!"]
    assert texts(stored) == ["2", "3!"], "a copy of an old item is old"
    assert prepared(history, new, drop) == (history[1:], [])
    assert (history, new) == ([said("1"), said("2")], [said("2"), said("3")])


@pytest.mark.parametrize(
    ("callback", "problem"),
    [
        (lambda past, new: (*past, *new), "must return a list of input items; it returned tuple"),
        (lambda past, new: ["text"], "must be a dict; 'text' is a str"),
        ("nonsense", "must be callable"),
    ],
    ids=["tuple", "text", "nonsense"],
)
def test_a_callback_that_is_wrong_is_told_so(callback: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        prepared([], "hi", callback)


def test_what_a_turn_adds_to_a_session() -> None:
    search = {"type": "web_search_call", "id": "ws_1"}
    message = {"type": "message", "role": "assistant", "id": "msg_1", "provider_data": {}}
    unknown = {"type": "reasoning", "id": "__fake_id__"}
    items = [thought("r"), search, message, call("a", id="fc_1"), call("a", id="fc_1"), unknown]
    assert items_to_store(items) == [*items[:4], unknown]
    assert items_to_store(items, reasoning_item_id_policy="omit")[0] == {
        "type": "reasoning",
        "summary": [],
    }
    assert items_to_store(items, for_conversations_api=True) == [
        thought("r"),
        search,
        {"type": "message", "role": "assistant"},
        call("a"),
    ]


def test_names_of_the_package() -> None:
    for name in memory.__all__:
        assert getattr(memory, name).__name__ == name or name == "SessionInputCallback"
    with pytest.raises(AttributeError, match="has no attribute 'Sessions'"):
        _ = memory.Sessions
