"""``sandstream sandboxes exec``: a command in a sandbox, with its output as it comes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import BinaryIO

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.sandboxes import (
    Close,
    Exec,
    Executed,
    LiveOutput,
    SandboxAction,
    SandboxReply,
    SandboxRequest,
)

from sandstream._inspect.live_output import heard
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.sandbox_choice import FoundSandbox, sandbox_named
from sandstream.cli.sandbox_link import reached
from sandstream.cli.session import connected, put_json, say
from sandstream.sandbox.errors import error_from_failure


class Ran(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``--json`` prints."""

    sandbox: str
    exit_code: int | None
    stdout: str
    stderr: str
    killed: str = ""
    dropped: int = 0
    """Bytes in the middle of an overlong output that were not kept."""


async def execute(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        found = await sandbox_named(client, arguments.id)
        if found.record.state == "deleted":
            raise CliError(Exit.NOT_FOUND, f"sandbox {found.id} was deleted")
        is_open = found.record.is_live and not found.record.is_kept
        async with reached(client.bus, found.record) as node:
            action = Exec(
                argv=arguments.argv, cwd=arguments.cwd, timeout_s=arguments.timeout, wait_s=None
            )
            try:
                outcome = await _run(client.bus, found, node, action, as_json=arguments.json)
            except asyncio.CancelledError:
                if is_open:
                    say("interrupted; the command keeps running (--timeout would end it)")
                raise
            finally:
                if not is_open:  # leave it as it was found
                    close = Close(checkpoint=True)
                    await _asked(client.bus, found, node, SandboxRequest(op=new_op(), action=close))
    if outcome.state == "lost":
        raise CliError(
            Exit.FAILED, "the sandbox was lost while the command ran; its outcome is unknown"
        )
    if arguments.json:
        put_json(
            Ran(
                sandbox=found.id,
                exit_code=outcome.exit_code,
                stdout=outcome.stdout.decode("utf-8", "replace"),
                stderr=outcome.stderr.decode("utf-8", "replace"),
                killed=outcome.killed,
                dropped=outcome.dropped,
            )
        )
    if outcome.killed:
        say(f"sandstream: the command was killed ({outcome.killed})")
    return outcome.exit_code if outcome.exit_code is not None else Exit.FAILED


async def _run(
    bus: Bus, found: FoundSandbox, node: str, action: SandboxAction, *, as_json: bool
) -> Executed:
    request = SandboxRequest(op=new_op(), action=action)
    printer = _Printer(request.op, as_json)
    async with heard(bus, found.id, printer.take):
        reply = await _asked(bus, found, node, request)
    outcome = msgspec.json.decode(reply.result, type=Executed)
    printer.finish(outcome)
    return outcome


async def _asked(bus: Bus, found: FoundSandbox, node: str, request: SandboxRequest) -> SandboxReply:
    provider = found.record.provider
    reply = await bus.sandboxes.request(found.id, request, provider=provider, node=node)
    if reply.error is not None:
        raise error_from_failure(reply.error)
    return reply


class _Printer:
    """Writes output as it comes, each byte once; what was not heard live is in the outcome."""

    def __init__(self, op: str, as_json: bool) -> None:
        self._op = op
        self._as_json = as_json
        self._written = {"stdout": 0, "stderr": 0}

    def take(self, piece: LiveOutput) -> None:
        if piece.call != self._op:
            return  # output of another command
        if piece.offset == self._written[piece.stream]:  # after a gap the outcome has the rest
            self._write(piece.stream, piece.data)

    def finish(self, outcome: Executed) -> None:
        if outcome.dropped:
            lost = numbered(outcome.dropped, "byte", "bytes")
            say(f"sandstream: not kept: {lost} in the middle of the output")
        for stream, data in (("stdout", outcome.stdout), ("stderr", outcome.stderr)):
            self._write(stream, data[self._written[stream] :])

    def _write(self, stream: str, data: bytes) -> None:
        self._written[stream] += len(data)
        if not self._as_json and data:
            target: BinaryIO = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
            target.write(data)
            target.flush()
