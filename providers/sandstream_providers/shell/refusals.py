"""What a script refused, as an error of the interface.

A script that knows why it refuses says so: it ends with the code ``REFUSED``, and the first words
of its output are the name of an error class and a reason. A program that failed in a script only
has its message, so its text decides. Scripts run in the C locale; C libraries still word some
messages in different ways.
"""

from __future__ import annotations

import os

from sandstream_providers import interface
from sandstream_providers.box.agent import refused, wire
from sandstream_providers.interface import ProviderError
from sandstream_providers.shell.channel import Answer

REFUSED = 40

_MUSL = {
    "Filename too long": "WrongKind",
    "Resource busy": "NotPermitted",
    "Quota exceeded": "NoSpace",
    "Symbolic link loop": "PathEscapes",
    "Out of memory": "LimitReached",
    "No file descriptors available": "LimitReached",
    "Too many open files in system": "LimitReached",
}
_PROGRAMS = {
    "to a subdirectory of itself": "WrongKind",
    "can't fork": "LimitReached",
    ": I/O error": "NoSpace",  # dash does not say why it cannot write: mostly the disk is full
    "can't cd to": "NotFound",  # dash does not say why; the directory was there a moment ago
}
_TEXTS = {
    **{os.strerror(number): kind for number, kind in refused.KINDS.items()},
    **_MUSL,
    **_PROGRAMS,
}
_REASONS = {
    "missing": "{path}: no such file or directory",
    "not_file": "{path} is not a file",
    "not_dir": "{path} is not a directory",
    "exists": "{path} exists",
    "dir_in_the_way": "{path} exists and is a directory",
    "file_in_the_way": "{path} exists and is not a directory",
    "below_file": "{path}: a file is in the place of a directory",
    "root": "{path} is a root and stays",
    "escape": "{path} leads out of the sandbox's directories",
    "read_only": "{path} is in a directory that may only be read",
    "depth": "{path}: more than 40 links on the way",
    "hole": "{path} is shorter than the offset at which something should be put",
}


def refusal(kind: str, reason: str, path: str) -> ProviderError:
    """The error of a refusal that the script knew a reason for."""
    message = _REASONS[reason].format(path=path)
    data = {"reason": reason} if kind == "PathEscapes" else {}
    return _error(kind)(message, path=path, **data)


def failure(text: bytes, path: str) -> ProviderError:
    """The error of a program that failed with this message."""
    said = wire.to_text(text[-1000:]).strip()
    kind = next((kind for known, kind in _TEXTS.items() if known in said), "ProviderError")
    data = {"reason": "escape"} if kind == "PathEscapes" else {}
    return _error(kind)(f"{path}: {said or 'the script failed without a message'}", **data)


def checked(answer: Answer, path: str) -> bytes:
    """What a script said, if it went well."""
    if answer.code == 0:
        return answer.stdout
    if answer.code == REFUSED:
        kind, reason = answer.stdout.decode("ascii").split()[:2]
        raise refusal(kind, reason, path)
    raise failure(answer.stderr, path)


def _error(kind: str) -> type[ProviderError]:
    found: type[ProviderError] = getattr(interface, kind)
    return found
