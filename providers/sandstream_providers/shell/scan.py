"""The files below the root, with digests, and which of them changed.

The table of what is known lives in this object. A digest is remembered with the file's inode, size
and times, and trusted as long as these stay. A file that was changed just before it was read could
change again without another time; such a digest is taken again the next time.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from sandstream_providers.box.agent import wire
from sandstream_providers.interface import (
    INLINE_BYTES,
    Entry,
    NotFound,
    ScanItem,
    ScanOutdated,
)
from sandstream_providers.shell import file_list, scan_scripts
from sandstream_providers.shell.file_list import Row
from sandstream_providers.shell.paths import STAGE, normal
from sandstream_providers.shell.quotes import assigned
from sandstream_providers.shell.refusals import REFUSED, checked
from sandstream_providers.shell.scripts import Scripts

ROWS_PER_BATCH = 500
BYTES_PER_BATCH = 8 * 1024 * 1024
FINE_TICK_NS = 20_000_000
COARSE_TICK_NS = 2_000_000_000
"""Where ``stat`` shows whole seconds."""
MOST_EXCLUDED = 50_000
"""Bytes of excluded paths that the walk itself leaves out; the rest are left out here."""

Facts = tuple[str, int, str, str, int]
"""Kind, mode, digest, target, time of change: what makes an entry differ."""
Digest = tuple[tuple[int, int, int, int, int], str, bool]
"""The state of the file that was read, its digest, and whether the digest can be trusted."""
_SUM = re.compile(rb"\\?([0-9a-f]{64}) [ *]")


class Scanner:
    """Remembers digests, and the last scan that was received to its end."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._digests: dict[bytes, Digest] = {}
        self._received: dict[bytes, Facts] = {}
        self._known: dict[bytes, str] = {}
        """Digests of contents that the caller has."""
        self._token = ""

    async def scan(self, exclude: Sequence[str], full: bool) -> AsyncIterator[ScanItem]:
        excluded = {normal(path) for path in exclude}
        rows, targets = await self._walk(excluded, full)
        found: dict[bytes, Facts] = {}
        digests: dict[bytes, Digest] = {}
        for batch in self._batches(rows):
            contents = await self._read(batch, digests)
            for row in batch:
                target = targets.get(row.path, b"")
                digest, data = contents.get(row.path, ("", None))
                if row.kind == "file" and not digest:
                    continue  # removed meanwhile
                mtime = row.mtime_ns if row.kind == "file" else 0
                now = (row.kind, row.mode & 0o7777, digest, wire.to_text(target), mtime)
                found[row.path] = now
                if full or self._received.get(row.path) != now:
                    size = len(data) if data is not None else None
                    entry = row.entry(row.path, digest=digest, target=target, size=size)
                    yield ScanItem(entry=entry, data=data)
        if not full:
            for item in self._removed(found):
                yield item
        await self._done(found, digests)

    def _removed(self, found: dict[bytes, Facts]) -> Iterator[ScanItem]:
        for path, facts in self._received.items():
            if path not in found:
                entry = Entry(path=wire.to_text(path), kind=facts[0], mode=facts[1])  # type: ignore[arg-type]
                yield ScanItem(entry=entry, removed=True)

    async def _done(self, found: dict[bytes, Facts], digests: dict[bytes, Digest]) -> None:
        token = os.urandom(8).hex()
        script = self._scripts.basics.script(scan_scripts.DONE, TOKEN=token)
        checked(await self._scripts.run(script), "the record of the scan")
        self._token = token
        self._received = found
        self._digests = digests
        self._known = {path: facts[2] for path, facts in found.items() if facts[0] == "file"}

    async def prime(self, entries: Sequence[Entry]) -> None:
        told = {
            normal(entry.path): entry for entry in entries if entry.kind == "file" and entry.digest
        }
        if not told:
            return
        facts = await self._scripts.facts()
        tick = "0.02" if {"fine_times", "short_sleep"} <= facts.has else "2"
        said = await self._ask(scan_scripts.FACTS, _names(told), TICK=tick)
        for row in file_list.rows(said):
            entry = told[row.path]
            if row.kind == "file" and row.size == entry.size:
                self._digests[row.path] = (row.signature(), entry.digest, True)
                self._known[row.path] = entry.digest

    # --- looking ----------------------------------------------------------------------------------

    async def _walk(self, excluded: set[bytes], full: bool) -> tuple[list[Row], dict[bytes, bytes]]:
        facts = await self._scripts.facts()
        script = self._scripts.basics.script(
            file_list.LINKS,
            _pruning(excluded),
            scan_scripts.WALK,
            ROOT=facts.root,
            FORMAT=file_list.FORMAT,
            FULL="1" if full else "",
            SINCE=self._token,
        )
        answer = await self._scripts.run(script, timeout_s=300)
        if answer.code == REFUSED:
            raise ScanOutdated("another scan came between: ask for everything")
        said, _, links = checked(answer, "the workspace").partition(b"\0")
        rows = [row for row in file_list.rows(said) if not _is_excluded(row.path, excluded)]
        rows.sort(key=lambda row: row.path)
        return rows, file_list.targets(links)

    def _batches(self, rows: list[Row]) -> Iterator[list[Row]]:
        batch: list[Row] = []
        size = 0
        for row in rows:
            inline = row.size if row.kind == "file" and row.size <= INLINE_BYTES else 0
            if batch and (len(batch) >= ROWS_PER_BATCH or size + inline > BYTES_PER_BATCH):
                yield batch
                batch, size = [], 0
            batch.append(row)
            size += inline
        if batch:
            yield batch

    async def _read(
        self, batch: list[Row], digests: dict[bytes, Digest]
    ) -> dict[bytes, tuple[str, bytes | None]]:
        """Of the files of a batch: the digest, and the content if it is new and small."""
        found: dict[bytes, tuple[str, bytes | None]] = {}
        changed: list[Row] = []
        closed: list[Row] = []
        for row in batch:
            if row.kind != "file":
                continue
            before = self._digests.get(row.path)
            known = self._known.get(row.path)
            if before is not None and before[2] and before[:2] == (row.signature(), known):
                digests[row.path] = before
                found[row.path] = (before[1], None)
            else:
                (changed if row.mode & 0o400 else closed).append(row)
        after = await self._hash(changed, digests) if changed else {}
        new = [
            row
            for path, row in after.items()
            if digests[path][1] != self._known.get(path) and row.size <= INLINE_BYTES
        ]
        contents = await self._contents(new, digests) if new else {}
        for row in changed:
            if row.path in after:
                found[row.path] = (digests[row.path][1], contents.get(row.path))
        for row in closed + [row for row in new if row.path not in contents]:
            await self._one(row, digests, found)
        return found

    async def _hash(self, changed: list[Row], digests: dict[bytes, Digest]) -> dict[bytes, Row]:
        """How the files stood after they were read; their digests are noted."""
        facts = await self._scripts.facts()
        tick = FINE_TICK_NS if "fine_times" in facts.has else COARSE_TICK_NS
        names = [row.path for row in changed]
        said = await self._ask(scan_scripts.DIGESTS, _names(names))
        sums, _, stats = said.partition(b"\0")
        clock, _, sums = sums.partition(b"//\n")
        started = next(file_list.rows(clock + b"//\n")).ctime_ns
        hashed = dict(_sums(sums, names))
        before = {row.path: row.signature() for row in changed}
        after = {}
        for row in file_list.rows(stats):
            if row.path in hashed:
                still = row.signature() == before[row.path]
                trusted = still and max(row.ctime_ns, row.mtime_ns) < started - tick
                digests[row.path] = (before[row.path], hashed[row.path], trusted)
                after[row.path] = row
        return after

    async def _contents(self, rows: list[Row], digests: dict[bytes, Digest]) -> dict[bytes, bytes]:
        """Only those that have the digest which was just taken."""
        said = await self._ask(scan_scripts.CONTENTS, _names([row.path for row in rows]))
        found = {}
        start = 0
        for row in rows:
            data = said[start : start + row.size]
            start += row.size
            if hashlib.sha256(data).hexdigest() == digests[row.path][1]:
                found[row.path] = data
        return found

    async def _one(
        self,
        row: Row,
        digests: dict[bytes, Digest],
        found: dict[bytes, tuple[str, bytes | None]],
    ) -> None:
        """A file that changes all the time, or that cannot be read."""
        try:
            said = await self._ask(scan_scripts.ONE, b"", P=b"./" + row.path, MOST=INLINE_BYTES + 1)
        except NotFound:
            found.pop(row.path, None)
            return
        head, _, data = said.partition(b"\n")
        digest = head[:64].decode("ascii")
        content = data if len(data) <= INLINE_BYTES else None
        if content is not None:
            digest = hashlib.sha256(content).hexdigest()
        digests[row.path] = (row.signature(), digest, False)
        if digest == self._known.get(row.path):
            content = None
        found[row.path] = (digest, content)

    async def _ask(self, script: str, data: bytes, **values: str | bytes | int) -> bytes:
        facts = await self._scripts.facts()
        whole = self._scripts.basics.script(
            script, ROOT=facts.root, FORMAT=file_list.FORMAT, **values
        )
        return checked(await self._scripts.run(whole, data, timeout_s=300), "the workspace")


