"""Many changes at once: all or none. Files for an empty root are written without this care.

The contents of a batch come as one archive, which is unpacked in a hidden directory below the root
together with the plan, a script of one line for each change. Before something is changed, a note in
the records says how to undo it. The batch counts once its outcome is recorded; until then, the next
script undoes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.commands.jobs import file_name
from sandstream_providers.interface import FileWrite, PathEscapes, ResolveRule
from sandstream_providers.shell.archive import DIRECTORY, LINK, Archive
from sandstream_providers.shell.effects import Effects, outcome
from sandstream_providers.shell.paths import Paths, given
from sandstream_providers.shell.quotes import words
from sandstream_providers.shell.refusals import checked
from sandstream_providers.shell.scripts import Scripts

NEW_MODES = {"file": 0o644, "dir": 0o755, "link": 0o777}
NAMES_AT_ONCE = 500

CHANGE = r"""
S=$ROOT/.sandstream-stage notes=0 kept=0 index=0
no() { echo "$1 $2 @$index"; exit 40; }
bad() { echo "@$index" >&2; exit 1; }
note() {
  notes=$((notes + 1))
  printf '%s\n%s' "$1" "$2" >"$R/undo/$notes" || bad
}
at() {
  resolve "$1" "$2" 1
  there=
  if [ -z "$missing" ] && exists; then
    there=1
    [ -z "$3" ] || no WrongKind exists
  else
    [ -z "$4" ] || no NotFound missing
  fi
}
aside() {
  kept=$((kept + 1))
  if [ -z "$there" ]; then
    [ -n "$1" ] || note rm "$path"
  elif [ -L "./$name" ] || { [ -z "$1" ] && ! ln "./$name" "$S/k$kept" 2>/dev/null; }; then
    note "back k$kept" "$path"
    mv -f "./$name" "$S/k$kept" || bad
  elif [ -z "$1" ]; then
    note "back k$kept" "$path"
  fi
}
is_root=
[ "$(id -u)" != 0 ] || is_root=1
keep_owner() {
  owner=$(stat -c %u:%g "./$name") || bad
  [ "$owner" != 0:0 ] || return 0
  mode=$(stat -c %a "$1") && chown "$owner" "$1" && chmod "$mode" "$1" || bad
}
put() {
  index=$1 follow=1
  [ -z "$4" ] || follow=0
  at "$2" $follow "$4" "$5"
  [ -z "$there" ] || is_file || no WrongKind not_file
  if [ -n "$there" ] && [ -z "$3" ]; then
    mode=$(stat -c %a "./$name") && [ "$mode" = 644 ] || chmod "$mode" "$S/$1" || bad
  fi
  [ -z "$there" ] || [ -z "$is_root" ] || keep_owner "$S/$1"
  make_parents
  aside "$6"
  mv -f "$S/$1" "./$name" || bad
}
dir() {
  index=$1 follow=1
  [ -z "$4" ] || follow=0
  at "$2" $follow "$4" "$5"
  if [ -n "$there" ]; then
    is_dir || no WrongKind file_in_the_way
    [ -n "$3" ] || return 0
    note "chmod $(stat -c %a "./$name")" "$path"
  else
    make_parents
    note rmdir "$path"
    mkdir "./$name" || bad
  fi
  [ -z "$3" ] || chmod "$3" "./$name" || bad
}
link() {
  index=$1
  at "$2" 0 "$4" "$5"
  [ -z "$there" ] || ! is_dir || no WrongKind dir_in_the_way
  make_parents
  aside "$6"
  ln -s -- "$3" "$S/$1" || bad
  mv -f "$S/$1" "./$name" || bad
}
del() {
  index=$1
  at "$2" 0 "$4" "$5"
  [ -n "$there" ] || return 0
  [ "$path" != "$root" ] || no NotPermitted root
  kept=$((kept + 1))
  note "back k$kept" "$path"
  mv -f "./$name" "$S/k$kept" || bad
}
move() {
  index=$1
  at "$2" 0 "$4" 1
  [ "$path" != "$root" ] || no NotPermitted root
  source=$path
  at "$3" 0 '' ''
  make_parents
  [ -z "$there" ] || ! is_dir || no WrongKind dir_in_the_way
  aside ''
  printf %s "$source" >"$R/undo/$((notes + 1)).to" || bad
  note move "$path"
  mv -f "$source" "./$name" || bad
}
body() {
  mkdir "$R/undo" && printf %s "$S" >"$R/undo/stage" && echo "$OP" >"$R/undo/op" || exit 1
  rm -rf "$S"
  mkdir -m 700 "$S" && tar -xomf - -C "$S" || exit 1
  . "$S/plan"
}
"""
"""Each function of a change takes its number, the path, a mode or a target, and whether nothing or
something must be there, and whether it is the last one: that one needs no undo."""

PLACES = r"""
[ -s "$R/done/$OP" ] && { cat "$R/done/$OP"; cat >/dev/null; exit; }
index=0
no() { echo "no $1 $2 @$index"; exit 0; }
place() {
  index=$1
  resolve "$2" 1 1
  rule "$path/$3" 1
  make_parents
  is_dir || mkdir "./$name" || exit 1
  printf '%s\0' "$path" >>"$R/places.$$"
}
cat >"$R/plan.$$" && : >"$R/places.$$" || exit 1
trap 'rm -f "$R/plan.$$" "$R/places.$$"' EXIT
. "$R/plan.$$"
echo at
cat "$R/places.$$"
"""
FILL = r"""
body() { tar -xpomf - -C / && . "$R/modes" && rm -f "$R/modes"; }
"""
"""The modes of directories come last. Those without all rights of the owner could not be filled,
and the tar of busybox leaves a directory as it is that is there already."""


class Changes:
    """Batches."""

    def __init__(self, root: str, scripts: Scripts, effects: Effects) -> None:
        self._root = root
        self._scripts = scripts
        self._effects = effects

    async def change(self, op: str, changes: Sequence[FileWrite], rule: ResolveRule) -> None:
        facts = await self._scripts.facts()
        body = Paths(self._root, facts).functions(rule) + CHANGE
        archive = Archive()
        modes: dict[int, list[int]] = {}
        lines = []
        for number, change in enumerate(changes):
            lines.append(_line(number, change, last=number == len(changes) - 1))
            if change.kind == "file":
                mode = NEW_MODES["file"] if change.mode is None else change.mode
                modes.setdefault(mode, []).append(number)
                archive.add(str(number), change.data)
        archive.add("plan", b"\n".join([*_chmods(modes), *lines, b":\n"]))
        asked = [change.path for change in changes]
        await self._effects.once(op, asked, body, archive.bytes(), ROOT=facts.root)

    async def fill(self, op: str, entries: Sequence[FileWrite], rule: ResolveRule) -> None:
        asked = [entry.path for entry in entries]
        real = await self._places(op, entries, rule)
        if real is None:
            return
        archive = Archive()
        folders: list[tuple[str, int]] = []
        for entry in entries:
            parent, _, name = entry.path.rpartition("/")
            path = f"{real[parent]}/{name}"
            mode = NEW_MODES[entry.kind] if entry.mode is None else entry.mode
            if entry.kind == "dir":
                archive.add(path.lstrip("/"), mode=mode | 0o700, kind=DIRECTORY)
                folders.append((path, mode))
            elif entry.kind == "link":
                archive.add(path.lstrip("/"), mode=mode, kind=LINK, target=entry.target)
            else:
                archive.add(path.lstrip("/"), entry.data, mode=mode)
        modes = f"{self._scripts.basics.records}/modes".lstrip("/")
        archive.add(modes, b"\n".join([*_folder_chmods(folders), b":\n"]))
        await self._effects.once(op, asked, FILL, archive.bytes())

    async def _places(
        self, op: str, entries: Sequence[FileWrite], rule: ResolveRule
    ) -> dict[str, str] | None:
        """Where the directories of the entries really are; they are made. None: it was done."""
        await self._effects.recover()
        facts = await self._scripts.facts()
        first: dict[str, int] = {}
        lines = []
        for number, entry in enumerate(entries):
            parent, _, name = entry.path.rpartition("/")
            raw = given(entry.path)
            if name in ("", ".", ".."):
                raise PathEscapes(
                    f"{entry.path} does not name a file", reason="escape", path=entry.path
                )
            if parent not in first:
                first[parent] = number
                arguments = [str(number).encode(), raw.rpartition(b"/")[0] or b"/"]
                lines.append(b"place " + words([*arguments, wire.to_bytes(name)]))
        functions = Paths(self._root, facts).functions(rule)
        script = self._scripts.basics.script(functions, PLACES, OP=file_name(op))
        answer = await self._scripts.run(script, b"\n".join([*lines, b":\n"]))
        asked = [entry.path for entry in entries]
        said = checked(answer, asked[0] if asked else self._root)
        if not said.startswith(b"at\n"):
            error = outcome(said, asked)
            if error is not None:
                raise error
            return None
        found = said.removeprefix(b"at\n").split(b"\0")
        return dict(zip(first, map(wire.to_text, found), strict=False))


def _line(number: int, change: FileWrite, *, last: bool) -> bytes:
    verb = {"file": "put", "dir": "dir", "link": "link", "remove": "del", "move": "move"}
    detail = "" if change.mode is None else f"{change.mode:o}"
    if change.kind == "link":
        detail = change.target
    elif change.kind == "move":
        detail = wire.to_text(given(change.target))
    arguments = [
        str(number).encode(),
        given(change.path),
        wire.to_bytes(detail),
        b"1" if change.exclusive else b"",
        b"1" if change.must_exist else b"",
        b"1" if last else b"",
    ]
    return verb[change.kind].encode() + b" " + words(arguments)


def _chmods(modes: dict[int, list[int]]) -> list[bytes]:
    """The staged files in groups that fit into a command line."""
    lines = [b'( cd "$S" || bad']
    for mode, numbers in modes.items():
        for start in range(0, len(numbers), NAMES_AT_ONCE):
            names = " ".join(map(str, numbers[start : start + NAMES_AT_ONCE]))
            lines.append(f"chmod {mode:o} {names} || bad".encode())
    return [*lines, b") || exit 1"]


def _folder_chmods(folders: Sequence[tuple[str, int]]) -> Iterator[bytes]:
    """Many at once, where the order does not matter; the others from the inside out."""
    opened: dict[int, list[str]] = {}
    closed: list[tuple[str, int]] = []
    for path, mode in folders:
        if mode & 0o700 == 0o700:
            opened.setdefault(mode, []).append(path)
        else:
            closed.append((path, mode))
    for mode, paths in opened.items():
        for start in range(0, len(paths), NAMES_AT_ONCE):
            yield _chmod(mode, paths[start : start + NAMES_AT_ONCE])
    for path, mode in reversed(closed):
        yield _chmod(mode, [path])


def _chmod(mode: int, paths: Sequence[str]) -> bytes:
    return b"chmod %o " % mode + words(map(wire.to_bytes, paths)) + b" || exit 1"
