"""Slash commands: names, arguments, completions."""

from __future__ import annotations

import pytest

from sandstream.tui.conversation.actions import Actions
from sandstream.tui.conversation.slash import (
    COMMANDS,
    ForkArguments,
    SlashError,
    completions,
    fork_arguments,
    parse,
)


def test_arguments_are_passed_on_as_they_were_typed() -> None:
    command, rest = parse("/title  A better  name ")
    assert (command.name, rest) == ("title", "A better  name")


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("/swich docker", "did you mean /switch"),
        ("/zzz", "there is no command /zzz"),
        ("/", "there is no command /"),
        ("/title", "usage: /title NAME"),
        ("/pause now", "takes no argument"),
    ],
)
def test_what_cannot_be_understood_is_explained(typed: str, told: str) -> None:
    with pytest.raises(SlashError, match=told):
        parse(typed)


def test_a_beginning_is_completed_until_an_argument_begins() -> None:
    assert [it.name for it in completions("/pa", is_session=True)] == ["pause"]
    assert completions("/title x", is_session=True) == []
    assert "fork" not in [it.name for it in completions("/", is_session=False)]


def test_fork_has_flags() -> None:
    assert fork_arguments("With tests --turn 2 --provider docker") == ForkArguments(
        "With tests", 2, "docker"
    )
    assert fork_arguments("") == ForkArguments("", None, None)
    for wrong in ("--turn", "--turn x", "--provider", "--colour red"):
        with pytest.raises(SlashError):
            fork_arguments(wrong)


def test_every_command_is_done() -> None:
    class Screen:
        async def find(self, wanted: str) -> None: ...

    done = Actions(Screen())._do  # type: ignore[arg-type]
    assert sorted(done) == sorted(it.name for it in COMMANDS)
