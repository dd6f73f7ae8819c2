"""What can go wrong in a provider, as data. A vendor's own errors are translated to these."""

from __future__ import annotations

from collections.abc import Mapping


class ProviderError(Exception):
    """What went wrong, as data: the actor turns it into the public error of that code.

    Args:
        message: What went wrong, and what to do about it.
        data: Facts for the public error, by name.
    """

    code = "sandbox_error"
    retryable = False

    def __init__(self, message: str, **data: object) -> None:
        super().__init__(message)
        self.data: Mapping[str, object] = data


class ProviderUnavailable(ProviderError):
    """This provider cannot work here; the message says what to install or to allow."""

    code = "provider_unavailable"


class BoxGone(ProviderError):
    """The box died or was removed while it was used. What ran in it is lost."""

    code = "box_gone"
    retryable = True


class LimitReached(ProviderError):
    """The box cannot start one more process, or has no space left."""

    code = "limit_reached"


class PathEscapes(ProviderError):
    """A path leads out of the allowed roots. ``data["reason"]``: ``escape``, ``depth``,
    ``read_only``.
    """

    code = "path_escapes"


class NotFound(ProviderError):
    code = "not_found"


class WrongKind(ProviderError):
    """A directory where a file is needed, or the other way round, or something that exists."""

    code = "wrong_kind"


class NotPermitted(ProviderError):
    code = "not_permitted"


class NoSpace(ProviderError):
    code = "no_space"


class ScanOutdated(ProviderError):
    """What this client knows of the workspace is not what the last scan found."""

    code = "scan_outdated"


class CannotExecute(ProviderError):
    """The command itself could not be started (no such program, bad working directory)."""

    code = "cannot_execute"


class NoSuchSession(ProviderError):
    code = "no_such_session"


class StdinClosed(ProviderError):
    code = "stdin_closed"


class PortUnavailable(ProviderError):
    code = "port_unavailable"


class GitFailed(ProviderError):
    """``data["reason"]``: ``missing`` (no git), ``clone``, ``ref``, ``private`` (a host that is
    not public, with ``public_only``). No text of it has the user or password of a URL.
    """

    code = "git_failed"
