"""Results of runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from sandstream_bus.counts import numbered

from sandstream._surface.item_records import input_of
from sandstream.exceptions import AgentsException, RunErrorDetails, UserError
from sandstream.items import (
    AgentRef,
    ItemHelpers,
    ModelResponse,
    RunItem,
    ToolApprovalItem,
    TResponseInputItem,
)
from sandstream.run_context import RunContextWrapper
from sandstream.stream_events import StreamEvent
from sandstream.tool_context import ToolContext

if TYPE_CHECKING:
    from sandstream_bus.wire.messages import RunDone

    from sandstream.agent import Agent
    from sandstream.guardrail import InputGuardrailResult, OutputGuardrailResult
    from sandstream.run_state import RunState
    from sandstream.tool_guardrails import ToolInputGuardrailResult, ToolOutputGuardrailResult
    from sandstream.usage import Usage

T = TypeVar("T")


@dataclass(frozen=True)
class AgentToolInvocation:
    """The tool call that an agent's run answered."""

    tool_name: str
    """The name of the tool."""
    tool_call_id: str
    """The model's id of the call."""
    tool_arguments: str
    """The arguments as JSON text."""


class RunSoFar(Protocol):
    """A run as far as its log shows it; results are filled from it."""

    items: list[RunItem]
    model_items: list[RunItem]
    items_in_input: list[RunItem]
    responses: list[ModelResponse]
    usage: Usage
    new_input: str | list[TResponseInputItem] | None

    @property
    def interruptions(self) -> list[ToolApprovalItem]: ...

    @property
    def guardrails(self) -> object: ...

    @property
    def agent(self) -> Agent[Any] | None: ...

    @property
    def done(self) -> RunDone | None: ...

    @property
    def turn(self) -> int: ...


