"""Results of runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from sandstream.exceptions import RunErrorDetails
from sandstream.items import ItemHelpers, ModelResponse, RunItem, TResponseInputItem
from sandstream.run_context import RunContextWrapper
from sandstream.stream_events import StreamEvent

if TYPE_CHECKING:
    from sandstream.agent import Agent
    from sandstream.run_view import RunView

T = TypeVar("T")


class RunResultBase:
    """What all results have in common."""

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
        self.interruptions: list[Any] = []
        self.input_guardrail_results: list[Any] = []
        self.output_guardrail_results: list[Any] = []
        self.tool_input_guardrail_results: list[Any] = []
        self.tool_output_guardrail_results: list[Any] = []
        self.sandbox_states: dict[str, Any] = {}
        """For each sandbox agent the state from which a later run can resume its workspace:
        ``SandboxRunConfig(session_state=...)``.
        """
        self._last_agent = starting_agent
        self._omit_reasoning_ids = omit_reasoning_ids

    def take(self, view: RunView) -> None:
        """Show the state of a view."""
        self.new_items = view.items
        self.raw_responses = view.responses
        self.context_wrapper.usage = view.usage
        if view.agent is not None:
            self._last_agent = view.agent

    @property
    def last_agent(self) -> Agent[Any]:
        return self._last_agent

    @property
    def last_response_id(self) -> str | None:
        return self.raw_responses[-1].response_id if self.raw_responses else None

    def final_output_as(self, cls: type[T], raise_if_incorrect_type: bool = False) -> T:
        """The final output, taken for a ``cls``; checked only if asked to."""
        if raise_if_incorrect_type and not isinstance(self.final_output, cls):
            raise TypeError(f"Final output is not of type {cls.__name__}")
        return cast(T, self.final_output)

    def to_input_list(
        self, mode: Literal["preserve_all", "normalized"] = "preserve_all"
    ) -> list[TResponseInputItem]:
        """The whole conversation as input of another run."""
        if mode not in ("preserve_all", "normalized"):
            raise ValueError(f"unknown mode {mode!r}: use 'preserve_all' or 'normalized'")
        given = ItemHelpers.input_to_new_input_list(self.input)
        new = [item.to_input_item() for item in self.new_items]
        if self._omit_reasoning_ids:
            new = [_without_id(item) if item.get("type") == "reasoning" else item for item in new]
        return given + new

    def release_agents(self, release_new_items: bool = True) -> None:
        """Drop references to agents, for results that are kept for long."""
        if release_new_items:
            for item in self.new_items:
                item.release_agent()
        self.__dict__["_last_agent"] = None

    def details(self) -> RunErrorDetails:
        """The run up to now, for exceptions."""
        return RunErrorDetails(
            input=self.input,
            new_items=self.new_items,
            raw_responses=self.raw_responses,
            last_agent=self._last_agent,
            context_wrapper=self.context_wrapper,
            input_guardrail_results=[],
            output_guardrail_results=[],
        )


def _without_id(item: TResponseInputItem) -> TResponseInputItem:
    return {key: value for key, value in item.items() if key != "id"}


class RunResult(RunResultBase):
    """The result of a finished run."""

    def __str__(self) -> str:
        count = len(self.new_items)
        return (
            f"RunResult: last agent {self._last_agent.name!r}, {count} new items, "
            f"{len(self.raw_responses)} model responses, final output: {self.final_output!r}"
        )


class RunResultStreaming(RunResultBase):
    """A run in progress. Iterate :meth:`stream_events` to its end; the run is over only then."""

    def __init__(self, *, cancel_run: Callable[[str], Awaitable[None]], **arguments: Any) -> None:
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
        return self._last_agent

    def take(self, view: RunView) -> None:
        super().take(view)
        over_limit = view.done is not None and view.done.status == "max_turns"
        self.current_turn = max(self.current_turn, view.turn + over_limit, 1)

    def put(self, event: StreamEvent) -> None:
        """Called by the run's follower."""
        if not self._silenced:
            self._events.put_nowait(event)

    def finish(self, error: BaseException | None) -> None:
        """Called by the run's follower, last."""
        self.run_loop_exception = error
        self.is_complete = True
        self._events.put_nowait(None)

    def cancel(self, mode: Literal["immediate", "after_turn"] = "immediate") -> None:
        """Stop the run now, or when the current turn is over. Keep iterating to the end."""
        if mode not in ("immediate", "after_turn"):
            raise ValueError(f"unknown mode {mode!r}: use 'immediate' or 'after_turn'")
        if self.is_complete:
            return
        if mode == "immediate":
            self._silenced = True
            while not self._events.empty():
                self._events.get_nowait()
            self.is_complete = True
        task = asyncio.ensure_future(self._cancel_run(mode))
        self._cancel_tasks.add(task)
        task.add_done_callback(self._cancel_tasks.discard)

    async def stream_events(self) -> AsyncIterator[StreamEvent]:
        """All events of the run; raises what the run raised."""
        try:
            while (event := await self._events.get()) is not None:
                yield event
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
            f"RunResultStreaming ({state}): agent {self._last_agent.name!r}, turn "
            f"{self.current_turn}, final output: {self.final_output!r}"
        )
