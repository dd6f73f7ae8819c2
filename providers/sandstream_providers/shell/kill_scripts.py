"""Finding and ending the processes of a command, in the shell.

All processes of a command have a mark in their environment, which they keep when they detach
themselves from their parent, group and session. One that cleared its environment is found by these
three. First all are asked to end; then they are stopped, so that none can multiply, and killed,
until none is found.
"""

from __future__ import annotations

from sandstream_providers.shell.basics import BoxFacts

WITH_GREP = r"""
marked() { grep -lz "^$1" /proc/[0-9]*/environ 2>/dev/null; }
"""
WITH_HEAD = r"""
marked() {
  head -c 200000 /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' |
    awk -v mark="$1" '/^==> \/proc\/[0-9]+\/environ/ { file = $2 } $0 == mark { print file }'
}
"""
SWEEP = r"""
members() {
  found=$(marked "$1")
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v found="$(echo $found)" -v leader="$2" '
    BEGIN {
      count = split(found, files, " ")
      for (i = 1; i <= count; i++) { split(files[i], parts, "/"); member[parts[3]] = 1 }
    }
    {
      pid = $1; rest = $0; sub(/^.*\) /, "", rest); split(rest, field, " ")
      if (field[1] == "Z" || field[1] == "X") next
      parent[pid] = field[2]
      if (leader && (field[3] == leader || field[4] == leader)) member[pid] = 1
    }
    END {
      do {
        grown = 0
        for (pid in parent) if (!(pid in member) && (parent[pid] in member)) {
          member[pid] = 1; grown = 1
        }
      } while (grown)
      for (pid in member) if (pid in parent) print pid
    }'
}
sweep() {
  pids=$(members "$1" "$2")
  [ -n "$pids" ] || return 0
  kill -TERM $pids 2>/dev/null
  kill -CONT $pids 2>/dev/null
  now; hard=$((now + 50)) late=$((now + 1000))
  while [ $now -lt $hard ]; do
    nap 0.02
    pids=$(members "$1" "$2")
    [ -n "$pids" ] || return 0
    now
  done
  while [ $now -lt $late ]; do
    stopped=' '
    for round in 1 2 3 4 5 6 7 8 9 10; do
      fresh=
      for pid in $(members "$1" "$2"); do
        case $stopped in *" $pid "*) ;; *) fresh="$fresh $pid" stopped="$stopped$pid " ;; esac
      done
      [ -n "$fresh" ] || break
      kill -STOP $fresh 2>/dev/null
    done
    pids=$(members "$1" "$2")
    [ -n "$pids" ] || return 0
    kill -KILL $pids 2>/dev/null
    nap 0.01
    now
  done
  return 1
}
claim_end() {
  set -C
  { echo "$2" >"$1/killed"; } 2>/dev/null
  set +C
}
"""
"""``sweep`` ends all processes with a mark, or of a session; its code is 1 if some are left.
``claim_end`` notes why a command is ended, unless another reason was there first."""


def naps(facts: BoxFacts) -> str:
    """``nap``: pause for a part of a second, or for a second where there is nothing shorter."""
    return "nap() { sleep %s; }\n" % ('"$1"' if "short_sleep" in facts.has else "1")


def killing(facts: BoxFacts) -> str:
    """The functions, as this box needs them."""
    return naps(facts) + (WITH_GREP if "grep_z" in facts.has else WITH_HEAD) + SWEEP
