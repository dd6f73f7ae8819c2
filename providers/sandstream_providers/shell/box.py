"""A box that is operated by scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from sandstream_providers.interface import (
    Entry,
    ExecSpec,
    FileWrite,
    OnOutput,
    Output,
    PortUnavailable,
    ResolveRule,
    ScanItem,
)
from sandstream_providers.shell.basics import Basics
from sandstream_providers.shell.changes import Changes
from sandstream_providers.shell.channel import Shell, ShellSettings
from sandstream_providers.shell.commands import Commands
from sandstream_providers.shell.effects import Effects
from sandstream_providers.shell.files import Files
from sandstream_providers.shell.scan import Scanner
from sandstream_providers.shell.scripts import Scripts


class ShellBox:
    """Implements :class:`sandstream_providers.interface.Box`."""

    def __init__(
        self,
        key: str,
        root: str,
        open_shell: Callable[[], Awaitable[Shell]],
        settings: ShellSettings,
        ports: Mapping[int, tuple[str, int]],
        *,
        vendor_id: str = "",
    ) -> None:
        self.key = key
        self.root = root
        self.vendor_id = vendor_id
        self._may_run = False
        self._ports = dict(ports)
        self._scripts = Scripts(key, open_shell, Basics(key, root, settings))
        self._commands = Commands(self._scripts, settings)
        self._effects = Effects(self._scripts)
        self._files = Files(root, self._scripts, self._effects)
        self._changes = Changes(root, self._scripts, self._effects)
        self._scanner = Scanner(self._scripts)

    @property
    def closed(self) -> bool:
        return self._scripts.closed

    async def is_working(self) -> bool:
        """Whether a script is under way, or a command runs in the background."""
        if self._scripts.is_running:
            return True
        if self._may_run:
            self._may_run = await self.sessions() > 0
        return self._may_run

    def _noted(self, output: Output) -> Output:
        self._may_run = self._may_run or output.state == "running"
        return output

    async def close(self) -> None:
        """Let go of the connections. The box lives on."""
        await self._scripts.close()

    # --- commands ---------------------------------------------------------------------------------

    async def run(
        self,
        op: str,
        spec: ExecSpec,
        *,
        wait_s: float | None = None,
        on_output: OnOutput | None = None,
    ) -> Output:
        return self._noted(await self._commands.run(op, spec, wait_s, on_output))

    async def interact(
        self,
        op: str,
        session: int,
        data: bytes,
        *,
        wait_s: float,
        on_output: OnOutput | None = None,
    ) -> Output:
        return self._noted(await self._commands.interact(op, session, data, wait_s, on_output))

    async def first_request(self, op: str, request: str) -> str:
        return await self._commands.first_request(op, request)

    async def kill(self, op: str) -> None:
        await self._commands.kill(op)

    async def kill_all(self) -> None:
        await self._commands.kill_all()

    async def sessions(self) -> int:
        return await self._commands.sessions()

    # --- files ------------------------------------------------------------------------------------

    async def read(
        self, path: str, rule: ResolveRule, *, offset: int = 0, limit: int | None = None
    ) -> bytes:
        return await self._files.read(path, rule, offset, limit)

    async def stat(self, path: str, rule: ResolveRule) -> Entry:
        return await self._files.stat(path, rule)

    async def list(self, path: str, rule: ResolveRule) -> list[Entry]:
        return await self._files.list(path, rule)

    async def make_dir(
        self, op: str, path: str, rule: ResolveRule, *, parents: bool = False
    ) -> None:
        await self._files.make_dir(op, path, rule, parents)

    async def remove(
        self, op: str, path: str, rule: ResolveRule, *, recursive: bool = False
    ) -> None:
        await self._files.remove(op, path, rule, recursive)

    async def move(self, op: str, source: str, target: str, rule: ResolveRule) -> None:
        await self._files.move(op, source, target, rule)

    async def change(self, op: str, changes: Sequence[FileWrite], rule: ResolveRule) -> None:
        await self._changes.change(op, changes, rule)

    async def fill(self, op: str, entries: Sequence[FileWrite], rule: ResolveRule) -> None:
        await self._changes.fill(op, entries, rule)

    async def append(self, op: str, path: str, data: bytes, rule: ResolveRule, *, at: int) -> None:
        await self._files.append(op, path, data, rule, at)

    # --- the whole workspace ----------------------------------------------------------------------

    async def scan(self, exclude: Sequence[str], *, full: bool) -> AsyncIterator[ScanItem]:
        await self._effects.recover()
        async for item in self._scanner.scan(exclude, full):
            yield item

    async def prime(self, entries: Sequence[Entry]) -> None:
        await self._scanner.prime(entries)

    async def clear(self, op: str, keep: Sequence[str] = ()) -> None:
        await self._files.clear(op, [*keep])

    async def port(self, port: int) -> tuple[str, int]:
        if port not in self._ports:
            declared = ", ".join(map(str, sorted(self._ports))) or "none"
            raise PortUnavailable(
                f"port {port} was not declared for this sandbox (declared: {declared})", port=port
            )
        return self._ports[port]
