"""``sandstream session``: one durable session. Finds the session and does what was asked."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from sandstream._inspect.texts import call_text
from sandstream.cli.commands.approvals.decisions import decider
from sandstream.cli.commands.session.attach import attach
from sandstream.cli.commands.session.choice import session_named
from sandstream.cli.commands.session.messages import begin, send
from sandstream.cli.commands.session.options import options_of
from sandstream.cli.commands.session.session_views import show, show_queue, show_turns
from sandstream.cli.commands.session.texts import state_text
from sandstream.cli.exits import Exit
from sandstream.cli.session import connected, put_json, run_async, say
from sandstream.cli.terminal.confirmation import confirm
from sandstream.cli.terminal.render import one_line, out
from sandstream.sessions.durable_session import DurableSession
from sandstream.sessions.views import SessionInfo

Action = Callable[[DurableSession, argparse.Namespace], Awaitable[int]]


def main(arguments: argparse.Namespace) -> int:
    if arguments.action == "new":
        return run_async(_new(arguments), debug=arguments.debug)
    return run_async(_act(arguments), debug=arguments.debug)


async def _new(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        return await begin(client, arguments)


async def _act(arguments: argparse.Namespace) -> int:
    is_last = arguments.action == "destroy"  # an id that is cut short must not end a session
    async with connected() as client:
        session = await session_named(client, arguments.id, whole=is_last)
        return await _ACTIONS[arguments.action](session, arguments)


# --- changes --------------------------------------------------------------------------------------


def _put(arguments: argparse.Namespace, info: SessionInfo, text: str) -> int:
    """The session after a change: an object for programs, a line for people."""
    if arguments.json:
        put_json(info)
    else:
        out().line(one_line(f"{text} ({state_text(info)})"))
    return Exit.OK


async def _interrupt(session: DurableSession, arguments: argparse.Namespace) -> int:
    info = await session.interrupt(reason=arguments.reason)
    return _put(arguments, info, f"the turn of session {session.id} is being stopped")


async def _pause(session: DurableSession, arguments: argparse.Namespace) -> int:
    return _put(arguments, await session.pause(), f"session {session.id} takes no more turns")


async def _wake(session: DurableSession, arguments: argparse.Namespace) -> int:
    return _put(arguments, await session.wake(), f"session {session.id} continues")


async def _rename(session: DurableSession, arguments: argparse.Namespace) -> int:
    info = await session.rename(arguments.title)
    return _put(arguments, info, f"session {session.id} is called {info.title}")


async def _archive(session: DurableSession, arguments: argparse.Namespace) -> int:
    return _put(arguments, await session.archive(), f"session {session.id} is archived")


async def _say_wait(session: DurableSession) -> None:
    """Say what a move or a rewind waits for, if it does."""
    active = (await session.info()).active
    if active is not None:
        say(
            f"waits for the end of turn {active.number} (sandstream session interrupt {session.id})"
        )


async def _rewind(session: DurableSession, arguments: argparse.Namespace) -> int:
    await _say_wait(session)
    info = await session.rewind(arguments.turn)
    return _put(arguments, info, f"session {session.id} is back at turn {info.turn}")


async def _destroy(session: DurableSession, arguments: argparse.Namespace) -> int:
    if not arguments.yes:
        info = await session.info()
        await confirm(
            f"end session {session.id} ({one_line(info.title)}) and delete its workspace?",
            to_do="destroy it",
            otherwise="nothing was destroyed",
        )
    return _put(arguments, await session.destroy(), f"session {session.id} ends")


async def _fork(session: DurableSession, arguments: argparse.Namespace) -> int:
    fork = await session.fork(
        turn=arguments.turn,
        title=arguments.title or "",
        provider=arguments.provider,
        options=options_of(arguments),
        id=arguments.new_id,
    )
    if arguments.json:
        put_json(await fork.info())
    else:
        out().line(fork.id)
        say(f"follow it: sandstream session attach {fork.id}")
    return Exit.OK


async def _switch(session: DurableSession, arguments: argparse.Namespace) -> int:
    options = options_of(arguments)
    if not arguments.preview:
        await _say_wait(session)
        info = await session.switch(arguments.provider, options=options)
        return _put(arguments, info, f"the workspace of session {session.id} is at {info.provider}")
    preview = await session.switch_preview(arguments.provider)
    if arguments.json:
        put_json(preview)
        return Exit.OK
    screen = out()
    screen.line(f"{preview.source} → {preview.target}: files and conversation carry over, but")
    for loss in preview.losses:
        screen.line(f"  {one_line(loss.text)}")
    if preview.waits_for_turn:
        say(f"the move would wait for the end of turn {preview.waits_for_turn}")
    if preview.is_served is False:
        say(f"no actor for {preview.target} sandboxes is running")
    return Exit.OK


async def _decide(session: DurableSession, arguments: argparse.Namespace) -> int:
    by = decider(arguments.by)
    always: bool = arguments.always
    if arguments.action == "approve":
        done = await session.approve(arguments.call, always=always, by=by)
    else:
        done = await session.reject(arguments.call, message=arguments.message, always=always, by=by)
    if arguments.json:
        put_json(done)
    else:
        what = "approved" if arguments.action == "approve" else "rejected"
        out().line(one_line(f"{what} {call_text(done.tool, done.arguments)}"))
    return Exit.OK


_ACTIONS: dict[str, Action] = {
    "send": send,
    "attach": attach,
    "show": show,
    "turns": show_turns,
    "queue": show_queue,
    "interrupt": _interrupt,
    "pause": _pause,
    "wake": _wake,
    "rename": _rename,
    "approve": _decide,
    "reject": _decide,
    "fork": _fork,
    "switch": _switch,
    "rewind": _rewind,
    "archive": _archive,
    "destroy": _destroy,
}
