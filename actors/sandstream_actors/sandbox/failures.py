"""Maps errors of providers and tools to the stable codes that callers know."""

from __future__ import annotations

from sandstream_bus.errors import BusError, SandstreamError
from sandstream_bus.wire.sandboxes import SandboxFailure
from sandstream_providers.interface import ProviderError

_READS = ("read", "list", "stat")
_BY_CODE = {
    "provider_unavailable": "provider_unavailable",
    "limit_reached": "sandbox_limit",
    "no_such_session": "pty_session_not_found",
    "port_unavailable": "exposed_port_unavailable",
    "path_escapes": "invalid_manifest_path",
    "box_gone": "exec_transport_error",
    "stdin_closed": "exec_transport_error",
    "cannot_execute": "exec_transport_error",
}
_OF_READS = {
    "not_found": "workspace_read_not_found",
    "wrong_kind": "workspace_archive_read_error",
    "not_permitted": "workspace_archive_read_error",
}
_OF_OPERATION = {
    "open": "workspace_start_error",
    "close": "workspace_stop_error",
    "checkpoint": "snapshot_persist_error",
    "exec": "exec_transport_error",
    "interact": "exec_transport_error",
}
_OF_GIT = {"missing": "git_missing_in_image"}


class Elsewhere(Exception):
    """Another node has the sandbox."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node


class LetGo(Exception):
    """The run closed its sandbox after it requested this: another replica has done it."""

    def __init__(self, tree: str) -> None:
        super().__init__(tree)
        self.tree = tree
        """The last checkpoint."""


class Settled(Exception):
    """Another replica has done it meanwhile, and the run has its outcome."""


class Refused(Exception):
    """An operation that cannot be done, with the code for its caller."""

    def __init__(
        self, code: str, message: str, *, retryable: bool = False, **context: object
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.context = context


def failure_of(error: Exception, op: str) -> SandboxFailure | None:
    """The failure as data; None for a fault of the bus, or a bug of ours, which is not the
    caller's.
    """
    if isinstance(error, Refused):
        return SandboxFailure(
            code=error.code,
            message=str(error),
            op=op,
            context=dict(error.context),
            retryable=error.retryable,
        )
    if isinstance(error, ProviderError):
        return SandboxFailure(
            code=_code_of(error, op),
            message=str(error),
            op=op,
            context={**error.data, "provider_code": error.code},
            retryable=error.retryable,
        )
    if isinstance(error, BusError) and error.retryable:
        return None  # it is retried until the bus is back
    if isinstance(error, SandstreamError):
        return SandboxFailure(code=error.code, message=str(error), op=op)
    code = getattr(error, "code", None)
    if isinstance(code, str):  # of a workspace or a patch
        context = getattr(error, "context", {})
        return SandboxFailure(code=code, message=str(error), op=op, context=dict(context))
    return None


def _code_of(error: ProviderError, op: str) -> str:
    if error.code == "git_failed":
        return _OF_GIT.get(str(error.data.get("reason")), "git_clone_error")
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    if op in _READS and error.code in _OF_READS:
        return _OF_READS[error.code]
    if op in _OF_OPERATION:
        return _OF_OPERATION[op]
    if error.code == "not_found":
        return "workspace_read_not_found"
    return "workspace_archive_write_error"


def unsaved(sandbox: str, reason: str) -> Refused:
    """The box to close is gone, and with it all changes since the last checkpoint."""
    return Refused(
        "workspace_lost",
        f"sandbox {sandbox} cannot be saved: {reason}; what changed since its last checkpoint is "
        "lost",
        reason=reason,
    )
