"""Read tar and zip files member by member, without trusting their content. Blocking: use a thread.

Reading goes only forward and in small pieces, so that neither a header nor a content that claims to
be huge uses much memory.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Literal, NamedTuple, Protocol, cast

from sandstream_workspaces.archive_rules import ArchiveLimits, Member, MemberRules
from sandstream_workspaces.errors import ArchiveRejected
from sandstream_workspaces.packs import PART_BYTES

Scheme = Literal["tar", "tar.gz", "tar.bz2", "tar.xz", "zip"]

_READ_BYTES = 128 * 1024
"""The most that is read at once. A longer tar header is refused."""
_PADDING_BYTES = 16 * 1024 * 1024
_XZ_MEMORY_BYTES = 256 * 1024 * 1024
_MAGIC: dict[bytes, Scheme] = {
    b"\x1f\x8b": "tar.gz",
    b"BZh": "tar.bz2",
    b"\xfd7zXZ\0": "tar.xz",
}
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    NotImplementedError,  # an unknown zip compression
    RecursionError,  # tar headers nested too deeply
    OverflowError,  # absurd sizes
    struct.error,
    ValueError,
)


class Piece(NamedTuple):
    """A member with the next piece of its content; at most ``PART_BYTES``, so often the whole."""

    member: Member
    data: bytes
    last: bool


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def tar_scheme(file: BinaryIO) -> Scheme:
    """Detect the compression of a tar file by its first bytes."""
    start = file.read(8)
    file.seek(0)
    for magic, scheme in _MAGIC.items():
        if start.startswith(magic):
            return scheme
    return "tar"


def read_archive(
    file: BinaryIO, scheme: Scheme, limits: ArchiveLimits, *, strict: bool
) -> Iterator[Piece]:
    """All members of the archive with their contents. Raises :class:`ArchiveRejected`."""
    rules = MemberRules(limits, strict=strict)
    try:
        if scheme == "zip":
            yield from _read_zip(file, rules)
        else:
            yield from _read_tar(_Forward(_unpacked(file, scheme)), rules)
        rules.finish()
    except _BROKEN as error:
        raise ArchiveRejected(f"it is not a sound {scheme} file: {error}") from error


def _unpacked(file: BinaryIO, scheme: Scheme) -> _Readable:
    if scheme == "tar.gz":
        return gzip.GzipFile(fileobj=file, mode="rb")
    if scheme == "tar.bz2":
        return bz2.BZ2File(file)
    if scheme == "tar.xz":
        return _Xz(file)
    return file


class _Xz:
    """Like ``lzma.LZMAFile``, but with a limit on the memory that a file can demand."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)

    def read(self, size: int, /) -> bytes:
        while True:
            if self._decompressor.eof:
                rest = self._decompressor.unused_data.lstrip(b"\0") or self._file.read(_READ_BYTES)
                if not rest.strip(b"\0"):
                    return b""
                self._decompressor = lzma.LZMADecompressor(
                    lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES
                )
                more = rest
            elif self._decompressor.needs_input:
                more = self._file.read(_READ_BYTES)
                if not more:
                    raise EOFError("the compressed data ends too early")
            else:
                more = b""
            if data := self._decompressor.decompress(more, size):
                return data


class _Forward:
    """The source for ``tarfile``: it only seeks forward and refuses big reads."""

    def __init__(self, source: _Readable) -> None:
        self._source = source
        self._at = 0
        self.last = b""
        """The data of the last read."""

    def read(self, size: int) -> bytes:
        if size > _READ_BYTES:
            raise ArchiveRejected("a header is too big", limit=_READ_BYTES, actual=size)
        pieces: list[bytes] = []
        while size > 0 and (data := self._source.read(size)):
            pieces.append(data)
            size -= len(data)
        self.last = b"".join(pieces)
        self._at += len(self.last)
        return self.last

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> int:
        if position < self._at:
            raise ArchiveRejected("it refers to itself")
        while self._at < position:
            if not self.read(min(position - self._at, _READ_BYTES)):
                raise EOFError("the file ends too early")
        return self._at

    def drain(self) -> None:
        """Read past the end mark, so that the checksum of the compressed data is verified."""
        end = self._at + _PADDING_BYTES
        while self.read(_READ_BYTES):
            if self._at > end:
                raise ArchiveRejected(
                    "there is much behind its end mark", limit=_PADDING_BYTES, actual=self._at - end
                )


def _read_tar(source: _Forward, rules: MemberRules) -> Iterator[Piece]:
    with tarfile.open(
        fileobj=cast(BinaryIO, source), mode="r:", encoding="utf-8", errors="surrogateescape"
    ) as archive:
        while (info := archive.next()) is not None:
            # otherwise tarfile keeps all headers in memory
            archive.members = []  # type: ignore[attr-defined]  # pyright: ignore
            member = _admit_tar_member(info, rules)
            if member is None:
                continue
            if member.kind != "file":
                yield Piece(member, b"", True)
                continue
            content = archive.extractfile(info)
            if content is None:
                raise ArchiveRejected("it has no content", member=info.name)
            yield from _pieces(member, content)
        if source.last != bytes(tarfile.BLOCKSIZE):
            raise EOFError("it is cut off or damaged: its end mark is missing")
    source.drain()


def _admit_tar_member(info: tarfile.TarInfo, rules: MemberRules) -> Member | None:
    if info.isdir():
        return rules.admit(info.name, "dir", info.mode, 0)
    if info.issym():
        return rules.admit(info.name, "link", info.mode, 0, info.linkname)
    if info.islnk():
        raise ArchiveRejected("hard link not allowed", member=info.name)
    if not info.isreg() or info.issparse():
        raise ArchiveRejected("unsupported kind of member", member=info.name)
    return rules.admit(info.name, "file", info.mode, info.size)


def _read_zip(file: BinaryIO, rules: MemberRules) -> Iterator[Piece]:
    with zipfile.ZipFile(file) as archive:
        admitted = [(info, _admit_zip_member(info, rules)) for info in archive.infolist()]
        for info, member in admitted:
            if member is None:
                continue
            if member.kind != "file":
                yield Piece(member, b"", True)
                continue
            with archive.open(info) as content:
                yield from _pieces(member, content)


def _admit_zip_member(info: zipfile.ZipInfo, rules: MemberRules) -> Member | None:
    name = info.filename
    mode = info.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise ArchiveRejected("symlink not allowed", member=name)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArchiveRejected("unsupported kind of member", member=name)
    if info.flag_bits & 0x1:
        raise ArchiveRejected("it is encrypted", member=name)
    if info.is_dir() or not name:
        return rules.admit(name, "dir", stat.S_IMODE(mode) or 0o755, 0)
    return rules.admit(name, "file", stat.S_IMODE(mode) or 0o644, info.file_size)


def _pieces(member: Member, content: _Readable) -> Iterator[Piece]:
    left = member.size
    while True:
        piece = _read(content, min(left, PART_BYTES))
        left -= len(piece)
        if left and len(piece) < PART_BYTES:
            raise EOFError(f"the content of {member.path!r} is cut off")
        yield Piece(member, piece, not left)
        if not left:
            return


def _read(content: _Readable, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (data := content.read(min(size, _READ_BYTES))):
        pieces.append(data)
        size -= len(data)
    return b"".join(pieces)
