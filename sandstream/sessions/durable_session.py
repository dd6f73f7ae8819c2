"""One durable session, as its users hold it. It lives in the log; this object only refers to it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from sandstream_bus.logs.sessions import counted_turns
from sandstream_bus.wire.sessions import (
    ArchiveSession,
    ConfigureSession,
    DestroySession,
    EditMessage,
    ForkSession,
    InterruptSession,
    PauseSession,
    QueuedMessage,
    RemoveMessage,
    RenameSession,
    RewindSession,
    SendMessage,
    SessionRequest,
    SessionTurn,
    SwitchProvider,
    TakePolicy,
    WakeSession,
)
from sandstream_bus.wire.subjects import session_conversation

from sandstream.exceptions import UserError
from sandstream.sessions.checks import (
    checked_idle,
    checked_provider,
    checked_text,
    checked_title,
    checked_turn,
    new_session_id,
    options_of,
)
from sandstream.sessions.events import SessionEvent
from sandstream.sessions.follower import SessionFollower
from sandstream.sessions.questions import SessionQuestions
from sandstream.sessions.sent_message import SentMessage
from sandstream.sessions.switch_preview import SwitchPreview, preview_switch
from sandstream.sessions.views import SessionInfo


class DurableSession(SessionQuestions):
    """A session: one agent, one conversation, one workspace, a queue of messages.

    ``async with`` only detaches at its end: the work goes on. ``Client.sessions`` gives these
    objects.

    Args:
        link: The client's connection to sessions.
        id: The id of the session.

    Example:
        async with await client.sessions.create("coder", title="Blog") as session:
            sent = await session.send("Make a blog with two posts.")
            print(await sent.answer())
    """

    async def __aenter__(self) -> DurableSession:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Detach. The session and its work go on."""

    def __repr__(self) -> str:
        return f"DurableSession({self.id!r})"

    # --- looking -------------------------------------------------------------------------------

    async def info(self) -> SessionInfo:
        """Read the session as it is now.

        Returns:
            A frozen view of its state.

        Raises:
            SessionNotFound: The log has no such session.

        Example:
            info = await session.info()
            print(info.activity, info.title, len(info.queue))
        """
        return await self._link.info(await self._state())

    async def turns(self, *, rewound: bool = False) -> list[SessionTurn]:
        """List the finished turns that count, oldest first.

        Args:
            rewound: Also list turns that a rewind took out of the conversation.

        Returns:
            The records, each with its run, its checkpoint and its tokens.

        Example:
            for turn in await session.turns():
                print(turn.number, turn.status, turn.said)
        """
        last = (await self._state()).turn
        known = await self._link.bus.sessions.turns(self.id)
        return known if rewound else counted_turns(known, last)

    async def history(self) -> list[dict[str, Any]]:
        """Read the conversation: what the model sees before the next message.

        Returns:
            Items of the Responses API, oldest first.

        Example:
            for item in await session.history():
                print(item.get("role"), item.get("content"))
        """
        await self._state()
        conversation = await self._link.bus.conversations.read(session_conversation(self.id))
        return [msgspec.json.decode(item) for item in conversation.history]

    def follow(
        self, *, deltas: bool = True, since: int | None = None
    ) -> AsyncGenerator[SessionEvent, None]:
        """Follow the session: what the log has, then what happens, without a gap, until the
        session is destroyed. An outage of the server only delays it.

        Args:
            deltas: Also yield what the model says and what commands write while they do.
            since: Also yield the finished turns after this number, 0 for all of them; ``None``
                begins with the turn at work, from its first event.

        Returns:
            An iterator over typed events. The first is a :class:`SessionChanged`. Close it if you
            leave early.

        Example:
            async for event in session.follow():
                if isinstance(event, TextDelta):
                    print(event.text, end="")
        """
        if since is not None:
            checked_turn(since)
        return SessionFollower(self._link, self.id, deltas=deltas, since=since).events()

    # --- messages ------------------------------------------------------------------------------

    async def send(self, text: str, *, id: str | None = None) -> SentMessage:
        """Add a message to the queue. A paused or sleeping session wakes up.

        Args:
            text: What to say to the agent.
            id: Your own id of the message: the same id again has no effect. ``None`` makes one.

        Returns:
            The message; its ``answer()`` waits for the turn that takes it.

        Raises:
            UserError: The text is empty or too long. Nothing was published then.
            SessionNotFound: The log has no such session.
            SessionRefused: The session is destroyed, or its queue is full.

        Example:
            sent = await session.send("Add a third post.")
            print(await sent.answer())
        """
        message_id = f"m{secrets.token_hex(6)}" if id is None else _message_id(id)
        request = SendMessage(input=checked_text(text), id=message_id)
        before = await self._state()
        await self._link.requests.to(self.id, request)
        after = before.begun if id is None else 0  # a repeated message may be in any turn
        return SentMessage(self._link, self.id, message_id, after)

    async def queue(self) -> list[QueuedMessage]:
        """List the messages that wait for a turn.

        Returns:
            The messages, oldest first.
        """
        return (await self._state()).queue

    async def edit(self, message_id: str, text: str) -> SessionInfo:
        """Change a message that still waits.

        Args:
            message_id: The id of the message.
            text: The new text.

        Returns:
            The session after the change.

        Raises:
            SessionRefused: No such message waits any more.
        """
        return await self._ask(EditMessage(id=_message_id(message_id), input=checked_text(text)))

    async def remove(self, message_id: str) -> SessionInfo:
        """Remove a message that still waits.

        Args:
            message_id: The id of the message.

        Returns:
            The session after the change.

        Raises:
            SessionRefused: No such message waits any more.
        """
        return await self._ask(RemoveMessage(id=_message_id(message_id)))

    # --- work ----------------------------------------------------------------------------------

    async def interrupt(self, *, reason: str = "", turn: int | None = None) -> SessionInfo:
        """Stop the turn at work, and its commands. Waiting messages stay in the queue.

        Args:
            reason: Why, for the log.
            turn: Only this turn; ``None`` is the current one.

        Returns:
            The session after the request. The turn ends soon after.

        Raises:
            SessionRefused: No turn is at work, or it is another one.
        """
        number = 0 if turn is None else checked_turn(turn)
        return await self._ask(InterruptSession(reason=reason, turn=number))

    async def pause(self) -> SessionInfo:
        """Take no more turns after the current one, and put the workspace to sleep.

        Returns:
            The session after the request.
        """
        return await self._ask(PauseSession())

    async def wake(self) -> SessionInfo:
        """Continue a paused session, and open its workspace ahead of the next message.

        Returns:
            The session after the request.
        """
        return await self._ask(WakeSession())

    async def rename(self, title: str) -> SessionInfo:
        """Give the session another title.

        Args:
            title: The title for people.

        Returns:
            The session after the change.
        """
        return await self._ask(RenameSession(title=checked_title(checked_text(title, "the title"))))

    async def configure(
        self,
        *,
        idle_s: float | msgspec.UnsetType | None = msgspec.UNSET,
        take: TakePolicy | msgspec.UnsetType = msgspec.UNSET,
    ) -> SessionInfo:
        """Change settings. A setting that is left out stays as it is.

        Args:
            idle_s: Seconds without work before the workspace sleeps; ``None``: never.
            take: ``all``: a turn takes all waiting messages together; ``one``: only the first.

        Returns:
            The session after the change.
        """
        if idle_s is not msgspec.UNSET:
            checked_idle(idle_s)
        if take not in ("all", "one", msgspec.UNSET):
            raise UserError(f"take must be 'all' or 'one', not {take!r}")
        return await self._ask(ConfigureSession(idle_s=idle_s, take=take))

    # --- forks, providers, time ----------------------------------------------------------------

    async def fork(
        self,
        *,
        turn: int | None = None,
        provider: str | None = None,
        options: Mapping[str, Any] | None = None,
        title: str = "",
        input: str = "",
        id: str | None = None,
    ) -> DurableSession:
        """Begin a new session as a copy of this one. This session is only read.

        Args:
            turn: The last turn that the copy has; 0: none. ``None``: the session as it is now.
            provider: The provider of the new workspace; ``None``: the same.
            options: Options of that provider.
            title: The title of the fork; empty: that of this session, marked as a fork.
            input: The first message of the fork; empty: none yet.
            id: The id of the fork, as for :meth:`Sessions.create`.

        Returns:
            The new session.

        Raises:
            SessionRefused: There is no such turn, or its checkpoint is gone.

        Example:
            other = await session.fork(turn=2, title="With tests first")
        """
        request = ForkSession(
            source=self.id,
            turn=None if turn is None else checked_turn(turn),
            title=checked_title(title),
            provider=await checked_provider(self._link.bus, provider) if provider else "",
            options=options_of(provider, options),
            input=checked_text(input, "the first message") if input else "",
        )
        session = new_session_id(self._link.requests.user, id)
        await self._state()
        await self._link.requests.to(session, request)
        return DurableSession(self._link, session)

    async def switch(
        self, provider: str, *, options: Mapping[str, Any] | None = None
    ) -> SessionInfo:
        """Move the workspace to another provider, after the turn at work. If a step fails, the
        workspace stays where it is.

        Args:
            provider: The provider to move to.
            options: Its options, such as ``image``.

        Returns:
            The session after the move.

        Raises:
            SessionRefused: The move failed, or is not possible.

        Example:
            await session.switch("docker", options={"image": "python:3.12"})
        """
        await checked_provider(self._link.bus, provider)
        request = SwitchProvider(provider=provider, options=options_of(provider, options))
        return await self._ask(request)

    async def switch_preview(self, provider: str) -> SwitchPreview:
        """Tell what a move to another provider would leave behind. Nothing is changed.

        Args:
            provider: The provider to move to.

        Returns:
            What carries over and what does not.

        Example:
            for loss in (await session.switch_preview("docker")).losses:
                print(loss.kind, loss.text)
        """
        await checked_provider(self._link.bus, provider)
        return await preview_switch(self._link.bus, await self._state(), provider)

    async def rewind(self, turn: int) -> SessionInfo:
        """Restore the conversation and the files as they were after a turn. A turn at work ends
        first.

        Args:
            turn: The last turn that stays; 0: none.

        Returns:
            The session after the rewind.

        Raises:
            SessionRefused: There is no such turn, or its checkpoint is gone.

        Example:
            await session.rewind(2)
        """
        return await self._ask(RewindSession(turn=checked_turn(turn)))

    async def archive(self) -> SessionInfo:
        """Hide the session from lists, and put its workspace to sleep. The next message brings it
        back.

        Returns:
            The session after the request.
        """
        return await self._ask(ArchiveSession())

    async def destroy(self) -> SessionInfo:
        """End the session: stop its turn and delete its workspace. Forks of it stay.

        Returns:
            The session after the request. Its box may still be in deletion.
        """
        return await self._ask(DestroySession())

    # --- asking --------------------------------------------------------------------------------

    async def _ask(self, request: SessionRequest) -> SessionInfo:
        return await self._link.info(await self._link.requests.to_known(self.id, request))


def _message_id(id: str) -> str:
    if not id or not id.isprintable() or len(id) > 128:
        raise UserError(f"the message id {id[:80]!r} is not possible: use 1 to 128 characters")
    return id
