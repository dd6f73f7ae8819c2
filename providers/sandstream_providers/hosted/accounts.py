"""Users and groups in a hosted box: its processes of ours are root then, and make the accounts.

A vendor that can start a command as root does so. Elsewhere the user of the box becomes root by
``sudo``. A box where neither works is refused.
"""

from __future__ import annotations

import shlex

import msgspec

from sandstream_providers.accounts import check_names, users_of
from sandstream_providers.hosted.errors import NoUsers
from sandstream_providers.interface import BoxSpec, ProviderError

NO_ROOT = "SANDSTREAM-NOUSERS"
"""Said by a script that was to be root and cannot."""

_BECOME = r"""
[ "$(id -u)" = 0 ] || {
  set -- env "PATH=$PATH" "$@"
  if sudo -n -E true </dev/null >/dev/null 2>&1; then set -- sudo -n -E "$@"
  elif sudo -n true </dev/null >/dev/null 2>&1; then set -- sudo -n "$@"
  else printf '%s%s\n' SANDSTREAM- NOUSERS; exit 1; fi
}
exec "$@"
"""
"""Sets the search path, because ``sudo`` would choose another one. Does not contain the mark,
because a terminal may echo this text.
"""

_ACCOUNTS = r"""
while IFS=: read -r name _ _ _ _ home _; do
  [ "$name" != root ] || HOME=$home
done </etc/passwd
export HOME=${HOME:-/root} USER=root LOGNAME=root
mark=$HOME/.sandstream/accounts
if ! [ -e "$mark" ]; then
  taken() { cut -d: -f3 /etc/passwd /etc/group | grep -q "^$1\$"; }
  free() { number=1000; while taken "$number"; do number=$((number + 1)); done; }
  ended() { [ -z "$(tail -c 1 "$1")" ] || echo >>"$1"; }
  group() {
    group=$(sed -n "s/^$1:[^:]*:\([0-9]*\):.*/\1/p" /etc/group | head -n 1)
    [ -n "$group" ] || { free; group=$number; echo "$1:x:$group:" >>/etc/group; }
  }
  user() {
    if ! grep -q "^$1:" /etc/passwd; then
      free
      made=$number
      group "$1"
      echo "$1:x:$made:$group::$ROOT:/bin/sh" >>/etc/passwd
    fi
  }
  member() {
    names=$(sed -n "s/^$1:[^:]*:[^:]*://p" /etc/group | head -n 1)
    case ",$names," in
      *",$2,"*) ;;
      *)
        lines=$(sed "s/^$1:.*\$/&${names:+,}$2/" /etc/group) &&
          printf '%s\n' "$lines" >/etc/group
        ;;
    esac
  }
  ended /etc/passwd
  ended /etc/group
  MAKE
  [ -d "$ROOT" ] || mkdir -p -- "$ROOT"
  chown 0:0 -- "$ROOT"
  chmod 777 -- "$ROOT"
  above=$(dirname -- "$ROOT")
  while [ "$above" != / ]; do chmod a+x -- "$above"; above=$(dirname -- "$above"); done
  mkdir -p -m 700 "$HOME/.sandstream" && : >"$mark"
fi
"""
"""No program for accounts is needed. The workspace is open to all users, as in other boxes with
users, and so is the way to it. All this happens once in a box, so later changes stay.
"""


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """The users and groups of a specification."""

    users: list[str] = []
    groups: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.users or self.groups)


def accounts_of(spec: BoxSpec) -> Accounts:
    """Raises ProviderError for a wrong type or name."""
    options = spec.options
    given = {name: options[name] for name in ("users", "groups") if options.get(name)}
    try:
        accounts = msgspec.convert(given, Accounts)
    except msgspec.ValidationError as error:
        raise ProviderError(f"users or groups of the sandbox are wrong: {error}") from error
    check_names([*users_of(accounts.users, accounts.groups), *accounts.groups])
    return accounts


def with_accounts(spec: BoxSpec, script: str) -> str:
    """A script that a box begins with, as root after it has made the accounts; without accounts the
    script itself. It says :data:`NO_ROOT` instead where it cannot be root.
    """
    accounts = accounts_of(spec)
    if not accounts:
        return script
    steps = [f"user {name}" for name in users_of(accounts.users, accounts.groups)]
    for group, members in accounts.groups.items():
        steps += [f"group {group}", *(f"member {group} {name}" for name in members)]
    make = _ACCOUNTS.replace("MAKE", "\n  ".join(steps))
    return as_root(f"ROOT={shlex.quote(spec.root)}\n{make}\n{script}")


def as_root(script: str) -> str:
    """The script in a shell of root."""
    return f"set -- /bin/sh -c {shlex.quote(script)}{_BECOME}"


def no_users() -> NoUsers:
    return NoUsers(
        "this sandbox cannot have users and groups: its own user cannot become root. Use an image "
        "whose user is root or may use sudo without a password, or leave out users, groups and "
        "run_as"
    )
