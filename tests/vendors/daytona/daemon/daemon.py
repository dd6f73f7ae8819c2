"""The daemon in a running box: its environment, and what it forgets when the box stops."""

from __future__ import annotations

import asyncio
import posixpath
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from vendors.box_files import PROGRAMS
from vendors.daytona.daemon.sessions import Sessions
from vendors.daytona.daemon.terminals import Terminals
from vendors.daytona.refusals import Refusal
from vendors.daytona.sandbox import Sandbox
from vendors.daytona.settings import Settings
from vendors.machine import Machine, Process

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PATH = f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{PROGRAMS}"
SHELLS = ("/usr/bin/zsh", "/bin/zsh", "/usr/bin/bash", "/bin/bash")


class Daemon:
    """Made at every start of a box, so sessions and terminals do not outlive a stop."""

    def __init__(self, box: Sandbox, machine: Machine, settings: Settings) -> None:
        self.machine = machine
        self.settings = settings
        self.user = box.user
        self.home = box.home
        self.work_dir = box.home
        self.ended = asyncio.Event()
        """Set when the box stops: requests in flight lose their connection to the daemon."""
        self.env = {
            "PATH": PATH,
            "HOME": box.home,
            "USER": box.user,
            "HOSTNAME": box.id,
            "DAYTONA_SANDBOX_ID": box.id,
            "DAYTONA_SANDBOX_USER": box.user,
            "DAYTONA_SANDBOX_SNAPSHOT": box.snapshot or "",
            **box.env,
        }
        shells = Path("/etc/shells").read_text() if Path("/etc/shells").exists() else ""
        listed = [it for it in shells.splitlines() if not it.startswith("#")]
        self.shell = next(
            (shell for shell in SHELLS if shell in listed and shutil.which(shell)), "/bin/sh"
        )
        """The first of zsh, bash and sh that the box has."""
        self.config_dir = f"{box.home}/.daytona"
        machine.path(self.config_dir).mkdir(exist_ok=True)
        self.sessions = Sessions(self)
        self.terminals = Terminals(self)

    async def spawn(
        self,
        argv: list[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int = -1,
        stdout: int = -1,
        stderr: int = -1,
        terminal: tuple[int, int] | None = None,
    ) -> Process:
        """Start a process of the box's user, in a process group of its own.

        Args:
            cwd: relative to the working directory.
            env: in addition to the daemon's environment.
            terminal: rows and columns of a terminal.
        """
        return await self.machine.spawn(
            argv,
            cwd=self.absolute(cwd or "."),
            env={**self.env, **(env or {})},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pty=terminal is not None,
            size=terminal or (24, 80),
            group="own",
            privileged=self.user == "root",
        )

    def absolute(self, path: str) -> str:
        """The path below the working directory; ``~`` has no meaning here."""
        return posixpath.join(self.work_dir, path)

    def update_env(self, set_: Mapping[str, str], unset: list[str], prefix: str | None) -> None:
        """Change the environment of processes that are started from now on."""
        check_env(set_)
        for name in unset:
            self.env.pop(name, None)
        if prefix:
            gone = [name for name, value in self.env.items() if value.startswith(prefix)]
            for name in gone:
                if name not in set_:
                    del self.env[name]
        self.env.update(set_)

    async def close(self) -> None:
        """The box has stopped."""
        await self.sessions.close()
        await self.terminals.close()


def check_env(env: Mapping[str, str]) -> None:
    """Refuse names that no shell can use."""
    for name in env:
        if ENV_NAME.fullmatch(name) is None:
            raise Refusal(400, f"invalid environment variable name: '{name}'")
