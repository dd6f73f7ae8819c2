"""``POST /process/execute``: one command, its merged output and its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os

from aiohttp import web
from vendors.daytona import checks
from vendors.daytona.daemon import pipes
from vendors.daytona.daemon.daemon import Daemon, check_env
from vendors.daytona.daemon.kills import signal_group
from vendors.daytona.refusals import Refusal
from vendors.machine import SpawnFailed
from vendors.server import Vendor


async def execute(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """Run a command to its end, however long it takes unless a timeout is given."""
    asked = await checks.body(
        request,
        vendor,
        {"command": "string", "cwd": "string", "envs": "texts", "timeout": "integer"},
        required=("command",),
    )
    if not asked["command"].strip():
        raise Refusal(400, "command cannot be empty or whitespace-only")
    check_env(asked.get("envs", {}))
    try:
        code, output = await run(
            daemon,
            asked["command"],
            cwd=asked.get("cwd"),
            env=asked.get("envs", {}),
            timeout_s=asked.get("timeout"),
        )
    except SpawnFailed as failed:
        operation = "chdir" if failed.stage == "cwd" else "fork/exec"
        reason = f"{operation} {failed.filename}: {str(failed.strerror).lower()}"
        return web.json_response({"exitCode": -1, "result": reason})
    return web.json_response({"exitCode": code, "result": pipes.text(output)})


async def run(
    daemon: Daemon, command: str, *, cwd: str | None, env: dict[str, str], timeout_s: int | None
) -> tuple[int, bytes]:
    """The shell reads the command from its input, so a program that reads its input eats the rest
    of the script. The end is the end of the last process that holds the output.

    Raises:
        Refusal: the time is over (408); the output so far is lost.
    """
    source, command_end = os.pipe()
    output_end, target = os.pipe()
    try:
        process = await daemon.spawn(
            [daemon.shell], cwd=cwd, env=env, stdin=source, stdout=target, stderr=target
        )
    except BaseException:
        os.close(command_end)
        os.close(output_end)
        raise
    finally:
        os.close(source)
        os.close(target)
    stream, transport = await pipes.reader(output_end)
    feeding = asyncio.create_task(_feed(command_end, command.encode()))
    expired = asyncio.Event()
    timer = asyncio.create_task(_kill_after(timeout_s, daemon, process.pid, expired))
    try:
        output = await pipes.read_all(stream)
        code = await process.wait()
        if expired.is_set():
            raise Refusal(408, "command execution timeout", "PROCESS_EXECUTION_TIMEOUT")
        return pipes.exit_status(code), output
    finally:
        feeding.cancel()
        timer.cancel()
        transport.close()


async def _feed(fd: int, command: bytes) -> None:
    writer = await pipes.writer(fd)
    try:
        with contextlib.suppress(ConnectionError):  # the shell ended before it read everything
            writer.write(command)
            await writer.drain()
    finally:
        writer.close()


async def _kill_after(
    timeout_s: int | None, daemon: Daemon, leader: int, expired: asyncio.Event
) -> None:
    if timeout_s is not None and timeout_s > 0:
        await asyncio.sleep(timeout_s)
        expired.set()
        await signal_group(daemon, leader, "KILL")
