"""A box that is reached through the agent inside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from sandstream_providers.box import streams
from sandstream_providers.box.link import Connect, Link, LinkLost, OnEvent, open_link
from sandstream_providers.interface import (
    BoxGone,
    Entry,
    ExecSpec,
    FileWrite,
    OnOutput,
    Output,
    PortUnavailable,
    ProviderError,
    ResolveRule,
    ScanItem,
)

TRIES = 20
"""How often in a row the connection may break during one request."""
PAUSE_S = 0.05
_CANNOT = "this agent cannot 'first_request'"
NEW_MODES = {"file": 0o644, "dir": 0o755}


class AgentBox:
    """Implements :class:`sandstream_providers.interface.Box`.

    One connection, made when it is needed and again when it is lost. Every request may be asked
    again, because what changes something has an operation id that the agent remembers.
    """

    def __init__(
        self,
        key: str,
        root: str,
        connect: Connect,
        ports: Mapping[int, tuple[str, int]],
        token: str = "",
        *,
        vendor_id: str = "",
        silent_s: float | None = None,
    ) -> None:
        self.key = key
        self.root = root
        self.vendor_id = vendor_id
        self._silent_s = silent_s
        self._connect = connect
        self._token = token
        self._ports = dict(ports)
        self._link: Link | None = None
        self._linking = asyncio.Lock()
        self.closed = False
        self._last_scan = ""
        self._may_run = False

    async def is_working(self) -> bool:
        """Whether a request is under way, or a command runs in the background."""
        if self._link is not None and self._link.is_waiting:
            return True
        if self._may_run:
            self._may_run = await self.sessions() > 0
        return self._may_run

    async def close(self) -> None:
        """Let go of the connection. The box lives on."""
        self.closed = True
        if self._link is not None:
            await self._link.close()
            self._link = None

    # --- commands ---------------------------------------------------------------------------------

    async def run(
        self,
        op: str,
        spec: ExecSpec,
        *,
        wait_s: float | None = None,
        on_output: OnOutput | None = None,
    ) -> Output:
        request = {
            "do": "run",
            "op": op,
            "wait_s": wait_s,
            "spec": {
                "argv": spec.argv,
                "cwd": spec.cwd,
                "env": spec.env,
                "timeout_s": spec.timeout_s,
                "tty": spec.tty,
                "keep_stdin": spec.keep_stdin,
            },
        }
        return await self._watch(request, spec.stdin, on_output)

    async def interact(
        self,
        op: str,
        session: int,
        data: bytes,
        *,
        wait_s: float,
        on_output: OnOutput | None = None,
    ) -> Output:
        request = {"do": "interact", "op": op, "session": session, "wait_s": wait_s}
        return await self._watch(request, data, on_output)

    async def _watch(
        self, request: dict[str, Any], payload: bytes, on_output: OnOutput | None
    ) -> Output:
        collected = streams.Collected(on_output)

        def ask_from_here() -> dict[str, Any]:
            return request | collected.beginning()

        facts, data = await self._ask_again(ask_from_here, payload, collected.take)
        output = collected.output(facts, data)
        self._may_run = self._may_run or output.state == "running"
        return output

    async def first_request(self, op: str, request: str) -> str:
        try:
            first, _ = await self._ask({"do": "first_request", "op": op, "request": request})
        except ProviderError as error:
            if _CANNOT not in str(error):
                raise
            return request  # an agent of an older version does not store requests
        return str(first)

    async def kill(self, op: str) -> None:
        await self._ask({"do": "kill", "op": op})

    async def kill_all(self) -> None:
        await self._ask({"do": "kill_all"})

    async def sessions(self) -> int:
        count, _ = await self._ask({"do": "sessions"})
        return int(count)

    # --- files ------------------------------------------------------------------------------------

    async def read(
        self, path: str, rule: ResolveRule, *, offset: int = 0, limit: int | None = None
    ) -> bytes:
        parts: list[bytes] = []
        more = True
        while more:
            request = {"do": "read", "path": path, "rule": _plain(rule)}
            facts, data = await self._ask(request | {"offset": offset, "limit": limit})
            parts.append(data)
            offset += len(data)
            if limit is not None:
                limit -= len(data)
            more = facts["more"]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def stat(self, path: str, rule: ResolveRule) -> Entry:
        row, _ = await self._ask({"do": "stat", "path": path, "rule": _plain(rule)})
        return streams.entry(row)

    async def list(self, path: str, rule: ResolveRule) -> list[Entry]:
        rows, _ = await self._ask({"do": "list", "path": path, "rule": _plain(rule)})
        return [streams.entry(row) for row in rows]

    async def make_dir(
        self, op: str, path: str, rule: ResolveRule, *, parents: bool = False
    ) -> None:
        await self._change("make_dir", op, rule, path=path, parents=parents)

    async def remove(
        self, op: str, path: str, rule: ResolveRule, *, recursive: bool = False
    ) -> None:
        await self._change("remove", op, rule, path=path, recursive=recursive)

    async def move(self, op: str, source: str, target: str, rule: ResolveRule) -> None:
        await self._change("move", op, rule, path=source, target=target)

    async def change(self, op: str, changes: Sequence[FileWrite], rule: ResolveRule) -> None:
        rows = [
            {
                "path": change.path,
                "kind": change.kind,
                "size": len(change.data) if change.kind == "file" else 0,
                "mode": change.mode,
                "target": change.target,
                "exclusive": change.exclusive,
                "must_exist": change.must_exist,
            }
            for change in changes
        ]
        payload = b"".join(change.data for change in changes if change.kind == "file")
        await self._change("change", op, rule, payload, changes=rows)

    async def fill(self, op: str, entries: Sequence[FileWrite], rule: ResolveRule) -> None:
        rows = [
            [
                it.path,
                it.kind,
                len(it.data),
                NEW_MODES.get(it.kind) if it.mode is None else it.mode,
                it.target,
            ]
            for it in entries
        ]
        payload = b"".join(it.data for it in entries)
        await self._change("fill", op, rule, payload, entries=rows)

    async def append(self, op: str, path: str, data: bytes, rule: ResolveRule, *, at: int) -> None:
        await self._change("append", op, rule, data, path=path, at=at)

    async def _change(
        self, what: str, op: str, rule: ResolveRule, payload: bytes = b"", **more: object
    ) -> None:
        await self._ask({"do": what, "op": op, "rule": _plain(rule), **more}, payload)

    # --- the whole workspace ----------------------------------------------------------------------

    def _scanned(self, token: str) -> None:
        self._last_scan = token

    async def scan(self, exclude: Sequence[str], *, full: bool) -> AsyncIterator[ScanItem]:
        request = {"do": "scan", "exclude": [*exclude], "full": full, "since": self._last_scan}
        async for item in streams.scan_items(self._ask, request, self._scanned):
            yield item

    async def prime(self, entries: Sequence[Entry]) -> None:
        rows = [[e.path, e.size, e.digest] for e in entries if e.kind == "file" and e.digest]
        await self._ask({"do": "prime", "entries": rows})

    async def clear(self, op: str, keep: Sequence[str] = ()) -> None:
        await self._ask({"do": "clear", "op": op, "keep": [*keep]})

    async def port(self, port: int) -> tuple[str, int]:
        if port not in self._ports:
            declared = ", ".join(map(str, sorted(self._ports))) or "none"
            raise PortUnavailable(
                f"port {port} was not declared for this sandbox (declared: {declared})", port=port
            )
        return self._ports[port]

    # --- asking -----------------------------------------------------------------------------------

    async def _ask(
        self, request: dict[str, Any], payload: bytes = b"", on_event: OnEvent | None = None
    ) -> tuple[Any, bytes]:
        return await self._ask_again(lambda: request, payload, on_event)

    async def _ask_again(
        self, request: streams.MakeRequest, payload: bytes, on_event: OnEvent | None
    ) -> tuple[Any, bytes]:
        """Ask until an answer comes, or until no agent listens any more."""
        for _ in range(TRIES):
            link = await self._linked()
            try:
                return await link.ask(request(), payload, on_event)
            except LinkLost:
                await asyncio.sleep(PAUSE_S)
        raise BoxGone(f"the agent of box {self.key} closed {TRIES} connections without an answer")

    async def _linked(self) -> Link:
        link = self._link
        if link is not None and not link.broken:
            return link
        async with self._linking:
            if self.closed:
                raise BoxGone(f"box {self.key} was let go of: get it from its provider again")
            if self._link is None or self._link.broken:
                if self._link is not None:
                    await self._link.close()
                self._link = await open_link(self._connect, self._token, self._silent_s)
            return self._link


def _plain(rule: ResolveRule) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.structs.asdict(rule)
    return plain
