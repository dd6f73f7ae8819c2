"""Where paths lead, in the shell, and whether they may lead there.

A path is walked one name after the other, and links are followed by hand. The shell stands in the
directory that it has reached and asks where that really is, so another directory that is swapped in
on the way is noticed. The last name is used right after it was looked at; a link that is swapped in
between these two moments is followed by programs that follow links. A shell cannot do better.
"""

from __future__ import annotations

import os

from sandstream_providers.box.agent import wire
from sandstream_providers.interface import PathEscapes, ResolveRule
from sandstream_providers.shell.basics import BoxFacts
from sandstream_providers.shell.quotes import assigned

STAGE = ".sandstream-stage"
"""Where changes are prepared, below the root. Never shown."""

RESOLVE = r"""
trim() {
  while :; do
    case $left in
      /*) left=${left#/} ;;
      ./*) left=${left#./} ;;
      .) left= ;;
      *) return ;;
    esac
  done
}
exists() { [ -e "./$name" ] || [ -L "./$name" ]; }
is_dir() { [ -d "./$name" ] && ! [ -L "./$name" ]; }
is_file() { [ -f "./$name" ] && ! [ -L "./$name" ]; }
resolve() {
  left=$1 links=0 missing= name=
  cd /
  trim
  while [ -n "$left" ]; do
    name=${left%%/*}
    case $left in */*) left=${left#*/}; trim ;; *) left= ;; esac
    if [ "$name" = .. ]; then
      cd -P ..
      name=
    elif [ -L "./$name" ] && { [ -n "$left" ] || [ "$2" = 1 ]; }; then
      links=$((links + 1))
      [ $links -le 40 ] || no PathEscapes depth
      target=$(readlink -n "./$name"; printf _)
      target=${target%_}
      case $target in /*) cd / ;; esac
      left=$target/$left name=
      trim
    elif [ -z "$left" ]; then
      break
    elif is_dir; then
      cd -P "./$name" || exit 1
      name=
    elif exists; then
      no WrongKind below_file
    else
      missing=$name/$left
      missing=${missing%/} name=${missing##*/} missing=${missing%/*}
      break
    fi
  done
  if [ -z "$name" ]; then
    name=${PWD##*/}
    if [ -n "$name" ]; then cd -P ..; else name=.; fi
  fi
  path=${PWD%/}/${missing:+$missing/}$name
  [ "$name" != . ] || path=/
  rule "$path" "$3"
  case "/$missing/$name/" in */../*) no NotFound missing ;; esac
}
make_parents() {
  while [ -n "$missing" ]; do
    part=${missing%%/*}
    case $missing in */*) missing=${missing#*/} ;; *) missing= ;; esac
    case $part in ''|.) continue ;; esac
    note rmdir "${PWD%/}/$part"
    mkdir "./$part" 2>/dev/null || [ -d "./$part" ] || mkdir "./$part" || exit 1
    inner=${PWD%/}/$part
    cd -P "./$part" || exit 1
    [ "$PWD" = "$inner" ] || no PathEscapes escape
  done
}
note() { :; }
"""
"""``resolve path follow write``: stands in the innermost directory that exists; ``name`` is the
last name, ``path`` where it really is, ``missing`` the directories in between that do not exist.
``follow``: also a link at the very end."""


class Paths:
    """Roots of one box, and paths as scripts take them."""

    def __init__(self, root: str, facts: BoxFacts) -> None:
        self._named = os.path.normpath(wire.to_bytes(root))
        self._root = facts.root

    def real(self, asked: str) -> bytes:
        """The path with the box's root resolved, and nothing else."""
        path = os.path.normpath(wire.to_bytes(asked))
        if path == self._named:
            return self._root
        if path.startswith(self._named.rstrip(b"/") + b"/"):
            return self._root + path[len(self._named) :]
        return path

    def functions(self, rule: ResolveRule) -> str:
        """``resolve``, with this rule."""
        roots = [(self.real(root), 1) for root in rule.roots]
        roots += [(self.real(root), 0) for root in rule.read_only_roots]
        roots.sort(key=lambda root: len(root[0]), reverse=True)  # the innermost one counts
        lines = []
        cases = []
        for number, (root, writable) in enumerate(roots):
            lines.append(assigned(f"root{number}", root.rstrip(b"/")))
            cases.append(f'"$root{number}"/*) root=$root{number} writable={writable} ;;\n')
        body = f"rule() {{ case $1/ in\n{''.join(cases)}*) no PathEscapes escape ;;\nesac\n"
        body += '[ $writable = 1 ] || [ "$2" != 1 ] || no PathEscapes read_only\n}\n'
        return "".join(lines) + body + RESOLVE


def normal(asked: str) -> bytes:
    """Without dots and slashes that mean nothing."""
    return os.path.normpath(wire.to_bytes(asked))


def given(asked: str) -> bytes:
    """A path for a script. Raises PathEscapes if it is not absolute."""
    raw = wire.to_bytes(asked)
    if not raw.startswith(b"/") or b"\0" in raw:
        raise PathEscapes(f"not an absolute path: {asked}", reason="escape")
    return raw
