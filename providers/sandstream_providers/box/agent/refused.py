"""An error with a name that the client knows."""

from __future__ import annotations

import errno

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


class Refused(Exception):
    """``kind`` is the name of an error class of the provider interface."""

    def __init__(self, kind: str, message: str, **data: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.data = data

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "message": str(self), "data": self.data}


KINDS = {
    errno.ENOENT: "NotFound",
    errno.ENOTDIR: "WrongKind",
    errno.EISDIR: "WrongKind",
    errno.EEXIST: "WrongKind",
    errno.ENOTEMPTY: "WrongKind",
    errno.ENAMETOOLONG: "WrongKind",
    errno.EINVAL: "WrongKind",
    errno.ETXTBSY: "WrongKind",
    errno.EBUSY: "NotPermitted",
    errno.EACCES: "NotPermitted",
    errno.EPERM: "NotPermitted",
    errno.EROFS: "NotPermitted",
    errno.ENOSPC: "NoSpace",
    errno.EDQUOT: "NoSpace",
    errno.EFBIG: "NoSpace",
    errno.EAGAIN: "LimitReached",
    errno.ENOMEM: "LimitReached",
    errno.EMFILE: "LimitReached",
    errno.ENFILE: "LimitReached",
    errno.ELOOP: "PathEscapes",
}


def from_os_error(error: OSError, path: str) -> Refused:
    """The refusal that says the same."""
    kind = KINDS.get(error.errno or 0, "ProviderError")
    data = {"path": path, "errno": error.errno}
    if kind == "PathEscapes":
        data["reason"] = "escape"
    return Refused(kind, f"{path}: {error.strerror or error}", **data)
