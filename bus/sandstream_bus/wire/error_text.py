"""The text of any exception. Exceptions of users and libraries are code, which may itself fail.

Used wherever such an exception becomes part of a message or of another error. It never raises, and
its result can be sent: it is valid Unicode of limited length.
"""

from __future__ import annotations

LIMIT = 50_000
"""How many characters of a text are kept."""


def error_text(error: BaseException) -> str:
    """The ``str`` of an exception; its class if the text is empty or ``str`` fails."""
    kind = type(error).__name__
    try:
        text = str(error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as failure:  # noqa: BLE001  this is where it ends
        text = f"{kind} (it has no text: its __str__ raised {type(failure).__name__})"
    return sendable(text) or kind


def named_error(error: BaseException) -> str:
    """The class and the text of an exception."""
    kind, text = type(error).__name__, error_text(error)
    return text if text == kind or text.startswith(f"{kind} (") else f"{kind}: {text}"


def sendable(text: str) -> str:
    """A text that any encoder takes: surrogates as escapes, the end of a long one left out."""
    if len(text) > LIMIT:
        text = f"{text[:LIMIT]}… ({len(text)} characters)"
    return text.encode(errors="backslashreplace").decode()
