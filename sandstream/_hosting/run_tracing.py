"""The trace of one call of the runner, and the spans that trace processors receive.

Processors receive spans as the run's events arrive. Without processors there is nothing to do here:
the log contains the whole run.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from sandstream_bus.errors import BusError
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.messages import CallFinished, CallRequested
from sandstream_bus.wire.subjects import RunId
from sandstream_bus.wire.trace_context import TraceContext, trace_id_of

from sandstream._wire.compile import output_schema_of
from sandstream.models.openai_provider import SeamModel
from sandstream.tracing._runs.settings import is_traced
from sandstream.tracing._runs.spans import RunSpans, Settings, SpanBegan, Step
from sandstream.tracing.config import includes_task_and_turn_spans
from sandstream.tracing.ids import root_span_id, sdk_span_id, sdk_trace_id, w3c_trace_id
from sandstream.tracing.provider import DefaultTraceProvider
from sandstream.tracing.saved_trace import SavedTrace
from sandstream.tracing.setup import get_trace_provider, reporter_here
from sandstream.tracing.spans import Span, SpanImpl
from sandstream.tracing.trace_parent import trace_parent
from sandstream.tracing.traces import Trace, TraceImpl, was_started_here

if TYPE_CHECKING:
    from sandstream_bus.bus import Bus

    from sandstream._hosting.hosted_run import HostedRun
    from sandstream.run_config import RunConfig

logger = logging.getLogger(__name__)

CATCH_UP_S: Final = 1.0
"""How long the user's code waits until its span was reported."""
LAST_EVENTS_S: Final = 5.0


class TracedProcess(Protocol):
    """The process of the traced run: its bus, and the objects of its runs."""

    @property
    def bus(self) -> Bus: ...

    def hosted(self, run: RunId) -> HostedRun | None: ...


