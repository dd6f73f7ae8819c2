"""A box as one of its users sees it: commands run as the user, and files are the user's.

The box itself works as root if its manifest has users. A command begins with a small script that
becomes the user. A file operation is first tried as the user (may it read, may it write there?),
then done as root, so that it keeps what the interface promises, and what it made is given to the
user.
"""

from __future__ import annotations

import hashlib
import posixpath
import uuid
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from sandstream_providers.interface import (
    Box,
    Entry,
    ExecSpec,
    FileWrite,
    NotPermitted,
    OnOutput,
    Output,
    ProviderError,
    ResolveRule,
)

_BECOME = """\
user=$1
shift
group=$(id -g "$user" 2>/dev/null) || {
  echo "there is no user $user in this sandbox: name it in Manifest.users" >&2
  exit 126
}
while IFS=: read -r name _ _ _ _ home _; do
  if [ "$name" = "$user" ]; then HOME=$home; fi
done </etc/passwd
export HOME USER="$user" LOGNAME="$user"
if [ "$(id -un)" = "$user" ]; then exec "$@"; fi
if [ "$(id -u)" != 0 ]; then
  if sudo -n -E -u "$user" true </dev/null >/dev/null 2>&1; then
    exec sudo -n -E -u "$user" env "PATH=$PATH" "HOME=$HOME" "$@"
  fi
  echo "this sandbox cannot work as the user $user: name it in Manifest.users" >&2
  exit 126
fi
if setpriv --help 2>&1 | grep -q -e --reuid; then
  exec setpriv --reuid="$user" --regid="$group" --init-groups -- "$@"
fi
exec su -m -s /bin/sh -c 'exec "$@"' -- "$user" sh "$@"
"""
"""util-linux has setpriv; where only busybox is, its su does. Both need root and no password. A box
without users of a manifest is not root, but its user may have ``sudo``.
"""

_MAY = """\
may() {
  case $1 in
    read) [ -r "$2" ] ;;
    list) [ -r "$2" ] && [ -x "$2" ] ;;
    write) [ -w "$2" ] ;;
    enter) [ -w "$2" ] && [ -x "$2" ] ;;
  esac
}
while [ $# -gt 1 ]; do
  way=$1 path=$2
  shift 2
  if [ "$way" = put ]; then
    way=write up=0
    while [ ! -e "$path" ] && [ ! -L "$path" ]; do
      way=enter up=$((up + 1)) path=$(dirname "$path")
    done
    echo "$up"
  fi
  may "$way" "$path" || { echo no; exit 1; }
done
"""
"""For ``put`` it says how many names at the end of the path are new."""


def box_of(box: Box, user: str) -> Box:
    """The box for a user; without a user the box itself."""
    return cast(Box, UserBox(box, user)) if user else box


class UserBox:
    """All that is not here is the same for every user."""

    def __init__(self, box: Box, user: str) -> None:
        self._box = box
        self._user = user

    def __getattr__(self, name: str) -> Any:
        return getattr(self._box, name)

    async def run(
        self,
        op: str,
        spec: ExecSpec,
        *,
        wait_s: float | None = None,
        on_output: OnOutput | None = None,
    ) -> Output:
        argv = ["sh", "-c", _BECOME, "sh", self._user, *spec.argv]
        own = msgspec.structs.replace(spec, argv=argv)
        return await self._box.run(op, own, wait_s=wait_s, on_output=on_output)

    async def read(
        self, path: str, rule: ResolveRule, *, offset: int = 0, limit: int | None = None
    ) -> bytes:
        data = await self._box.read(path, rule, offset=offset, limit=limit)  # or there is none
        await self._check(_fresh(), ("read", path))
        return data

    async def list(self, path: str, rule: ResolveRule) -> list[Entry]:
        found = await self._box.list(path, rule)
        await self._check(_fresh(), ("list", path))
        return found

    async def make_dir(
        self, op: str, path: str, rule: ResolveRule, *, parents: bool = False
    ) -> None:
        new = await self._check(op, ("put", path))
        await self._box.make_dir(op, path, rule, parents=parents)
        await self._give(op, new)

    async def remove(
        self, op: str, path: str, rule: ResolveRule, *, recursive: bool = False
    ) -> None:
        await self._check(op, ("enter", posixpath.dirname(path)))
        await self._box.remove(op, path, rule, recursive=recursive)

    async def move(self, op: str, source: str, target: str, rule: ResolveRule) -> None:
        places = (posixpath.dirname(source), posixpath.dirname(target))
        await self._check(op, *(("enter", it) for it in places))
        await self._box.move(op, source, target, rule)

    async def change(self, op: str, changes: Sequence[FileWrite], rule: ResolveRule) -> None:
        new = await self._check(op, *(it for change in changes for it in _needs(change)))
        await self._box.change(op, changes, rule)
        await self._give(op, new)

    async def append(self, op: str, path: str, data: bytes, rule: ResolveRule, *, at: int) -> None:
        new = await self._check(op, ("put", path))
        await self._box.append(op, path, data, rule, at=at)
        await self._give(op, new)

    # --- rights -----------------------------------------------------------------------------------

    async def _check(self, op: str, *needs: tuple[str, str]) -> Sequence[str]:
        """The uppermost paths that the operation makes. Raises if the user may not."""
        words = [word for need in needs for word in need]
        # an operation may be tried with other paths first, under the same name
        digest = hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:12]
        spec = ExecSpec(argv=["sh", "-c", _MAY, "sh", *words], cwd="/")
        done = await self.run(f"{op}-may-{digest}", spec)
        lines = done.stdout.decode().split()
        if done.exit_code == 1 and lines[-1:] == ["no"]:
            paths = ", ".join(dict.fromkeys(words[1::2]))
            raise NotPermitted(f"the user {self._user} may not do this: {paths}", path=words[1])
        if done.exit_code != 0:
            why = done.stderr.decode(errors="replace").strip()
            raise ProviderError(f"the sandbox cannot work as the user {self._user}: {why}")
        put = [path for way, path in needs if way == "put"]
        return [_above(path, int(up)) for path, up in zip(put, lines, strict=True) if up != "0"]

    async def _give(self, op: str, paths: Sequence[str]) -> None:
        """Give the user what was made."""
        if not paths:
            return
        script = 'user=$1; shift; set -- chown -R -h "$user:$(id -g "$user")" "$@"; '
        script += '[ "$(id -u)" = 0 ] || set -- sudo -n "$@"; exec "$@"'
        argv = ["sh", "-c", script, "sh", self._user, *dict.fromkeys(paths)]
        done = await self._box.run(f"{op}-give", ExecSpec(argv=argv, cwd="/"))
        if done.exit_code != 0:
            why = done.stderr.decode(errors="replace").strip()
            raise ProviderError(f"new files could not be given to {self._user}: {why}")


def _needs(change: FileWrite) -> list[tuple[str, str]]:
    if change.kind == "remove":
        return [] if change.must_exist else [("enter", posixpath.dirname(change.path))]
    if change.kind == "move":
        return [("enter", posixpath.dirname(change.path)), ("put", change.target)]
    return [("put", change.path)]


def _above(path: str, names: int) -> str:
    """The path of the first new name, of so many at the end."""
    for _ in range(names - 1):
        path = posixpath.dirname(path)
    return path


def _fresh() -> str:
    """A new id for a read, so that the box does not repeat an earlier answer."""
    return f"look-{uuid.uuid4().hex}"
