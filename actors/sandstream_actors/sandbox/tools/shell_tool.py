"""``exec_command`` and ``write_stdin``: commands in the box, and the model's view of them.

A command that exceeds its time continues to run, and gets a number by which the model finds it
again. Nothing here decides when a command ends.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Mapping
from typing import Annotated

import msgspec
from sandstream_providers.interface import (
    Box,
    CannotExecute,
    ExecSpec,
    NoSuchSession,
    NotFound,
    OnOutput,
    Output,
    PathEscapes,
    ResolveRule,
    StdinClosed,
    WrongKind,
)

from sandstream_actors.sandbox.tools import paths
from sandstream_actors.sandbox.tools.arguments import BadArguments, parse_arguments
from sandstream_actors.sandbox.tools.truncation import shorten

YIELD_MS_MIN = 250
YIELD_MS_MAX = 30_000
POLL_MS_MIN = 5_000
MAX_TEXT_TOKENS = 250_000
"""More than any model can read: without a limit one command could fill the run's log."""

INVALID_WORKDIR = "Invalid workdir. Use a path within the workspace or an explicitly granted path."
STDIN_CLOSED = (
    "stdin is not available for this process. "
    "Start the command with `tty=true` in `exec_command` before using `write_stdin`."
)

_Milliseconds = Annotated[int, msgspec.Meta(ge=0)]
_Tokens = Annotated[int, msgspec.Meta(ge=1)]


class ExecArguments(msgspec.Struct, frozen=True, kw_only=True):
    cmd: Annotated[str, msgspec.Meta(min_length=1)]
    workdir: str | None = None
    shell: str | None = None
    login: bool = True
    tty: bool = False
    yield_time_ms: _Milliseconds = 10_000
    max_output_tokens: _Tokens | None = None


class StdinArguments(msgspec.Struct, frozen=True, kw_only=True):
    session_id: int
    chars: str = ""
    yield_time_ms: _Milliseconds = 250
    max_output_tokens: _Tokens | None = None


