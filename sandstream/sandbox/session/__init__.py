"""Sandbox sessions: the clients that create them, their state, and their events.

Names are loaded on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandstream.sandbox.session.base_sandbox_session import (
        BaseSandboxSession as BaseSandboxSession,
    )
    from sandstream.sandbox.session.dependencies import Dependencies as Dependencies
    from sandstream.sandbox.session.dependencies import (
        DependenciesBindingError as DependenciesBindingError,
    )
    from sandstream.sandbox.session.dependencies import DependenciesError as DependenciesError
    from sandstream.sandbox.session.dependencies import (
        DependenciesMissingDependencyError as DependenciesMissingDependencyError,
    )
    from sandstream.sandbox.session.dependencies import DependencyKey as DependencyKey
    from sandstream.sandbox.session.events import EventPayloadPolicy as EventPayloadPolicy
    from sandstream.sandbox.session.events import SandboxSessionEvent as SandboxSessionEvent
    from sandstream.sandbox.session.events import (
        SandboxSessionFinishEvent as SandboxSessionFinishEvent,
    )
    from sandstream.sandbox.session.events import (
        SandboxSessionStartEvent as SandboxSessionStartEvent,
    )
    from sandstream.sandbox.session.events import event_to_json_line as event_to_json_line
    from sandstream.sandbox.session.events import (
        validate_sandbox_session_event as validate_sandbox_session_event,
    )
    from sandstream.sandbox.session.manager import Instrumentation as Instrumentation
    from sandstream.sandbox.session.sandbox_client import BaseSandboxClient as BaseSandboxClient
    from sandstream.sandbox.session.sandbox_client import (
        BaseSandboxClientOptions as BaseSandboxClientOptions,
    )
    from sandstream.sandbox.session.sandbox_client import ClientOptionsT as ClientOptionsT
    from sandstream.sandbox.session.sandbox_session import SandboxSession as SandboxSession
    from sandstream.sandbox.session.sandbox_session_state import (
        SandboxSessionState as SandboxSessionState,
    )
    from sandstream.sandbox.session.sinks import CallbackSink as CallbackSink
    from sandstream.sandbox.session.sinks import ChainedSink as ChainedSink
    from sandstream.sandbox.session.sinks import EventSink as EventSink
    from sandstream.sandbox.session.sinks import HttpProxySink as HttpProxySink
    from sandstream.sandbox.session.sinks import JsonlOutboxSink as JsonlOutboxSink
    from sandstream.sandbox.session.sinks import WorkspaceJsonlSink as WorkspaceJsonlSink
    from sandstream.sandbox.types import ExposedPortEndpoint as ExposedPortEndpoint

_MODULES = {
    "sandstream.sandbox.session.base_sandbox_session": ("BaseSandboxSession",),
    "sandstream.sandbox.session.dependencies": (
        "Dependencies",
        "DependenciesBindingError",
        "DependenciesError",
        "DependenciesMissingDependencyError",
        "DependencyKey",
    ),
    "sandstream.sandbox.session.events": (
        "EventPayloadPolicy",
        "SandboxSessionEvent",
        "SandboxSessionFinishEvent",
        "SandboxSessionStartEvent",
        "event_to_json_line",
        "validate_sandbox_session_event",
    ),
    "sandstream.sandbox.session.manager": ("Instrumentation",),
    "sandstream.sandbox.session.sandbox_client": (
        "BaseSandboxClient",
        "BaseSandboxClientOptions",
        "ClientOptionsT",
    ),
    "sandstream.sandbox.session.sandbox_session": ("SandboxSession",),
    "sandstream.sandbox.session.sandbox_session_state": ("SandboxSessionState",),
    "sandstream.sandbox.session.sinks": (
        "CallbackSink",
        "ChainedSink",
        "EventSink",
        "HttpProxySink",
        "JsonlOutboxSink",
        "WorkspaceJsonlSink",
    ),
    "sandstream.sandbox.types": ("ExposedPortEndpoint",),
}

_EXPORTS = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


__all__ = [*_EXPORTS]
