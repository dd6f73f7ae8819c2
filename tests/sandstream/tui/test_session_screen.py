"""The screen of a session, with a pilot, against real actors on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.nats_server import NatsServer
from support.tui.stage import Screen, Stage, screen, stage
from support.waiting import eventually
from textual.events import Key

from sandstream.sessions import DurableSession
from sandstream.tui.answers import QuestionPanel
from sandstream.tui.conversation.prompt import Prompt
from sandstream.tui.conversation.screen import WorkScreen

pytestmark = pytest.mark.timeout(240)
Play = Callable[[Stage, DurableSession, Screen], Awaitable[None]]


def play(
    server: NatsServer, home: Path, act: Play, *, agent: str = "coder", said: str = ""
) -> None:
    """Open a new session in the UI, and act there."""

    async def go() -> None:
        async with stage(server, home) as place:
            session = await place.client.sessions.create(
                agent, id="one", title="Shop", input=said, idle_s=None
            )
            async with screen(place.client, open_id="one") as ui:
                await ui.until(lambda: isinstance(ui.app.screen, WorkScreen), "it is open")
                await act(place, session, ui)

    asyncio.run(go())


def test_messages_are_typed_and_answered(nats_server: NatsServer, tmp_path: Path) -> None:
    async def act(place: Stage, session: DurableSession, ui: Screen) -> None:
        await ui.type("do:mark")
        shown = await ui.shows("Title", "Some text with code.", "• one", "turn 1 completed")
        assert "# Title" not in shown
        await ui.type("do:slow")
        await ui.shows("slow answer slow answer")  # while the model still writes
        await ui.shows("turn 2 completed")
        await ui.press("up", "up")
        assert ui.app.screen.query_one(Prompt).text == "do:mark"
        await ui.press("down", "down")
        assert ui.app.screen.query_one(Prompt).text == ""
        await ui.press("a", "ctrl+j", "b")
        assert ui.app.screen.query_one(Prompt).text == "a\nb"
        await ui.press("ctrl+c", "ctrl+f")
        await ui.type("title")
        await ui.until(
            lambda: ui.app.screen.query_one("#transcript").cursor is not None,  # type: ignore[attr-defined]
            "the text is found",
        )
        await ui.press("escape", "ctrl+y")
        assert ui.app.clipboard.startswith("# Title")  # the selected block
        await ui.press("escape", "ctrl+y")
        await ui.until(
            lambda: ui.app.clipboard.startswith("slow answer"), "the last answer is copied"
        )

    play(nats_server, tmp_path, act, agent="talker")


def test_commands_fold_to_a_line_and_stream_while_they_run(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def act(place: Stage, session: DurableSession, ui: Screen) -> None:
        await ui.shows("● $ for n in 1 2 3", "│ line 3")
        await ui.type("!ls; touch go")
        await ui.shows("✓ $ ls; touch go", "│ given.txt", "did noisy")
        shown = await ui.shows("✓ $ for n in 1 2 3", "→ line 3")
        assert "│ line 3" not in shown
        await ui.press("ctrl+o")
        await ui.shows("│ line 1", "│ line 3")
        await ui.press("ctrl+o")
        await ui.until(lambda: "│ line 3" not in ui.text(), "it is folded")
        await ui.type("!exit 3")
        await ui.shows("✗ $ exit 3", "[exit code 3]")
        await ui.type("!")
        await ui.shows("usage: !COMMAND")
        await ui.press("ctrl+c", "alt+up", "j", "x")  # typed while a block is selected
        assert ui.app.screen.query_one(Prompt).text == "x"
        assert len(await session.turns()) == 1  # no turn has seen a command

    play(nats_server, tmp_path, act, said="do:noisy")


def test_a_box_stays_awake_while_a_person_works_in_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def act(place: Stage, session: DurableSession, ui: Screen) -> None:
        await ui.shows("turn 1 completed")
        await session.configure(idle_s=5.0)
        await ui.type("!sleep 7; echo rested")
        await ui.shows("✓ $ sleep 7; echo rested", "│ rested")

        async def sleeps() -> bool:
            return (await session.info()).box == "asleep"

        await eventually(sleeps, within_s=30, what="the box sleeps when the work has ended")

    play(nats_server, tmp_path, act, said="do:mark")


def test_a_turn_is_interrupted_and_the_queue_is_edited(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def act(place: Stage, session: DurableSession, ui: Screen) -> None:
        await ui.shows("● $ touch hanging")
        await ui.type("first wish")
        await ui.type("second wish")
        await ui.shows("2 waiting", "⧗ first wish", "⧗ second wish")
        await ui.press("ctrl+b")
        await ui.shows("Waiting messages", "1. first wish")
        await ui.press("d")
        await ui.until(lambda: "first wish" not in ui.text(), "it is removed")
        await ui.press("enter")
        await ui.shows("Edit the message")
        await ui.press(*["backspace"] * len("second wish"))
        await ui.type("third wish")
        await ui.shows("1. third wish")
        await ui.press("escape", "escape")
        await ui.shows("ended as cancelled", "❯ third wish", "Hello.", "turn 2 completed")
        turns = await session.turns()
        assert [it.status for it in turns] == ["cancelled", "completed"]
        assert [it.input for it in turns[1].input] == ["third wish"]

    play(nats_server, tmp_path, act, said="do:hang")


def test_files_are_completed_compared_and_rewound(nats_server: NatsServer, tmp_path: Path) -> None:
    async def act(place: Stage, session: DurableSession, ui: Screen) -> None:
        await ui.shows("turn 1 completed")
        await ui.press("f4")
        shown = await ui.shows("Files that turn 1 changed (since the start)", "A note.txt", "+two")
        assert "given.txt" not in shown  # the agent's own file, which the turn has not changed
        await ui.press("escape")
        await ui.type("do:more")
        await ui.shows("turn 2 completed")
        await ui.press("at", *"not")
        await ui.shows("note.txt")
        await ui.press("tab")
        assert ui.app.screen.query_one(Prompt).text == "@note.txt "
        await ui.press("ctrl+c")
        await ui.type("/diff 2")
        await ui.shows("Files that turn 2 changed", "M note.txt", "+three")
        await ui.press("escape", "escape", "escape")
        await ui.shows("Go back to, or fork after", "do:write", "do:more")
        await ui.press("up", "f")
        await ui.shows("fork of Shop, turn 1", "forked from one after turn 1", "did write")
        fork = ui.app.screen
        assert isinstance(fork, WorkScreen)
        await ui.type("!cat note.txt")
        await ui.shows("│ two")
        assert "three" not in ui.text()
        await ui.type("do:more")
        await ui.shows("did more")
        await eventually(fork.work.session().turns, within_s=30, what="the turn has its record")
        await ui.press("f4")
        shown = await ui.shows("M note.txt", "+three")  # since the checkpoint of the source
        assert "given.txt" not in shown
        await ui.press("escape", "left")
        await ui.shows("└ ")
        await ui.press("up", "enter")
        await ui.shows("turn 2 completed")
        await ui.type("/rewind 1")
        await ui.until(lambda: "do:more" not in ui.text(), "turn 2 no longer counts")
        await ui.type("!cat note.txt")
        await ui.shows("│ two")
        assert "three" not in ui.text()

    play(nats_server, tmp_path, act, said="do:write")


def test_questions_are_answered_with_one_key_but_never_by_typing(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def act(place: Stage, session: DurableSession, ui: Screen) -> None:
        await ui.shows("coder asks to run", "amount: 12", "a allow")
        await ui.shows("needs you · refund(amount=12) · turn 1")
        await ui.until(
            lambda: ui.app.focused is not ui.app.screen.query_one(Prompt), "it has focus"
        )
        await ui.press("x")  # not an answer: it goes to the input
        assert ui.app.screen.query_one(Prompt).text == "x"
        await ui.press("a")
        assert ui.app.screen.query_one(Prompt).text == "xa"
        await ui.press("ctrl+c")
        panel = ui.app.screen.query_one(QuestionPanel)
        panel.focus()
        await ui.pilot.pause()
        for key in "what is a risk":  # at once, as in a paste
            panel.on_key(Key("space" if key == " " else key, key))
        await ui.until(lambda: ui.app.screen.query_one(Prompt).text == "what is a risk", "typed")
        await ui.press("ctrl+c")
        await ui.type("/reject not today")
        await ui.shows("refund rejected by", "not today", "did refund")
        await ui.type("do:refund")
        await ui.shows("asks to run", "a allow")
        await ui.until(
            lambda: ui.app.focused is not ui.app.screen.query_one(Prompt), "it has focus"
        )
        await ui.press("A")
        await ui.shows("also from now on", "turn 2 completed")

    play(nats_server, tmp_path, act, said="do:refund")


def test_a_question_is_not_answered_before_it_could_be_read(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """A person who types when it appears means something else."""

    async def act(place: Stage, session: DurableSession, ui: Screen) -> None:
        panel = ui.app.screen.query_one(QuestionPanel)
        await ui.until(lambda: panel.current is not None, "it is asked")
        panel.on_key(Key("a", "a"))
        await ui.until(lambda: ui.app.screen.query_one(Prompt).text == "a", "it is typed")
        await ui.shows("asks to run", "a allow")
        assert await session.approvals()

    play(nats_server, tmp_path, act, said="do:refund")


def test_slash_commands_have_working_arguments(nats_server: NatsServer, tmp_path: Path) -> None:
    async def act(place: Stage, session: DurableSession, ui: Screen) -> None:
        await ui.shows("turn 1 completed")
        await ui.type("/title A new name")
        await ui.shows("A new name  coder")
        await ui.type("/nonsense")
        await ui.shows("there is no command /nonsense")
        await ui.type("/idle 9")
        await ui.type("/take one")

        async def is_set() -> bool:
            info = await session.info()
            return (info.idle_s, info.take) == (9, "one")

        await eventually(is_set, what="the settings are changed")
        await ui.type("/status")
        await ui.shows("sleeps after", "9 s without work", "a turn takes one")
        await ui.press("escape")
        await ui.type("/cost")
        await ui.shows("turn 1", "completed", "in", "out")
        await ui.press("escape")
        await ui.type("/files giv")
        await ui.shows("1 files", "given.txt")
        await ui.press("escape")
        await ui.type("/pause")
        await ui.shows("‖ paused", "box asleep")
        await ui.type("/wake")
        await ui.shows("box open")
        target = tmp_path / "said.txt"
        await ui.app.screen.actions.slash(f"/export {target}")  # type: ignore[attr-defined]
        assert "do:list" in target.read_text()
        await ui.press("slash", "s", "w")
        await ui.shows("/switch PROVIDER")
        await ui.press("tab")
        assert ui.app.screen.query_one(Prompt).text == "/switch "
        await ui.press(*"nowhere", "enter")
        await ui.shows("nowhere")
        await ui.press("escape")
        await ui.type("/theme nowhere")
        await ui.shows("there is no theme 'nowhere'")
        await ui.type("/theme paper")
        await ui.until(lambda: ui.app.theme == "paper", "the theme is changed")
        await ui.press("ctrl+p")
        await ui.shows("Search for commands")
        await ui.press(*"/cost")
        await ui.shows("show the tokens of each turn")
        await ui.press("enter", "enter")
        await ui.shows("Tokens", "turn 1")
        await ui.press("escape")
        await ui.press("f1")
        await ui.shows("Help", "Everywhere")

    play(nats_server, tmp_path, act, said="do:list")
