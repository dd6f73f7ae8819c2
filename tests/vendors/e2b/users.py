"""The users of a box and what paths mean to them."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from vendors.e2b.connect_rpc import RpcError


@dataclass(frozen=True)
class User:
    name: str
    home: str
    privileged: bool = False

    def resolved(self, path: str) -> str:
        """An absolute path: relative ones and ``~`` begin at the home directory."""
        if path.startswith("~"):
            if path[1:2] not in ("", "/", "\\"):
                problem = "cannot expand user-specific home dir"
                raise RpcError(
                    "invalid_argument",
                    f"failed to expand path '{path}' for user '{self.name}': {problem}",
                )
            path = posixpath.normpath(self.home + "/" + path[1:])
        if path.startswith("/"):
            return path
        return posixpath.normpath(posixpath.join(self.home, path))


DEFAULT = User("user", "/home/user")
USERS = {user.name: user for user in (DEFAULT, User("root", "/root", privileged=True))}
