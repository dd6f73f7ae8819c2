"""``Runner``: the entry point for runs. The agent loop itself is in the harness actor."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from sandstream._run.call import RunCall
from sandstream.agent import Agent
from sandstream.error_handlers import RunErrorHandlers, check_error_handlers
from sandstream.items import TResponseInputItem
from sandstream.lifecycle import RunHooks
from sandstream.memory.session import Session
from sandstream.result import RunResult, RunResultStreaming
from sandstream.run_config import DEFAULT_MAX_TURNS, RunConfig
from sandstream.run_context import TContext
from sandstream.run_state import RunState


class Runner:
    """Runs agents. The three methods take the same arguments; they differ in how you wait.

    Example:
        agent = Agent(name="Poet", instructions="Answer in haikus.")
        result = await Runner.run(agent, "How is the weather?")
        print(result.final_output)
    """

    @classmethod
    async def run(
        cls,
        starting_agent: Agent[TContext],
        input: str | list[TResponseInputItem] | RunState[TContext, Any],
        *,
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[TContext] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: RunErrorHandlers | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResult:
        """Run an agent until it has a final output or needs a decision of a person.

        Args:
            starting_agent: The agent that takes the first turn.
            input: The user's message, a list of items, or the state of a run that waits or was
                stopped; such a run continues.
            context: An object of your own for tools, hooks and guardrails. The model never sees it.
            max_turns: How many model calls the run may make; ``None`` removes the limit.
            hooks: Callbacks for the events of the run.
            run_config: Settings for all agents of the run, as a ``RunConfig`` or a dict.
            error_handlers: Functions that turn an error of the run into its final output.
            previous_response_id: The stored response that the conversation continues after.
            auto_previous_response_id: Let each model call continue after the previous response.
            conversation_id: The stored conversation of the Responses API that the run continues.
            session: The history that the run reads first and appends to.

        Returns:
            The final output, the new items and the usage. If calls wait for approval, they are in
            ``interruptions``; decide on them in ``to_state()``, and pass that as ``input``.

        Raises:
            MaxTurnsExceeded: The run used all of its turns.
            InputGuardrailTripwireTriggered: A guardrail refused the input.
            OutputGuardrailTripwireTriggered: A guardrail refused the output.
            UserError: An argument makes no sense, or agents and settings do not fit together.
            AgentsException: The run failed for another reason; each has a class and a ``code``.

        Example:
            result = await Runner.run(Agent(name="Poet"), "Write a haiku.")
            print(result.final_output)
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
        starting_agent: Agent[TContext],
        input: str | list[TResponseInputItem] | RunState[TContext, Any],
        *,
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[TContext] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: RunErrorHandlers | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResult:
        """Run an agent from code without an event loop. The thread's loop stays open.

        Args:
            starting_agent: The agent that takes the first turn.
            input: The user's message, a list of items, or the state of a run that waits or was
                stopped; such a run continues.
            context: An object of your own for tools, hooks and guardrails. The model never sees it.
            max_turns: How many model calls the run may make; ``None`` removes the limit.
            hooks: Callbacks for the events of the run.
            run_config: Settings for all agents of the run, as a ``RunConfig`` or a dict.
            error_handlers: Functions that turn an error of the run into its final output.
            previous_response_id: The stored response that the conversation continues after.
            auto_previous_response_id: Let each model call continue after the previous response.
            conversation_id: The stored conversation of the Responses API that the run continues.
            session: The history that the run reads first and appends to.

        Returns:
            The result, as from :meth:`run`.

        Raises:
            RuntimeError: An event loop is running in this thread; use :meth:`run` there.
            AgentsException: The run failed, as in :meth:`run`.

        Example:
            print(Runner.run_sync(Agent(name="Poet"), "Write a haiku.").final_output)
        """
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
        starting_agent: Agent[TContext],
        input: str | list[TResponseInputItem] | RunState[TContext, Any],
        *,
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[TContext] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: RunErrorHandlers | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResultStreaming:
        """Start a run and return at once.

        Args:
            starting_agent: The agent that takes the first turn.
            input: The user's message, a list of items, or the state of a run that waits or was
                stopped; such a run continues.
            context: An object of your own for tools, hooks and guardrails. The model never sees it.
            max_turns: How many model calls the run may make; ``None`` removes the limit.
            hooks: Callbacks for the events of the run.
            run_config: Settings for all agents of the run, as a ``RunConfig`` or a dict.
            error_handlers: Functions that turn an error of the run into its final output.
            previous_response_id: The stored response that the conversation continues after.
            auto_previous_response_id: Let each model call continue after the previous response.
            conversation_id: The stored conversation of the Responses API that the run continues.
            session: The history that the run reads first and appends to.

        Returns:
            A result that fills while you read its ``stream_events()``. Reading them raises the
            errors of the run, as :meth:`run` does.

        Raises:
            UserError: An argument makes no sense, or agents and settings do not fit together.

        Example:
            result = Runner.run_streamed(Agent(name="Poet"), "Write a haiku.")
            async for event in result.stream_events():
                print(event.type)
        """
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
    """The thread's default loop, created if missing; it stays open for the next call."""
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
