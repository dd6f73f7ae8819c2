"""What ``stat`` says of many files at once.

A path never holds two slashes in a row, so two of them and a line end mark the end of a row,
for names of any bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

import msgspec

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.files.single_files import kind_of
from sandstream_providers.interface import Entry

FORMAT = "%f %s %i %u %g %y|%z|%n//"
LINKS = r"""
links() {
  find . -mindepth 1 "$@" -type l -exec sh -c \
    'for f; do printf "%s\0" "$f"; readlink -n "$f"; printf "\0"; done' sh {} +
}
"""
"""``links``: the targets of links, as pairs of a name and a target; both end with a zero byte."""

_TIME = rb"(\d+-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d+))? [+]0000\|"
_ROW = re.compile(
    rb"([0-9a-f]+) (\d+) (\d+) (\d+) (\d+) " + _TIME + _TIME + rb"(.*?)//\n", re.DOTALL
)


class Row(msgspec.Struct, frozen=True):
    """One file, as it is now."""

    path: bytes
    mode: int
    """With the kind."""
    size: int
    inode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int

    @property
    def kind(self) -> str:
        return kind_of(self.mode)

    def signature(self) -> tuple[int, int, int, int, int]:
        """Another one means that the file may have changed."""
        return (self.inode, self.size, self.ctime_ns, self.mtime_ns, self.mode)

    def entry(
        self, path: bytes, *, digest: str = "", target: bytes = b"", size: int | None = None
    ) -> Entry:
        return Entry(
            path=wire.to_text(path),
            kind=self.kind,  # type: ignore[arg-type]
            mode=self.mode & 0o7777,
            size=self.size if size is None else size,
            digest=digest,
            target=wire.to_text(target),
            mtime_ns=self.mtime_ns,
            uid=self.uid,
            gid=self.gid,
        )


def rows(said: bytes) -> Iterator[Row]:
    for found in _ROW.finditer(said):
        mode, size, inode, uid, gid, m_time, m_part, c_time, c_part, path = found.groups()
        yield Row(
            path.removeprefix(b"./"),
            int(mode, 16),
            int(size),
            int(inode),
            int(uid),
            int(gid),
            _nanoseconds(m_time, m_part),
            _nanoseconds(c_time, c_part),
        )


def targets(said: bytes) -> dict[bytes, bytes]:
    """Of links, by path."""
    words = said.split(b"\0")
    return {
        path.removeprefix(b"./"): target
        for path, target in zip(words[::2], words[1::2], strict=False)
    }


def _nanoseconds(second: bytes, part: bytes | None) -> int:
    return _epoch(second) * 1_000_000_000 + int((part or b"0").ljust(9, b"0")[:9])


@lru_cache(maxsize=4096)
def _epoch(second: bytes) -> int:
    return int(datetime.fromisoformat(f"{second.decode('ascii')}+00:00").timestamp())
