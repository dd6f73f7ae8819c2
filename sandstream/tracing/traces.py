"""Traces: everything that belongs to one piece of work, across any number of runs."""

from __future__ import annotations

import abc
import threading
from collections import OrderedDict
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from sandstream.tracing import util
from sandstream.tracing.ids import NO_OP
from sandstream.tracing.scope import Scope

if TYPE_CHECKING:
    from sandstream.tracing.processor_interface import TracingProcessor

_MAX_STARTED: Final = 4096
_started: OrderedDict[str, None] = OrderedDict()
_started_lock = threading.Lock()


def was_started_here(trace_id: str) -> bool:
    """Whether processors of this process have seen the trace; covers the last few thousand."""
    with _started_lock:
        return trace_id in _started


def _note_started(trace_id: str) -> None:
    with _started_lock:
        _started[trace_id] = None
        _started.move_to_end(trace_id)
        while len(_started) > _MAX_STARTED:
            _started.popitem(last=False)


class Trace(abc.ABC):
    """Everything that belongs to one piece of work. Use it with ``with``, or start and finish
    it.

    Example:
        with trace("Billing", group_id="customer-17"):
            first = await Runner.run(agent, "What do I owe?")
            second = await Runner.run(agent, "And last year?")
    """

    @abc.abstractmethod
    def __enter__(self) -> Trace: ...

    @abc.abstractmethod
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None: ...

    @abc.abstractmethod
    def start(self, mark_as_current: bool = False) -> None:
        """Start the trace.

        Args:
            mark_as_current: Make runs and spans part of it.
        """

    @abc.abstractmethod
    def finish(self, reset_current: bool = False) -> None:
        """End the trace.

        Args:
            reset_current: Whether the trace before it becomes current again.
        """

    @property
    @abc.abstractmethod
    def trace_id(self) -> str:
        """Its id."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the workflow."""

    @abc.abstractmethod
    def export(self) -> dict[str, Any] | None:
        """As plain data; ``None`` if it is not recorded."""

    @property
    @abc.abstractmethod
    def tracing_api_key(self) -> str | None:
        """The key with which exporters send it, if it has its own."""

    def to_json(self, *, include_tracing_api_key: bool = False) -> dict[str, Any] | None:
        """The trace as plain data.

        Args:
            include_tracing_api_key: Whether the key of the exporter, which is a secret, is
                included.

        Returns:
            The data; ``None`` if the trace is not recorded.
        """
        exported = self.export()
        if exported is None:
            return None
        if include_tracing_api_key and self.tracing_api_key:
            return {**exported, "tracing_api_key": self.tracing_api_key}
        return dict(exported)


class _Current(Trace):
    """Makes a trace the current one."""

    _token: Token[Trace | None] | None = None

    def _become_current(self) -> None:
        self._token = Scope.set_current_trace(self)

    def _resign(self, *, is_elsewhere: bool = False) -> None:
        """``is_elsewhere``: possibly in another context, where there is nothing to reset."""
        token, self._token = self._token, None
        if token is None:
            return
        try:
            Scope.reset_current_trace(token)
        except ValueError:
            if not is_elsewhere:
                raise

    def __enter__(self) -> Trace:
        self.start(mark_as_current=True)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        try:
            self.finish()
        finally:
            # an abandoned generator may be closed in another context
            self._resign(is_elsewhere=exc_type is GeneratorExit)


class NoOpTrace(_Current):
    """A trace that is not recorded; neither are spans and runs inside it."""

    def start(self, mark_as_current: bool = False) -> None:
        if mark_as_current and self._token is None:
            self._become_current()

    def finish(self, reset_current: bool = False) -> None:
        if reset_current:
            self._resign()

    @property
    def trace_id(self) -> str:
        return NO_OP

    @property
    def name(self) -> str:
        return NO_OP

    def export(self) -> dict[str, Any] | None:
        return None

    @property
    def tracing_api_key(self) -> str | None:
        return None


class TraceImpl(_Current):
    """A trace that processors receive."""

    def __init__(
        self,
        name: str,
        trace_id: str | None,
        group_id: str | None,
        metadata: dict[str, Any] | None,
        processor: TracingProcessor | None,
        tracing_api_key: str | None = None,
    ) -> None:
        self._name = name
        self._trace_id = trace_id or util.gen_trace_id()
        self._tracing_api_key = tracing_api_key
        self.group_id = group_id
        self.metadata = metadata
        self._processor = processor
        """``None`` if the trace is continued here: its start was reported elsewhere."""
        self._is_started = False
        self.started_at: str | None = None
        self.ended_at: str | None = None
        self.is_of_run = False
        """Whether a run made it; then there is no span above those of the run."""
        self.include_sensitive_data = True
        """Whether spans may include what people, models and tools said."""

    @property
    def trace_id(self) -> str:
        return self._trace_id

    @property
    def name(self) -> str:
        return self._name

    @property
    def tracing_api_key(self) -> str | None:
        return self._tracing_api_key

    def start(self, mark_as_current: bool = False) -> None:
        if self._is_started:
            return
        self._is_started = True
        self.started_at = util.time_iso()
        if self._processor is not None:
            self._processor.on_trace_start(self)
            _note_started(self._trace_id)
        if mark_as_current:
            self._become_current()

    def finish(self, reset_current: bool = False) -> None:
        if not self._is_started:
            return
        self.ended_at = util.time_iso()
        if self._processor is not None:
            self._processor.on_trace_end(self)
        if reset_current:
            self._resign()

    def export(self) -> dict[str, Any] | None:
        return {
            "object": "trace",
            "id": self._trace_id,
            "workflow_name": self._name,
            "group_id": self.group_id,
            "metadata": self.metadata,
        }
