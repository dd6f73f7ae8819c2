"""The slash commands: their names, arguments and purposes. Pure; ``actions.py`` does them."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A slash command."""

    name: str
    arguments: str
    """As people read them; in brackets what may be left out."""
    does: str
    for_runs: bool = False
    """Whether a single run has it, too."""

    @property
    def usage(self) -> str:
        """The command with its arguments."""
        return f"/{self.name} {self.arguments}".strip()

    @property
    def needs_argument(self) -> bool:
        """Whether it cannot do without its first argument."""
        return bool(self.arguments) and not self.arguments.startswith("[")


COMMANDS: tuple[Command, ...] = (
    Command("title", "NAME", "rename the session"),
    Command("fork", "[TITLE] [--turn N] [--provider P]", "fork the session and open the fork"),
    Command("rewind", "[TURN]", "restore conversation and files as they were after a turn"),
    Command("switch", "PROVIDER", "move the workspace to another provider"),
    Command("pause", "", "take no more turns, and put the workspace to sleep"),
    Command("wake", "", "continue, and open the workspace"),
    Command("queue", "", "edit or remove waiting messages"),
    Command("cancel", "", "interrupt the turn, or cancel the run", True),
    Command("approve", "[always]", "allow the call that waits", True),
    Command("reject", "[REASON]", "reject the call that waits", True),
    Command("diff", "[TURN]", "show the files that the last turn, or that turn, changed"),
    Command("files", "[TEXT]", "list the files of the workspace", True),
    Command("ports", "PORT", "show where a port of the sandbox can be reached", True),
    Command("run", "COMMAND", "run a command in the sandbox, as !COMMAND does", True),
    Command("terminal", "", "open a terminal in the sandbox", True),
    Command("cost", "", "show the tokens of each turn"),
    Command("status", "", "show everything that is known of the session", True),
    Command("idle", "SECONDS|never", "set when the workspace falls asleep"),
    Command("take", "all|one", "set whether a turn takes all waiting messages or one"),
    Command("search", "TEXT", "search the transcript", True),
    Command("copy", "", "copy the last answer", True),
    Command("export", "[FILE]", "write the transcript to a text file on this machine", True),
    Command("theme", "[NAME]", "change the theme", True),
    Command("inbox", "", "open the inbox of all questions", True),
    Command("new", "AGENT [MESSAGE]", "start a session and open it", True),
    Command("archive", "", "hide the session until its next message"),
    Command("destroy", "", "end the session and delete its workspace, after a question"),
    Command("done", "", "leave the session: back to the list; work continues", True),
    Command("help", "", "show all keys and commands", True),
)
_BY_NAME = {it.name: it for it in COMMANDS}


class SlashError(ValueError):
    """A slash command that cannot be understood, for people."""


def parse(text: str) -> tuple[Command, str]:
    """The command and its arguments.

    Args:
        text: What was typed, with the slash.

    Raises:
        SlashError: There is no such command, or an argument is missing or has no place.
    """
    name, _, rest = text[1:].strip().partition(" ")
    command = _BY_NAME.get(name)
    if command is None:
        near = [it.name for it in COMMANDS if it.name.startswith(name[:2])] if name else []
        hint = f"; did you mean {', '.join(f'/{it}' for it in near)}?" if near else ""
        raise SlashError(f"there is no command /{name}{hint} (/help lists all)")
    rest = rest.strip()
    if command.needs_argument and not rest:
        raise SlashError(f"usage: {command.usage}")
    if rest and not command.arguments:
        raise SlashError(f"/{name} takes no argument")
    return command, rest


def parse_usage(name: str) -> str:
    """The arguments of a command, as people read them; empty: it has none.

    Args:
        name: The name of the command.
    """
    return _BY_NAME[name].arguments


def completions(text: str, *, is_session: bool) -> list[Command]:
    """The commands that a beginning can mean.

    Args:
        text: What was typed, with the slash.
        is_session: Whether a session is shown, not a run.
    """
    begin = text[1:]
    if " " in begin or "\n" in begin:
        return []
    usable = [it for it in COMMANDS if is_session or it.for_runs]
    return [it for it in usable if it.name.startswith(begin)]


class ForkArguments(NamedTuple):
    """What ``/fork`` was given."""

    title: str
    turn: int | None
    provider: str | None


def fork_arguments(text: str) -> ForkArguments:
    """Read the arguments of ``/fork``.

    Args:
        text: What stands behind the command.

    Raises:
        SlashError: A flag has no value, or none that makes sense.
    """
    title: list[str] = []
    turn: int | None = None
    provider: str | None = None
    words = iter(text.split())
    for word in words:
        if word == "--turn":
            turn = turn_number(next(words, ""))
        elif word == "--provider":
            provider = next(words, "")
            if not provider:
                raise SlashError("--provider needs a name, such as docker")
        elif word.startswith("--"):
            raise SlashError(f"/fork has no flag {word}")
        else:
            title.append(word)
    return ForkArguments(" ".join(title), turn, provider)


def turn_number(text: str) -> int:
    """The number of a turn.

    Raises:
        SlashError: It is no number.
    """
    if not text.isdecimal() or len(text) > 9:
        raise SlashError(f"a turn is a number, not {text!r}")
    return int(text)
