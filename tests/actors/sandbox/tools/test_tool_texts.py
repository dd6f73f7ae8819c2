"""The parts of the shell tools that need no box."""

from __future__ import annotations

import msgspec
import pytest
from sandstream_actors.sandbox.tools.arguments import BadArguments, parse_arguments
from sandstream_actors.sandbox.tools.shell_tool import (
    ExecArguments,
    StdinArguments,
    chunk_id,
    clamped_yield_ms,
    command_in,
    output_text,
    poll_yield_ms,
    result_text,
    shell_of,
)
from sandstream_providers.interface import Output


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", ""),
        ("null", ""),
        ('{"cmd": ', ""),
        ("{}", " for cmd"),
        ('{"cmd": ""}', " for cmd"),
        ('{"cmd": 3, "zzz": 1}', " for cmd"),
        (
            '{"max_output_tokens": 0, "yield_time_ms": -1, "tty": "x", "workdir": 1}',
            " for cmd, workdir, tty, yield_time_ms, max_output_tokens",
        ),
        ('{"cmd": "x", "yield_time_ms": 1.5}', " for yield_time_ms"),
        ('{"cmd": "x", "login": null}', " for login"),
    ],
)
def test_wrong_arguments_are_named_in_the_order_of_the_schema(text: str, fields: str) -> None:
    with pytest.raises(BadArguments) as caught:
        parse_arguments(text, ExecArguments)
    expected = f"Invalid tool arguments{fields}. Check the tool schema and try again."
    assert str(caught.value) == expected


def test_what_is_meant_is_taken() -> None:
    text = '{"session_id": "1234", "yield_time_ms": 10.0, "max_output_tokens": null, "more": 1}'
    asked = parse_arguments(text, StdinArguments)
    assert msgspec.to_builtins(asked) == {
        "session_id": 1234,
        "chars": "",
        "yield_time_ms": 10,
        "max_output_tokens": None,
    }


@pytest.mark.parametrize(
    ("asked", "argv"),
    [
        (ExecArguments(cmd="x"), ["sh", "-c"]),
        (ExecArguments(cmd="x", login=False), ["sh", "-c"]),
        (ExecArguments(cmd="x", shell="zsh"), ["zsh", "-lc"]),
        (ExecArguments(cmd="x", shell="zsh", login=False), ["zsh", "-c"]),
    ],
)
def test_shells(asked: ExecArguments, argv: list[str]) -> None:
    assert shell_of(asked) == argv


def test_a_directory_is_entered_first_and_quoted() -> None:
    assert command_in(None, "make") == "make"
    assert command_in("/w/it's", "make &") == "cd '/w/it'\"'\"'s' || exit\nmake &"


@pytest.mark.parametrize(
    ("given", "exec_ms", "write_ms", "poll_ms"),
    [
        (0, 250, 250, 5000),
        (250, 250, 250, 5000),
        (9999, 9999, 9999, 9999),
        (30_000, 30_000, 30_000, 30_000),
        (10**9, 30_000, 30_000, 30_000),
    ],
)
def test_waiting_times_are_clamped(given: int, exec_ms: int, write_ms: int, poll_ms: int) -> None:
    assert clamped_yield_ms(given) == exec_ms
    assert poll_yield_ms(given, is_poll=False) == write_ms
    assert poll_yield_ms(given, is_poll=True) == poll_ms


def test_result_text() -> None:
    assert result_text(chunk="abc123", wall_s=1.23456, output="hi\n", exit_code=0) == (
        "Chunk ID: abc123\nWall time: 1.2346 seconds\nProcess exited with code 0\nOutput:\nhi\n"
    )
    running = result_text(chunk="abc123", wall_s=0, output="", session=1000, original_tokens=7)
    assert running == (
        "Chunk ID: abc123\nWall time: 0.0000 seconds\nProcess running with session ID 1000\n"
        "Original token count: 7\nOutput:\n"
    )
    assert chunk_id("op-1") == chunk_id("op-1") != chunk_id("op-2")


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (Output(state="exited", session=1, stdout=b"a\n", stderr=b"b\n"), "a\nb\n"),
        (Output(state="exited", session=1, stdout=b"a", stderr=b"b"), "a\nb"),
        (Output(state="exited", session=1, stderr=b"b"), "b"),
        (
            Output(state="exited", session=1, stdout=b"a", dropped=9),
            "a\n[9 bytes in the middle of the output were not kept]",
        ),
        (
            Output(state="exited", session=1, exit_code=137, killed="memory"),
            "[the command was ended: it needed more memory than this sandbox has]",
        ),
        (
            Output(state="exited", session=1, exit_code=137, killed="timeout"),
            "[the command was ended: it ran longer than this sandbox allows]",
        ),
        (
            Output(state="lost", session=1, stdout=b"a\n"),
            "a\n[the sandbox was lost while the command ran: whether it finished is unknown]",
        ),
    ],
)
def test_what_the_model_cannot_see_is_said(output: Output, text: str) -> None:
    assert output_text(output) == text