class RunTracing:
    """Traces one call of the runner, as a context manager. ``parent`` is the caller's span that
    the run's first event names.
    """

    def __init__(self, run_id: str, config: RunConfig, *, saved: SavedTrace | None = None) -> None:
        provider = get_trace_provider()
        current = provider.get_current_trace()
        self._run_id = run_id
        self._config = config
        self._caller = provider.get_current_span() if current is not None else None
        self.is_traced = is_traced(config)
        given = saved.trace_id if saved is not None else config.trace_id
        self.parent = saved.parent if saved is not None else _parent(config, current)
        has_listeners = not isinstance(provider, DefaultTraceProvider) or provider.has_processors
        self._is_shown = self.is_traced and has_listeners
        self._own: Trace | None = None
        if self.is_traced and current is None and (has_listeners or given):
            found = self.parent.trace_id if self.parent else trace_id_of(run_id)
            self._own = _new_trace(config, given or sdk_trace_id(found), saved)
            if isinstance(self._own, TraceImpl):
                self._own.include_sensitive_data = config.trace_include_sensitive_data
                self._own.is_of_run = given is None or saved is not None
        self.trace: Trace | None = self._own or current
        self._runs: dict[str, _Followed] = {}
        self._process: TracedProcess | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Condition()

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the run's first event."""
        is_below = self.parent is not None and self.is_traced
        return {TRACEPARENT: self.parent.header} if is_below and self.parent else {}

    @property
    def saved(self) -> SavedTrace:
        """The trace, for a saved state of the run."""
        trace = self.trace.to_json(include_tracing_api_key=True) if self.trace else None
        return SavedTrace(self.parent.header if self.parent else None, trace)

    # --- around the call -----------------------------------------------------------------------

    async def __aenter__(self) -> RunTracing:
        if self._own is not None:
            self._own.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        try:
            await self._finish()
        finally:
            if self._own is not None:
                self._own.finish()

    def follow(self, process: TracedProcess, *, known: int = 0) -> None:
        """The run has begun: report its events after the event ``known``."""
        if self.is_traced and self.parent is not None:
            reporter_here().has_run(self.parent.trace_id)
        if not self._is_shown or self._run_id in self._runs:
            return
        self._process = process
        root = self._caller if self._caller is not None and self._own is None else None
        self._start(_Followed(self._run_id, self._settings(self._run_id), root, known))

    async def _finish(self) -> None:
        """Report the rest: the run ended, waits for people, or its caller stopped waiting."""
        self._is_shown = False  # for code that runs late
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        top = self._runs.get(self._run_id)
        if top is None:
            return
        try:
            async with asyncio.timeout(LAST_EVENTS_S):
                await self._catch_up(top)
        except (BusError, TimeoutError) as error:
            logger.warning("the end of a run's trace is missing", extra={"why": str(error)})
        except Exception:  # an error here must not change the run's result
            logger.exception("a run's trace has a gap", extra={"run_id": self._run_id})
        for followed in reversed(self._runs.values()):
            for step in followed.spans.close(_now()):
                self._tell(followed, step)

    # --- events --------------------------------------------------------------------------------

    def _start(self, followed: _Followed) -> None:
        self._runs[followed.run] = followed
        task = asyncio.ensure_future(self._keep_following(followed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_following(self, followed: _Followed) -> None:
        assert self._process is not None
        try:
            async with aclosing(self._process.bus.follow.run(RunId(followed.run))) as events:
                async for event in events:
                    if isinstance(event, LogEvent):
                        await self._take(followed, event)
        except BusError as error:  # missing events are read when the run has ended
            logger.warning("a run's trace is not followed", extra={"why": str(error)})
        except Exception:  # an error here must not stop the run
            logger.exception("a run's trace has a gap", extra={"run_id": followed.run})
        followed.is_left = True
        async with self._news:  # wake up waiters: no more events will come
            self._news.notify_all()

    async def _catch_up(self, followed: _Followed) -> None:
        assert self._process is not None
        events = await self._process.bus.log.read(
            RunId(followed.run), after=followed.last, skip_unknown=True
        )
        for event in events:
            await self._take(followed, event)

    async def _take(self, followed: _Followed, event: LogEvent) -> None:
        """Process one event; two readers may deliver the same one."""
        ended = event.event
        child = self._runs.get(followed.children.get(getattr(ended, "call", ""), ""))
        if isinstance(ended, CallFinished) and ended.traits.is_child_run and child is not None:
            await self._catch_up(child)
        if event.sequence <= followed.last:
            return
        followed.last = event.sequence
        is_quiet = event.sequence <= followed.known
        for step in followed.spans.feed(event, _time_of(event), quiet=is_quiet):
            self._tell(followed, step)
        asked = event.event
        if isinstance(asked, CallRequested) and asked.traits.is_child_run and asked.child:
            followed.children[asked.call] = asked.child
            if asked.child not in self._runs:
                root = followed.shown.get(f"call:{asked.call}")
                settings = self._settings(asked.child)
                self._start(_Followed(asked.child, settings, root, 0))
        async with self._news:
            self._news.notify_all()

    def _tell(self, followed: _Followed, step: Step) -> None:
        if isinstance(step, SpanBegan):
            above = followed.shown.get(step.parent) if step.parent else followed.root
            parent = above if above is not None else self.trace
            span: Span[Any] = get_trace_provider().create_span(
                step.data, span_id=sdk_span_id(step.span_id), parent=parent
            )
            followed.shown[step.key] = span
            if isinstance(span, SpanImpl):
                span.is_of_run = True
                span.trace = self.trace
                span.start_at(step.at)
            else:
                span.start()
            return
        span = followed.shown.pop(step.key)
        followed.ended[step.key] = span
        if step.error is not None and span.error is None:
            span.set_error(step.error)
        if isinstance(span, SpanImpl):
            span.finish_at(max(step.at, span.started_at or step.at))
        else:
            span.finish()

    # --- for the user's code -------------------------------------------------------------------

    async def span_for(self, run: str, call: CallRequested) -> Span[Any] | None:
        """The span of a call of the user's code, once processors know it; None if they do not get
        it soon, or at all.
        """
        if not self._is_shown:
            return None
        try:
            async with asyncio.timeout(CATCH_UP_S), self._news:
                await self._news.wait_for(lambda: self._has_seen(run, call))
        except TimeoutError:
            return None
        followed = self._runs[run]
        key = followed.spans.span_of(call)
        return followed.shown.get(key) or followed.ended.get(key) if key else None

    def _has_seen(self, run: str, call: CallRequested) -> bool:
        followed = self._runs.get(run)
        if followed is None:
            return False
        return followed.is_left or call.call in followed.spans.state.asked

    def _settings(self, run: str) -> Settings:
        def hosted() -> HostedRun | None:
            return self._process.hosted(RunId(run)) if self._process is not None else None

        def value_of(call: str) -> Any:
            found = hosted()
            return found.values.get(call) if found is not None else None

        def shows_itself(agent: str) -> bool:
            found = hosted()
            if found is None or agent not in found.agents:
                return False
            model = found.config.model or found.agents[agent].model
            is_object = model is not None and not isinstance(model, str)
            return is_object and not isinstance(model, SeamModel)

        def output_type(agent: str) -> str | None:
            found = hosted()
            if found is None or agent not in found.agents:
                return None
            schema = output_schema_of(found.agents[agent])
            return schema.name() if schema is not None else "str"

        def was_asked_here(call: str) -> bool:
            found = hosted()
            return found is not None and call in found.guardrails

        return Settings(
            contents=self._config.trace_include_sensitive_data,
            tasks_and_turns=includes_task_and_turn_spans(self._config.tracing),
            value_of=value_of,
            shows_itself=shows_itself,
            output_type=output_type,
            was_asked_here=was_asked_here,
        )


class _Followed:
    """One run of the tree, and its spans that processors know."""

    def __init__(self, run: str, settings: Settings, root: Span[Any] | None, known: int) -> None:
        self.run = run
        self.spans = RunSpans(run, settings)
        self.root = root
        """The parent of its outermost spans; None: the trace."""
        self.known = known
        self.last = 0
        self.is_left = False
        """Events are no longer followed: the run ended, or following failed."""
        self.shown: dict[str, Span[Any]] = {}
        self.ended: dict[str, Span[Any]] = {}
        self.children: dict[str, str] = {}
        """Child runs, by call."""


def _parent(config: RunConfig, current: Trace | None) -> TraceContext | None:
    """The span above a new run."""
    if current is None and config.trace_id is not None:
        trace_id = w3c_trace_id(config.trace_id)
        return TraceContext(trace_id, root_span_id(trace_id))
    return trace_parent()


def _new_trace(config: RunConfig, trace_id: str, saved: SavedTrace | None) -> Trace:
    kept = (saved.trace if saved is not None else None) or {}
    name = kept.get("workflow_name") or config.workflow_name
    group_id = config.group_id or kept.get("group_id")
    metadata = config.trace_metadata or kept.get("metadata")
    api_key = (config.tracing or {}).get("api_key") or kept.get("tracing_api_key")
    if saved is not None and was_started_here(trace_id):
        return TraceImpl(name, trace_id, group_id, metadata, None, api_key)
    return get_trace_provider().create_trace(
        name=name,
        trace_id=trace_id,
        group_id=group_id,
        metadata=metadata,
        tracing={"api_key": api_key} if api_key else None,
    )


def _time_of(event: LogEvent) -> str:
    """The time at which the server stored the event."""
    if not event.stored.time:
        return _now()
    return datetime.fromisoformat(event.stored.time).isoformat(timespec="microseconds")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