class ToolText(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command tool."""

    text: str
    """For the model."""
    full: bytes | None = None
    """The whole output, if the text has only a part of it."""
    exit_code: int | None = None
    session: int | None = None
    """Of a command that is still running."""
    error: str | None = None
    """A code, if there was no command to run or to write to."""


async def exec_command(
    box: Box,
    rule: ResolveRule,
    root: str,
    cwd: str,
    env: Mapping[str, str],
    arguments: str,
    *,
    op: str,
    on_output: OnOutput | None = None,
) -> ToolText:
    """Start a command; wait for its end, or as long as the model requested."""
    try:
        asked = parse_arguments(arguments, ExecArguments)
        _check_no_nul(cmd=asked.cmd, workdir=asked.workdir, shell=asked.shell)
    except BadArguments as error:
        return ToolText(text=str(error), error="invalid_arguments")
    try:
        workdir = await _workdir(box, rule, root, cwd, asked.workdir)
    except (paths.PathNotAllowed, PathEscapes):
        return ToolText(text=INVALID_WORKDIR, error="invalid_manifest_path")
    spec = ExecSpec(
        argv=argv_of(asked, workdir),
        cwd=root,
        env=dict(env),
        tty=asked.tty,
        keep_stdin=asked.tty,
    )
    wait_s = clamped_yield_ms(asked.yield_time_ms) / 1000
    started = time.perf_counter()
    try:
        output = await box.run(op, spec, wait_s=wait_s, on_output=on_output)
    except CannotExecute as error:
        return _failure(op, started, str(error), exit_code=127, error=error.code)
    return _report(op, started, output, asked.max_output_tokens)


async def write_stdin(
    box: Box, arguments: str, *, op: str, on_output: OnOutput | None = None
) -> ToolText:
    """Write to a running command, or just check it."""
    try:
        asked = parse_arguments(arguments, StdinArguments)
    except BadArguments as error:
        return ToolText(text=str(error), error="invalid_arguments")
    wait_s = poll_yield_ms(asked.yield_time_ms, is_poll=not asked.chars) / 1000
    started = time.perf_counter()
    try:
        output = await box.interact(
            op, asked.session_id, asked.chars.encode(), wait_s=wait_s, on_output=on_output
        )
    except NoSuchSession:
        text = f"write_stdin failed: PTY session not found: {asked.session_id}"
        return _failure(op, started, text, exit_code=1, error="pty_session_not_found")
    except StdinClosed as error:
        return _failure(op, started, STDIN_CLOSED, exit_code=1, error=error.code)
    return _report(op, started, output, asked.max_output_tokens)


# --- commands -------------------------------------------------------------------------------------


def shell_of(asked: ExecArguments) -> list[str]:
    """The shell for the command. A login shell must be requested by name: the provider sets the
    environment of the box, and profile files of the image would override it.
    """
    if asked.shell is None:
        return ["sh", "-c"]
    return [asked.shell, "-lc" if asked.login else "-c"]


def argv_of(asked: ExecArguments, workdir: str | None) -> list[str]:
    """The shell with its command, both streams in one, so that their order is kept."""
    argv = [*shell_of(asked), command_in(workdir, asked.cmd)]
    return argv if asked.tty else ["sh", "-c", 'exec "$@" 2>&1', "sh", *argv]


def command_in(workdir: str | None, command: str) -> str:
    """The command in a directory. If that cannot be entered, nothing of the command may run."""
    if workdir is None:
        return command
    return f"cd {shlex.quote(workdir)} || exit\n{command}"


def clamped_yield_ms(yield_time_ms: int) -> int:
    return max(YIELD_MS_MIN, min(YIELD_MS_MAX, yield_time_ms))


def poll_yield_ms(yield_time_ms: int, *, is_poll: bool) -> int:
    """A poll waits longer, so that a model does not spend its turns on polling."""
    clamped = clamped_yield_ms(yield_time_ms)
    return max(clamped, POLL_MS_MIN) if is_poll else clamped


async def _workdir(
    box: Box, rule: ResolveRule, root: str, cwd: str, workdir: str | None
) -> str | None:
    """The directory to enter first; None: the command starts in the root anyway."""
    if workdir is None or not workdir.strip():
        if paths.is_root(cwd, root):
            return None
        workdir = "."
    absolute = paths.in_workspace_or_grant(workdir, root, cwd, rule)
    try:
        return (await box.stat(absolute, rule)).path
    except (NotFound, WrongKind):
        return absolute  # the shell reports the error


def _check_no_nul(**texts: str | None) -> None:
    wrong = [name for name, text in texts.items() if text is not None and "\0" in text]
    if wrong:
        raise BadArguments(wrong)


# --- answers --------------------------------------------------------------------------------------


def _report(op: str, started: float, output: Output, max_tokens: int | None) -> ToolText:
    whole = output_text(output)
    text, tokens = shorten(whole, min(max_tokens or MAX_TEXT_TOKENS, MAX_TEXT_TOKENS))
    session = output.session if output.state == "running" else None
    return ToolText(
        text=result_text(
            chunk=chunk_id(op),
            wall_s=time.perf_counter() - started,
            exit_code=output.exit_code,
            session=session,
            original_tokens=tokens,
            output=text,
        ),
        full=None if tokens is None else whole.encode(),
        exit_code=output.exit_code,
        session=session,
        error="box_gone" if output.state == "lost" else None,
    )


def _failure(op: str, started: float, text: str, *, exit_code: int, error: str) -> ToolText:
    return ToolText(
        text=result_text(
            chunk=chunk_id(op),
            wall_s=time.perf_counter() - started,
            exit_code=exit_code,
            output=text,
        ),
        exit_code=exit_code,
        error=error,
    )


def output_text(output: Output) -> str:
    """Both streams, errors last, and facts that the model cannot see from them."""
    parts = [
        output.stdout.decode(errors="replace"),
        output.stderr.decode(errors="replace"),
        *_remarks(output),
    ]
    text = ""
    for part in parts:
        if text and part and not text.endswith("\n"):
            text += "\n"
        text += part
    return text


def _remarks(output: Output) -> list[str]:
    remarks = []
    if output.dropped:
        remarks.append(f"[{output.dropped} bytes in the middle of the output were not kept]")
    if output.killed == "timeout":
        remarks.append("[the command was ended: it ran longer than this sandbox allows]")
    elif output.killed == "memory":
        remarks.append("[the command was ended: it needed more memory than this sandbox has]")
    elif output.killed == "cancelled":
        remarks.append("[the command was cancelled]")
    if output.state == "lost":
        remarks.append(
            "[the sandbox was lost while the command ran: whether it finished is unknown]"
        )
    return remarks


def chunk_id(op: str) -> str:
    """Names this answer. The same operation gives the same answer."""
    return hashlib.sha256(op.encode()).hexdigest()[:6]


def result_text(
    *,
    chunk: str,
    wall_s: float,
    output: str,
    exit_code: int | None = None,
    session: int | None = None,
    original_tokens: int | None = None,
) -> str:
    lines = [f"Chunk ID: {chunk}", f"Wall time: {wall_s:.4f} seconds"]
    if exit_code is not None:
        lines.append(f"Process exited with code {exit_code}")
    if session is not None:
        lines.append(f"Process running with session ID {session}")
    if original_tokens is not None:
        lines.append(f"Original token count: {original_tokens}")
    return "\n".join([*lines, "Output:", output])