class RunResultBase:
    """The common base of results.

    Args:
        input: The input of the run.
        context_wrapper: The context of the run. The result sets its usage.
        starting_agent: The agent that the run began with.
        max_turns: How many model calls the run may make; ``None`` means no limit.
        run_id: The id of the run in the log.
        omit_reasoning_ids: Whether reasoning items lose their ids when the result becomes an input.
    """

    def __init__(
        self,
        *,
        input: str | list[TResponseInputItem],
        context_wrapper: RunContextWrapper[Any],
        starting_agent: Agent[Any],
        max_turns: int | None,
        run_id: str,
        omit_reasoning_ids: bool = False,
    ) -> None:
        self.input = input
        self.run_id = run_id
        self.context_wrapper = context_wrapper
        self.max_turns = max_turns
        self.new_items: list[RunItem] = []
        self.raw_responses: list[ModelResponse] = []
        self.final_output: Any = None
        self.interruptions: list[ToolApprovalItem] = []
        """Calls that wait for a person: the run is paused, see :meth:`to_state`."""
        self.input_guardrail_results: list[InputGuardrailResult] = []
        self.output_guardrail_results: list[OutputGuardrailResult] = []
        self.tool_input_guardrail_results: list[ToolInputGuardrailResult] = []
        self.tool_output_guardrail_results: list[ToolOutputGuardrailResult] = []
        self.sandbox_states: dict[str, Any] = {}
        """For each sandbox agent, the state from which a later run can resume its workspace:
        ``SandboxRunConfig(session_state=...)``.
        """
        self._starting_agent = AgentRef(starting_agent)
        self._last_agent = AgentRef(starting_agent)
        self._model_items: list[RunItem] = []
        self._items_in_input: list[RunItem] = []
        self._omit_reasoning_ids = omit_reasoning_ids
        self._make_state: Callable[[], RunState[Any, Any]] | None = None

    def _take(self, view: RunSoFar) -> None:
        """Fill the result from a view."""
        self.new_items = view.items
        self._model_items = view.model_items
        self._items_in_input = view.items_in_input
        self.raw_responses = view.responses
        self.context_wrapper.usage = view.usage
        self.interruptions = view.interruptions
        for name, results in vars(view.guardrails).items():
            setattr(self, name, results)
        if view.new_input is not None:
            self.input = view.new_input
        if view.agent is not None:
            self._last_agent = AgentRef(view.agent)

    @property
    def starting_agent(self) -> Agent[Any]:
        """The agent that the run began with; None if it was released and has been collected."""
        return self._starting_agent.get()

    @property
    def last_agent(self) -> Agent[Any]:
        agent: Agent[Any] | None = self._last_agent.get()
        if agent is None:
            raise AgentsException("the last agent was released and no longer exists")
        return agent

    @property
    def agent_tool_invocation(self) -> AgentToolInvocation | None:
        """The tool call that this run answers, if its agent runs as a tool."""
        context = self.context_wrapper
        if not isinstance(context, ToolContext):
            return None
        return AgentToolInvocation(context.tool_name, context.tool_call_id, context.tool_arguments)

    @property
    def last_response_id(self) -> str | None:
        return self.raw_responses[-1].response_id if self.raw_responses else None

    def to_state(self) -> RunState[Any, Any]:
        """The run as a value: to decide on its approvals, to store it, to continue it.

        Returns:
            The state. ``Runner.run(agent, state)`` continues the run.

        Raises:
            UserError: The run is under way, or :meth:`release_agents` was called.

        Example:
            state = result.to_state()
            for item in result.interruptions:
                state.approve(item)
            result = await Runner.run(agent, state)
        """
        if self._make_state is None:
            raise UserError(
                "the run is under way: iterate stream_events() to its end, then take its state"
            )
        return self._make_state()

    def _set_state_maker(self, make: Callable[[], RunState[Any, Any]]) -> None:
        """Called by the follower of the run."""
        self._make_state = make

    def final_output_as(self, cls: type[T], raise_if_incorrect_type: bool = False) -> T:
        """The final output with a static type.

        Args:
            cls: The type.
            raise_if_incorrect_type: Check the type of the output instead of trusting it.

        Returns:
            The final output.

        Raises:
            TypeError: The check failed.
        """
        if raise_if_incorrect_type and not isinstance(self.final_output, cls):
            raise TypeError(f"Final output is not of type {cls.__name__}")
        return cast(T, self.final_output)

    def to_input_list(
        self, *, mode: Literal["preserve_all", "normalized"] = "preserve_all"
    ) -> list[TResponseInputItem]:
        """The whole conversation as input for another run.

        Args:
            mode: ``preserve_all`` for all items; ``normalized`` for the conversation as the last
                agent's model saw it, without what a handoff removed.

        Returns:
            The input items, the run's own input first.

        Raises:
            ValueError: The mode is unknown.

        Example:
            more = [*result.to_input_list(), {"role": "user", "content": "And tomorrow?"}]
            result = await Runner.run(agent, more)
        """
        if mode not in ("preserve_all", "normalized"):
            raise ValueError(f"unknown mode {mode!r}: use 'preserve_all' or 'normalized'")
        items = self._model_items
        if mode == "preserve_all":
            already = {id(item) for item in self._items_in_input}
            items = [item for item in self.new_items if id(item) not in already]
        new = input_of(items)
        if self._omit_reasoning_ids:
            new = [_without_id(item) if item.get("type") == "reasoning" else item for item in new]
        return ItemHelpers.input_to_new_input_list(self.input) + new

    def release_agents(self, *, release_new_items: bool = True) -> None:
        """Release the agents of a result that is kept for long, so that they can be collected.

        Args:
            release_new_items: Also release the agents of ``new_items``.
        """
        if release_new_items:
            for item in self.new_items:
                item.release_agent()
        self._starting_agent.release()
        self._last_agent.release()
        self._make_state = _released

    def details(self) -> RunErrorDetails:
        """The run so far, for exceptions."""
        return RunErrorDetails(
            input=self.input,
            new_items=self.new_items,
            raw_responses=self.raw_responses,
            last_agent=self.last_agent,
            context_wrapper=self.context_wrapper,
            input_guardrail_results=self.input_guardrail_results,
            output_guardrail_results=self.output_guardrail_results,
            tool_input_guardrail_results=self.tool_input_guardrail_results,
            tool_output_guardrail_results=self.tool_output_guardrail_results,
        )


def _released() -> RunState[Any, Any]:
    raise UserError("release_agents() released the agents of the state: call to_state() first")


