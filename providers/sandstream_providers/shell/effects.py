"""Changes of files: one at a time, each once for its operation.

The outcome of each operation, a refusal too, is noted in the box. The lock is a link that names its
owner, so that the lock of a script that was killed can be told from one that is held. A shell runs
one script at a time, so a lock in its own name is an old one.
"""

from __future__ import annotations

import asyncio

from sandstream_providers.box.agent.commands.jobs import file_name
from sandstream_providers.interface import ProviderError
from sandstream_providers.shell.kill_scripts import naps
from sandstream_providers.shell.refusals import failure, refusal
from sandstream_providers.shell.scripts import Scripts

LOCK = r"""
lock() {
  me
  now; late=$((now + 3000))
  until ln -s "$me" "$R/lock" 2>/dev/null; do
    if owner=$(readlink "$R/lock"); then
      { [ "$owner" != "$me" ] && alive "$owner"; } || break_lock
    fi
    nap 0.02
    now
    [ $now -lt $late ] || { echo "the lock of the records was held for 30 s" >&2; exit 1; }
  done
  trap 'rm -f "$R/lock"' EXIT
  trap 'exit 1' HUP INT TERM
}
break_lock() {
  if mkdir "$R/stale.$owner" 2>/dev/null; then
    [ "$(readlink "$R/lock")" = "$owner" ] && rm -f "$R/lock"
    rmdir "$R/stale.$owner"
  elif [ -n "$(find "$R/stale.$owner" -prune -mmin +1 2>/dev/null)" ]; then
    rmdir "$R/stale.$owner" 2>/dev/null
  fi
}
"""
UNDO = r"""
undo_one() {
  read -r verb kept <"$1"
  path=$(tail -n +2 "$1"; printf _)
  path=${path%_}
  folder=${path%/*} name=${path##*/}
  { cd -P "${folder:-/}" && [ "$PWD" = "${folder:-/}" ]; } 2>/dev/null || return 0
  case $verb in
    rm) rm -f "./$name" ;;
    rmdir) rmdir "./$name" ;;
    chmod) chmod "$kept" "./$name" ;;
    back)
      if [ -e "$stage/$kept" ] || [ -L "$stage/$kept" ]; then
        [ -L "./$name" ] && rm -f "./$name"
        mv -f "$stage/$kept" "./$name"
      fi ;;
    move)
      path=$(cat "$1.to"; printf _)
      path=${path%_}
      if [ -e "./$name" ] || [ -L "./$name" ]; then
        [ -e "$path" ] || [ -L "$path" ] || mv -f "./$name" "$path"
      fi ;;
  esac 2>/dev/null
}
recover() {
  [ -d "$R/undo" ] || return 0
  stage=$(cat "$R/undo/stage"; printf _)
  stage=${stage%_}
  half=
  [ -s "$R/undo/op" ] && read -r half <"$R/undo/op"
  if [ -n "$half" ] && ! [ -s "$R/done/$half" ]; then
    count=1
    while [ -e "$R/undo/$count" ]; do count=$((count + 1)); done
    while [ $count -gt 1 ]; do count=$((count - 1)); undo_one "$R/undo/$count"; done
  fi
  case $stage in */.sandstream-stage) rm -rf "$stage" ;; esac
  rm -rf "$R/undo"
}
"""
"""``recover`` undoes the changes of a batch that did not come to its end, newest first. What a
command did to the same files meanwhile stays."""

ONCE = r"""
lock
if [ -s "$R/done/$OP" ]; then
  cat "$R/done/$OP"
  cat >/dev/null
  exit
fi
recover
said=$(body 2>&1)
case $? in
  0) outcome=ok ;;
  40) outcome="no ${said##*
}" ;;
  *) outcome="er $(printf %s "$said" | tail -c 1000)" ;;
esac
[ "$outcome" = ok ] || recover
if ! printf '%s\n' "$outcome" 2>/dev/null >"$R/done/$OP"; then
  said=$(printf '%s\n' "$outcome" | dd of="$R/done/$OP" 2>&1) || { echo "$said" >&2; exit 1; }
fi
printf '%s\n' "$outcome"
recover
"""
"""The last line that the body prints says why it refuses. A shell does not say why a write fails,
so ``dd`` repeats the write and says it. On a full disk no outcome is stored, and the next script
undoes the change."""
RECOVER = "lock\nrecover\n"
FORGET = r"""
cd "$R/done" && ls -t | tail -n +10001 | while read -r name; do rm -f "./$name"; done
"""
FORGET_EVERY = 1000


class Effects:
    """Runs the bodies of changes."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._one_at_a_time = asyncio.Lock()
        self._recovered = False
        self._asked = 0

    async def recover(self) -> None:
        """Undo the unfinished change of a killed process, before the files are used."""
        if self._recovered:
            return
        async with self._one_at_a_time:
            if not self._recovered:
                facts = await self._scripts.facts()
                script = self._scripts.basics.script(naps(facts), LOCK, UNDO, RECOVER)
                answer = await self._scripts.run(script)
                if answer.code:
                    raise failure(answer.stderr, "the sandbox's records")
                self._recovered = True

    async def once(
        self,
        op: str,
        asked: list[str],
        body: str,
        data: bytes = b"",
        **values: str | bytes | int,
    ) -> None:
        """Make one change. ``body`` is a script that defines the function ``body``. ``asked`` are
        the paths of the change: a body that fails prints the number of the path at fault.
        """
        await self.recover()
        facts = await self._scripts.facts()
        self._asked += 1
        forget = FORGET if self._asked % FORGET_EVERY == 0 else ""
        whole = self._scripts.basics.script(
            naps(facts), LOCK, UNDO, body, ONCE, forget, **values, OP=file_name(op)
        )
        async with self._one_at_a_time:
            answer = await self._scripts.run(whole, data, timeout_s=300)
        if answer.code:
            raise failure(answer.stderr, asked[0] if asked else "the workspace")
        error = outcome(answer.stdout, asked)
        if error is not None:
            raise error


def outcome(said: bytes, asked: list[str]) -> ProviderError | None:
    """None: it was done."""
    kind, _, text = said.partition(b" ")
    if kind.strip() == b"ok":
        return None
    text, _, number = text.rstrip().rpartition(b"@") if b"@" in text else (text, b"", b"")
    at = int(number) if number.isdigit() else 0
    path = asked[at] if at < len(asked) else "the workspace"
    if kind == b"no":
        name, reason = text.decode("ascii").split()[:2]
        return refusal(name, reason, path)
    return failure(text, path)
