"""Single file operations of a box that is operated by scripts."""

from __future__ import annotations

from collections.abc import Sequence

from sandstream_providers.interface import Entry, ResolveRule
from sandstream_providers.shell import file_list
from sandstream_providers.shell.effects import Effects
from sandstream_providers.shell.paths import Paths, given, normal
from sandstream_providers.shell.quotes import quoted
from sandstream_providers.shell.refusals import checked
from sandstream_providers.shell.scripts import Scripts

READ_AT_ONCE = 8 * 1024 * 1024
BLOCK = 65536

FOUND = r"""
resolve "$P" 1 0
[ -z "$missing" ] && exists || no NotFound missing
"""
READ = r"""
is_file || no WrongKind not_file
dd if="./$name" bs=65536 skip=$SKIP count=$COUNT 2>/dev/null || dd if="./$name" bs=1 count=1
"""
STAT = r"""
stat -c "$FORMAT" "./$name" || exit 1
printf %s "$path"
"""
LIST = r"""
is_dir || no WrongKind not_dir
cd -P "./$name" || exit 1
[ "$PWD" = "$path" ] || no NotFound missing
find . -mindepth 1 -maxdepth 1 ! -name .sandstream-stage -exec stat -c "$FORMAT" {} + 2>/dev/null
printf '\0'
links -maxdepth 1 2>/dev/null
:
"""

MAKE_DIR = r"""
body() {
  resolve "$P" 1 1
  [ -z "$missing" ] || [ -n "$PARENTS" ] || no NotFound missing
  if [ -z "$missing" ] && exists; then
    is_dir && [ -n "$PARENTS" ] && return
    no WrongKind exists
  fi
  make_parents
  mkdir "./$name"
}
"""
REMOVE = r"""
body() {
  resolve "$P" 0 1
  [ -z "$missing" ] && exists || no NotFound missing
  [ "$path" != "$root" ] || no NotPermitted root
  if ! is_dir; then
    rm -f "./$name"
  elif [ -n "$RECURSIVE" ]; then
    rm -rf "./$name" 2>/dev/null || { chmod -R u+rwx "./$name" 2>/dev/null; rm -rf "./$name"; }
  else
    rmdir "./$name"
  fi
}
"""
MOVE = r"""
body() {
  resolve "$P" 0 1
  [ -z "$missing" ] && exists || no NotFound missing
  [ "$path" != "$root" ] || no NotPermitted root
  source=$path folder=
  is_dir && folder=1
  resolve "$TARGET" 0 1
  make_parents
  if is_dir; then
    [ -n "$folder" ] || no WrongKind "dir_in_the_way @1"
    rmdir "./$name" || exit 1
  elif exists; then
    [ -z "$folder" ] || no WrongKind "file_in_the_way @1"
    [ -L "./$name" ] && rm -f "./$name"
  fi
  mv -f "$source" "./$name"
}
"""
APPEND = r"""
body() {
  resolve "$P" 1 1
  if [ -z "$missing" ] && exists; then
    is_file || no WrongKind not_file
    size=$(stat -c %s "./$name") || exit 1
    [ $size -ge $AT ] || no WrongKind hole
  else
    [ $AT = 0 ] || no NotFound missing
    make_parents
    size=0
  fi
  closed=
  if exists && ! [ -w "./$name" ]; then
    closed=$(stat -c %a "./$name")
    chmod u+w "./$name"
  fi
  [ $size -le $AT ] || dd if=/dev/null of="./$name" bs=1 seek=$AT count=0 2>/dev/null || exit 1
  cat >>"./$name" || {
    dd if=/dev/null of="./$name" bs=1 seek=$AT count=0 2>/dev/null
    exit 1
  }
  [ -z "$closed" ] || chmod $closed "./$name"
}
"""
CLEAR = r"""
wipe() {
  for name in .[!.]* ..?* *; do
    exists || continue
    kept "$1$name" && continue
    if is_dir && above "$1$name"; then
      ( cd -P "./$name" && wipe "$1$name/" ) || exit 1
    elif ! rm -rf "./$name" 2>/dev/null; then
      chmod -R u+rwx "./$name" 2>/dev/null
      rm -rf "./$name" 2>"$R/busy" || grep -q usy "$R/busy" || { cat "$R/busy" >&2; exit 1; }
    fi
  done
}
body() {
  cat >"$R/plan" && . "$R/plan" && cd -P -- "$ROOT" && wipe ''
}
"""
"""A mount point stays, empty."""


