"""``Runner``: the way into a run. The loop is not here: the harness actor takes the turns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from sandstream.agent import Agent
from sandstream.error_handlers import RunErrorHandlers, check_error_handlers
from sandstream.items import TResponseInputItem
from sandstream.lifecycle import RunHooks
from sandstream.memory.session import Session
from sandstream.result import RunResult, RunResultStreaming
from sandstream.run_call import RunCall
from sandstream.run_config import DEFAULT_MAX_TURNS, RunConfig
from sandstream.run_state import RunState


class Runner:
    """Runs agents."""

    @classmethod
    async def run(
        cls,
        starting_agent: Agent[Any],
        input: str | list[TResponseInputItem] | RunState[Any, Any],
        *,
        context: Any | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[Any] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: RunErrorHandlers | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResult:
        """Run an agent to its final output, or to where it needs people: then the result has
        ``interruptions``, and its ``to_state()`` is the input with which the run goes on.
        """
        call = RunCall(
            starting_agent,
            input,
            context=context,
            max_turns=max_turns,
            config=RunConfig.coerce(run_config),
            hooks=hooks,
            error_handlers=check_error_handlers(error_handlers),
            stream=False,
            previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id,
            conversation_id=conversation_id,
            session=session,
        )
        return await call.run()

    @classmethod
    def run_sync(
        cls,
        starting_agent: Agent[Any],
        input: str | list[TResponseInputItem] | RunState[Any, Any],
        *,
        context: Any | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[Any] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: RunErrorHandlers | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResult:
        """Like :meth:`run`, for code without an event loop. Leaves the thread's loop open."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError(
                "Runner.run_sync() cannot be called where an event loop is already running; "
                "use `await Runner.run(...)`"
            )
        loop = _loop_of_thread()
        run = cls.run(
            starting_agent,
            input,
            context=context,
            max_turns=max_turns,
            hooks=hooks,
            run_config=run_config,
            error_handlers=error_handlers,
            previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id,
            conversation_id=conversation_id,
            session=session,
        )
        task = loop.create_task(run)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # interrupted: let the run's own clean-up happen
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))
            raise

    @classmethod
    def run_streamed(
        cls,
        starting_agent: Agent[Any],
        input: str | list[TResponseInputItem] | RunState[Any, Any],
        *,
        context: Any | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[Any] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: RunErrorHandlers | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResultStreaming:
        """Start a run and return at once; its events come from ``stream_events()``."""
        call = RunCall(
            starting_agent,
            input,
            context=context,
            max_turns=max_turns,
            config=RunConfig.coerce(run_config),
            hooks=hooks,
            error_handlers=check_error_handlers(error_handlers),
            stream=True,
            previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id,
            conversation_id=conversation_id,
            session=session,
        )
        return call.run_streamed()


def _loop_of_thread() -> asyncio.AbstractEventLoop:
    """The thread's default loop, made if there is none; it stays open for the next call."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = asyncio.get_event_loop_policy().get_event_loop()
        except RuntimeError:
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
    if loop.is_closed():
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop
