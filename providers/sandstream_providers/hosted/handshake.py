"""The first words on a terminal in a box: they put our agent there, start it, and connect to it.

The terminal may run any login shell, which echoes and edits its line. One short line switches all
of that off. From then on bytes pass unchanged, so a script, the agent's file and at last the
agent's own protocol go over the same connection.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable

import msgspec

from sandstream_providers.box.package import agent_source
from sandstream_providers.box.start import agent_config
from sandstream_providers.hosted.accounts import accounts_of, no_users, with_accounts
from sandstream_providers.hosted.errors import AgentFailed, NoRoot
from sandstream_providers.hosted.vendor import Terminal
from sandstream_providers.interface import BoxSpec

FIRST_LINE = (
    b" stty raw -echo; exec /bin/sh -c "
    b"""'printf "%s%s %s\\n" SANDSTREAM- HELLO "$(id -u)"; IFS= read -r l; eval "$l"'\n"""
)
"""The echo of this line does not contain the mark that its output begins with."""
IDLE_LINK_S = 900.0
"""A relay ends after this long without a sign of its other side."""
_MARK = re.compile(rb"SANDSTREAM-([A-Z]+)[ ]?([^\r\n]*)\r?\n")
_MOST_NOISE = 1024 * 1024

ROOT_SCRIPT = r"""
mkdir -p -- "$ROOT" 2>/dev/null || {
  sudo -n mkdir -p -- "$ROOT" && sudo -n chown "$(id -u):$(id -g)" -- "$ROOT"
} >/dev/null 2>&1
until [ -d "$ROOT" ] && [ -w "$ROOT" ]; do
  say NOROOT "$(id -u):$(id -g)"
  IFS= read -r l || exit 1
done
"""
"""Many boxes have a user who may become root without a password. Where that fails, the script says
who needs the directory, with the function ``say``, and waits for a line: then it is there.
"""

_SCRIPT = (
    r"""
say() { printf '%s%s %s\n' SANDSTREAM- "$1" "$2"; }
umask 077
F=${HOME:?}/.sandstream
A=$F/agent-$DIGEST
mkdir -p "$F" || { say FAILED "no directory can be made in $HOME"; exit 1; }
umask 022
take() { head -c "$SIZE" >"$A.$$"; }
digest() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum; else
    "$P" -I -S -c 'import hashlib, sys
print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
  fi
}
[ -z "$EAGER" ] || take
"""
    + ROOT_SCRIPT
    + r"""
P=
for it in python3 python; do
  if command -v $it >/dev/null 2>&1 &&
    [ "$($it -I -S -c 'import sys, zlib; print(sys.version_info >= (3, 8))' 2>&1)" = True ]
  then P=$(command -v $it); break; fi
done
[ -n "$P" ] || { rm -f "$A.$$"; say NOPYTHON "$F"; exit 0; }
if [ -f "$A" ]; then
  rm -f "$A.$$"
else
  [ -n "$EAGER" ] || { say SEND; take; }
  case "$(digest <"$A.$$")" in
    "$DIGEST"*) mv "$A.$$" "$A" ;;
    *) rm -f "$A.$$"; say FAILED "the agent did not arrive whole"; exit 1 ;;
  esac
fi
exec "$P" -I -S "$A" background "$(printf '%s' "$CONFIG" | base64 -d | sed "s|@FOLDER@|$F|")"
"""
)


class Greeted(msgspec.Struct, frozen=True, kw_only=True):
    """How a terminal was answered."""

    agent: bool
    """True: the terminal is connected to the agent now. False: the box has no Python."""
    folder: str = ""
    """Where our files in the box are, if there is no agent."""
    started: str = ""
    """Another text after each start of the agent."""
    rest: bytes = b""
    """What the agent has said already."""


async def greet(
    terminal: Terminal,
    spec: BoxSpec,
    make_root: Callable[[str], Awaitable[None]],
    *,
    is_new: bool = False,
) -> Greeted:
    """Raises AgentFailed if the agent cannot be started, NoRoot if the workspace cannot be made,
    NoUsers if accounts cannot be made, or OSError if the connection breaks.

    Args:
        terminal: Its shell has said and heard nothing yet.
        spec: Of the box.
        make_root: Makes the directory of the workspace for this owner (``uid:gid``) with rights
            that the box's user lacks, or raises NoRoot.
        is_new: The agent cannot be there yet, so it is sent without being asked for.
    """
    agent = agent_source(small=True)
    hearing = _Hearing(terminal)
    await terminal.send(FIRST_LINE)
    user = await hearing.until(b"HELLO")
    # sudo, which makes the accounts, may drop what was typed before it began
    is_eager = is_new and (user == b"0" or not accounts_of(spec))
    await terminal.send(_line(spec, agent, is_eager=is_eager) + (agent if is_eager else b""))
    what, text = await hearing.word()
    if what == b"NOROOT":
        await make_root(text.decode())
        await terminal.send(b"\n")
        what, text = await hearing.word()
    if what == b"SEND":
        await terminal.send(agent)
        what, text = await hearing.word()
    said = text.decode(errors="replace")
    if what == b"LINKED":
        return Greeted(agent=True, started=said, rest=hearing.rest())
    if what == b"NOPYTHON":
        return Greeted(agent=False, folder=said)
    if what == b"NOROOT":
        raise no_root(spec.root, said)
    if what == b"NOUSERS":
        raise no_users()
    raise AgentFailed(f"its agent does not start: {said}")


def no_root(root: str, owner: str = "") -> NoRoot:
    """``owner``: who needs it, as ``uid:gid``."""
    return NoRoot(
        f"the workspace {root} cannot be made in this sandbox: its user may not write there. "
        "Give the manifest a root below the user's home directory",
        owner=owner,
    )


def _line(spec: BoxSpec, agent: bytes, *, is_eager: bool) -> bytes:
    config = agent_config(spec, spec.root, {}) | {"folder": "@FOLDER@", "idle_link_s": IDLE_LINK_S}
    config["env"] = dict(spec.env)  # the home directory stays the vendor's
    values = {
        "DIGEST": hashlib.sha256(agent).hexdigest()[:16],
        "SIZE": str(len(agent)),
        "EAGER": "yes" if is_eager else "",
        "ROOT": spec.root,
        "CONFIG": base64.b64encode(msgspec.json.encode(config)).decode(),
    }
    script = "".join(f"{name}={_quoted(value)}\n" for name, value in values.items()) + _SCRIPT
    script = with_accounts(spec, script)
    packed = base64.b64encode(script.encode(errors="surrogateescape"))
    return b'eval "$(printf %s ' + packed + b' | base64 -d)"\n'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


class _Hearing:
    """What a terminal says, word by word; all that is not ours is left out."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._heard = b""

    async def word(self) -> tuple[bytes, bytes]:
        while (found := _MARK.search(self._heard)) is None:
            data = await self._terminal.receive()
            if not data:
                raise ConnectionResetError(f"the terminal ended: {self._heard[-300:]!r}")
            self._heard += data
            if len(self._heard) > _MOST_NOISE:
                raise ConnectionResetError("the terminal says much, but not what we asked")
        self._heard = self._heard[found.end() :]
        return found.group(1), found.group(2)

    async def until(self, wanted: bytes) -> bytes:
        while True:
            what, text = await self.word()
            if what == wanted:
                return text.strip()

    def rest(self) -> bytes:
        return self._heard