class Files:
    """Reading and single changes."""

    def __init__(self, root: str, scripts: Scripts, effects: Effects) -> None:
        self._root = root
        self._scripts = scripts
        self._effects = effects

    async def _functions(self, rule: ResolveRule) -> str:
        return Paths(self._root, await self._scripts.facts()).functions(rule)

    async def _look(
        self, path: str, rule: ResolveRule, script: str, **values: str | bytes | int
    ) -> bytes:
        raw = given(path)
        await self._effects.recover()
        functions = await self._functions(rule)
        whole = self._scripts.basics.script(functions, FOUND, script, **values, P=raw)
        return checked(await self._scripts.run(whole), path)

    async def read(self, path: str, rule: ResolveRule, offset: int, limit: int | None) -> bytes:
        parts = []
        while True:
            size = READ_AT_ONCE if limit is None else min(READ_AT_ONCE, limit)
            first = offset // BLOCK
            count = (offset + size + BLOCK - 1) // BLOCK - first if size > 0 else 0
            said = await self._look(path, rule, READ, SKIP=first, COUNT=count)
            data = said[offset - first * BLOCK :][: max(0, size)]
            parts.append(data)
            offset += len(data)
            if limit is not None:
                limit -= len(data)
            if len(data) < READ_AT_ONCE or limit == 0:
                return b"".join(parts)

    async def stat(self, path: str, rule: ResolveRule) -> Entry:
        said = await self._look(path, rule, STAT, FORMAT=file_list.FORMAT)
        row, _, real = said.rpartition(b"//\n")
        return next(file_list.rows(row + b"//\n")).entry(real)

    async def list(self, path: str, rule: ResolveRule) -> list[Entry]:
        script = file_list.LINKS + LIST
        found, _, links = (await self._look(path, rule, script, FORMAT=file_list.FORMAT)).partition(
            b"\0"
        )
        targets = file_list.targets(links)
        rows = sorted(file_list.rows(found), key=lambda row: row.path)
        return [row.entry(row.path, target=targets.get(row.path, b"")) for row in rows]

    async def make_dir(self, op: str, path: str, rule: ResolveRule, parents: bool) -> None:
        body = await self._functions(rule) + MAKE_DIR
        flag = "1" if parents else ""
        await self._effects.once(op, [path], body, P=given(path), PARENTS=flag)

    async def remove(self, op: str, path: str, rule: ResolveRule, recursive: bool) -> None:
        body = await self._functions(rule) + REMOVE
        flag = "1" if recursive else ""
        await self._effects.once(op, [path], body, P=given(path), RECURSIVE=flag)

    async def move(self, op: str, source: str, target: str, rule: ResolveRule) -> None:
        body = await self._functions(rule) + MOVE
        asked = [source, target]
        await self._effects.once(op, asked, body, P=given(source), TARGET=given(target))

    async def append(self, op: str, path: str, data: bytes, rule: ResolveRule, at: int) -> None:
        body = await self._functions(rule) + APPEND
        await self._effects.once(op, [path], body, data, P=given(path), AT=at)

    async def clear(self, op: str, keep: Sequence[str]) -> None:
        facts = await self._scripts.facts()
        kept = {normal(path) for path in keep}
        above = {
            b"/".join(path.split(b"/")[:end])
            for path in kept
            for end in range(1, path.count(b"/") + 1)
        }
        if b"." in kept:
            return
        plan = _membership(b"kept", kept) + _membership(b"above", above)
        body = await self._functions(ResolveRule(roots=[self._root])) + CLEAR
        await self._effects.once(op, [self._root], body, plan, ROOT=facts.root)


def _membership(name: bytes, members: set[bytes]) -> bytes:
    """A function that tells whether a path is one of these."""
    if not members:
        return name + b"() { return 1; }\n"
    patterns = b"|".join(quoted(path) for path in sorted(members))
    return name + b"() { case $1 in " + patterns + b") return 0 ;; esac; return 1; }\n"