def _without_id(item: TResponseInputItem) -> TResponseInputItem:
    return {key: value for key, value in item.items() if key != "id"}


class RunResult(RunResultBase):
    """The result of a run that has ended or waits for a person.

    ``final_output`` is the output; ``new_items`` has what the run added to its ``input``;
    ``interruptions`` lists the calls that wait; ``run_id`` finds the run in the log.

    Example:
        result = await Runner.run(agent, "How is the weather?")
        print(result.final_output)
    """

    def __str__(self) -> str:
        count = len(self.new_items)
        return (
            f"RunResult: last agent {self.last_agent.name!r}, "
            f"{numbered(count, 'new item')}, "
            f"{numbered(len(self.raw_responses), 'model response')}, "
            f"final output: {self.final_output!r}"
        )


CancelMode = Literal["immediate", "after_turn"]
CancelRun = Callable[[CancelMode], Awaitable[None] | None]
"""Requests the end of a run; returns None if the run has not begun and never will."""


class RunResultStreaming(RunResultBase):
    """A run in progress. Iterate :meth:`stream_events` to the end; only then is the run over.

    Args:
        cancel_run: Requests the end of the run, for :meth:`cancel`.
        arguments: The other arguments of a result, which the runner passes on.

    Example:
        result = Runner.run_streamed(agent, "How is the weather?")
        async for event in result.stream_events():
            print(event.type)
        print(result.final_output)
    """

    def __init__(self, *, cancel_run: CancelRun, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.current_turn = 0
        self.is_complete = False
        self.run_loop_exception: BaseException | None = None
        self.run_loop_task: asyncio.Task[Any] | None = None
        self._cancel_run = cancel_run
        self._events: asyncio.Queue[StreamEvent | None] = asyncio.Queue()
        self._silenced = False
        self._cancel_tasks: set[asyncio.Future[None]] = set()

    @property
    def current_agent(self) -> Agent[Any]:
        return self.last_agent

    def _take(self, view: RunSoFar) -> None:
        super()._take(view)
        over_limit = view.done is not None and view.done.status == "max_turns"
        self.current_turn = max(self.current_turn, view.turn + over_limit, 1)

    def _put(self, event: StreamEvent) -> None:
        """Called by the follower of the run."""
        if not self._silenced:
            self._events.put_nowait(event)

    def _finish(self, error: BaseException | None) -> None:
        """Called by the follower of the run, as its last call."""
        self.run_loop_exception = error
        self.is_complete = True
        self._events.put_nowait(None)

    def cancel(self, mode: CancelMode = "immediate") -> None:
        """Stop the run. Keep iterating :meth:`stream_events` to the end.

        Args:
            mode: Stop at once (``immediate``), or when the current turn is over (``after_turn``).

        Raises:
            ValueError: The mode is unknown.
        """
        if mode not in ("immediate", "after_turn"):
            raise ValueError(f"unknown mode {mode!r}: use 'immediate' or 'after_turn'")
        if self.is_complete:
            return
        if mode == "immediate":
            self._silenced = True
            while not self._events.empty():
                self._events.get_nowait()
            self.is_complete = True
        request = self._cancel_run(mode)
        if request is None:
            return
        task = asyncio.ensure_future(request)
        self._cancel_tasks.add(task)
        task.add_done_callback(self._cancel_tasks.discard)

    async def stream_events(self) -> AsyncIterator[StreamEvent]:
        """Iterate over all events of the run.

        Returns:
            An iterator that ends with the run.

        Raises:
            AgentsException: The run failed; raised after the last event.
        """
        try:
            while (event := await self._events.get()) is not None:
                yield event
            self._events.put_nowait(None)  # for a second iteration, or a concurrent one
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self.run_loop_task is not None:
            await asyncio.wait([self.run_loop_task])
        if self.run_loop_exception is not None:
            raise self.run_loop_exception

    def __str__(self) -> str:
        state = "complete" if self.is_complete else "in progress"
        return (
            f"RunResultStreaming ({state}): agent {self.last_agent.name!r}, turn "
            f"{self.current_turn}, final output: {self.final_output!r}"
        )
