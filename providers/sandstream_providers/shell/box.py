"""A box that is operated by scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from sandstream_providers.shell.channel import Shell, ShellSettings


class ShellBox:
    """Implements :class:`sandstream_providers.interface.Box`."""

    def __init__(
        self,
        key: str,
        root: str,
        open_shell: Callable[[], Awaitable[Shell]],
        settings: ShellSettings,
        ports: Mapping[int, tuple[str, int]],
    ) -> None:
        self.key = key
        self.root = root
        self.closed = False