def _names(paths: Iterable[bytes]) -> bytes:
    return b"".join(b"./" + path + b"\0" for path in paths)


def _sums(said: bytes, names: list[bytes]) -> Iterator[tuple[bytes, str]]:
    """Digests by path. Some programs escape odd names, so rows are told apart by order."""
    start = 0
    for name in names:
        match = _SUM.match(said, start)
        if match is None:
            return
        raw = b"./" + name
        shown = raw
        if said[start : start + 1] == b"\\":
            shown = raw.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        if said.startswith(shown + b"\n", match.end()):
            yield name, match[1].decode("ascii")
            start = match.end() + len(shown) + 1


def _is_excluded(path: bytes, excluded: set[bytes]) -> bool:
    parts = path.split(b"/")
    if STAGE.encode() in parts:
        return True
    return bool(excluded) and any(
        b"/".join(parts[:count]) in excluded for count in range(1, len(parts) + 1)
    )


def _pruning(excluded: set[bytes]) -> str:
    """Positional parameters for ``find``: what is not to be looked at."""
    lines = [f"set -- -name {STAGE}\n"]
    if sum(map(len, excluded)) <= MOST_EXCLUDED:
        for path in sorted(excluded):
            pattern = re.sub(rb"([\\*?\[])", rb"\\\1", path)
            lines += [assigned("pattern", b"./" + pattern), 'set -- "$@" -o -path "$pattern"\n']
    return "".join(lines)
