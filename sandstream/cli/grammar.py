"""The parts of the command line's grammar: commands, common flags, kinds of values."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

from sandstream.cli.exits import without_long_words
from sandstream.cli.suggestions import did_you_mean

WIDTH = 79


class Help(argparse.RawDescriptionHelpFormatter):
    """Descriptions as written; one width that fits every terminal, so that docs/cli.md is
    reproducible.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=WIDTH)


_MAY_BE_EMPTY = {"nats_url", "home", "prefix", "sync", "user", "monitor", "reason", "cwd", "html"}
"""Options for which an empty text has a meaning: as if the variable were not set, or none; or whose
command says more about it.
"""

_PATHS = {"app", "apps", "target", "manifest", "workspace", "html", "output", "path", "store"}
_PATHS |= {"auth_dir", "home", "argv", "cwd"}
"""Arguments that may have bytes that are not UTF-8: names of files, and commands."""


_MOST_SECONDS = 1_000_000_000
"""As messages allow (``MAX_SECONDS`` there); what imports them would make ``--help`` slow."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])")
_MOST_DIGITS = 18
"""Of a whole number: it fits into 64 bits then, as programs in other languages expect."""


def _is_text(text: str) -> bool:
    """The bytes of an argument that are not UTF-8 come as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Parser(argparse.ArgumentParser):
    """Refuses empty values, and suggests corrections for a mistyped command, flag or choice."""

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        is_flag = bool(action.option_strings) and action.dest not in _MAY_BE_EMPTY
        if not arg_string and is_flag and action.type is None:  # a type says more about it
            raise argparse.ArgumentError(action, "it must not be empty")
        # a command gets all that is behind it, and checks it itself
        is_own = action.nargs != argparse.PARSER
        if is_own and action.dest not in _PATHS and not _is_text(arg_string):
            raise argparse.ArgumentError(action, "it is not UTF-8 text")
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(it) for it in action.choices]
        raise argparse.ArgumentError(
            action,
            f"invalid choice: {value!r} (choose from {', '.join(choices)})"
            + did_you_mean(str(value), choices),
        )

    def error(self, message: str) -> NoReturn:
        super().error(without_long_words(message))

    def check_first_flags(self, words: Sequence[str]) -> None:
        """Refuse an unknown flag before the command. argparse would take its value for the
        command, and say that there is no such command.
        """
        rest = iter(words)
        for word in rest:
            name, has_value, _ = word.partition("=")
            if not name.startswith("--") or name == "--":
                return
            known = self._option_string_actions.get(name)
            if known is None:
                self.refuse([word])
            if known.nargs is None and not has_value:
                next(rest, None)

    def refuse(self, words: list[str]) -> NoReturn:
        """End with the error for words that mean nothing here."""
        flags = [it.partition("=")[0] for it in words if it.startswith("-")]
        hint = did_you_mean(flags[0], self._option_string_actions, sigil="--") if flags else ""
        self.error(f"unrecognized arguments: {' '.join(words)}{hint}")


def add_globals(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where the bus is (before or after the command)")
    common: dict[str, Any] = {"default": argparse.SUPPRESS}
    group.add_argument("--nats-url", metavar="URL", help="instead of NATS_URL", **common)
    group.add_argument("--home", metavar="DIR", help="instead of SANDSTREAM_HOME", **common)
    group.add_argument("--prefix", help="instead of SANDSTREAM_PREFIX", **common)
    group.add_argument("--sync", help="instead of SANDSTREAM_SYNC", **common)
    group.add_argument(
        "--user", help="the user who sends the requests; instead of SANDSTREAM_USER", **common
    )
    group.add_argument("--debug", action="store_true", help="show tracebacks and logs", **common)


def add_command(
    commands: Any,
    name: str,
    summary: str,
    examples: str,
    *,
    module: str,
    json: str = "",
    is_inner: bool = False,
) -> Parser:
    """``is_inner``: an action of a command, whose flags may also stand before it."""
    parser: Parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"examples:\n{examples}",
        formatter_class=Help,
        allow_abbrev=False,
    )
    if json:
        add_flag(parser, "--json", help=json, is_inner=is_inner)
    add_globals(parser)
    parser.set_defaults(module=module, parser=parser)
    return parser


def add_flag(
    parser: argparse.ArgumentParser, *names: str, help: str, is_inner: bool = False
) -> None:
    """A flag. The default of an action's flag does not replace a value given before the action."""
    default = argparse.SUPPRESS if is_inner else False
    parser.add_argument(*names, action="store_true", default=default, help=help)


def add_optional(
    parser: argparse.ArgumentParser, name: str, *, default: Any = None, **how: Any
) -> None:
    """The last positional, which need not be there and may stand behind options, too: argparse
    alone takes it for missing at the first option.
    """
    parser.add_argument(name, nargs="?", default=default, **how)
    parser.set_defaults(late=(name, default, how.get("type", str)))


def without_late(arguments: argparse.Namespace, unknown: list[str]) -> list[str]:
    """The unknown words that remain after a positional behind options got its value."""
    name, default, kind = getattr(arguments, "late", ("", None, str))
    values = [it for it in unknown if not it.startswith("-")]
    if not name or len(values) != 1 or getattr(arguments, name) != default:
        return unknown
    try:
        setattr(arguments, name, kind(values[0]))
    except argparse.ArgumentTypeError as error:
        arguments.parser.error(f"argument {name.upper()}: {error}")
    return [it for it in unknown if it != values[0]]


def positive(text: str) -> int:
    """A whole number above zero."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return number


def whole(text: str) -> int:
    """A whole number that is not negative."""
    if not text.removeprefix("-").isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    if text.startswith("-"):
        raise argparse.ArgumentTypeError(f"{text} is below zero")
    if len(text) > _MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"{text} is too large")
    return int(text)


def seconds(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return number


def span(text: str) -> float:
    """Seconds that something may take."""
    number = seconds(text)
    if number > _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} s is too long: use at most {_MOST_SECONDS:,}")
    return number


def age_days(text: str) -> float:
    """A number of days, 0 included."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days; 0 means for ever")
    return number


def port(text: str) -> int:
    """A number that a port can have."""
    number = whole(text)
    if not 0 < number < 65_536:
        raise argparse.ArgumentTypeError(f"{text} is not a port: ports are 1 to 65535")
    return number


class Since(NamedTuple):
    """From when on, and how the user has said it."""

    ns: int
    words: str


def since(text: str) -> Since:
    """A time span before now, a date, or ``all``."""
    if text == "all":
        return Since(0, "")
    if match := _SPAN.fullmatch(text):
        seconds = float(match[1]) * _UNITS[match[2]]
        return Since(_in_reach(time.time_ns() - int(seconds * 1e9)), f"in the last {text}")
    try:
        began = datetime.fromisoformat(text)
        return Since(_in_reach(int(began.timestamp() * 1e9)), f"since {text}")
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: say how long ago (90s, 30m, 24h, 7d, 2w), "
            "a date (2026-01-31, 2026-01-31T12:00), or all"
        ) from None


def _in_reach(ns: int) -> int:
    """Limit a time to the range of the store: from 1970 to the largest 64-bit number."""
    return max(0, min(ns, 2**63 - 1))


def add_author(parser: Any) -> None:
    """The flag of commands that write to a log on behalf of a person."""
    parser.add_argument(
        "--as", dest="by", metavar="NAME", help="the person's name, for the log (your login name)"
    )


def add_budget(parser: Any) -> None:
    """The flags of commands that start or continue a run."""
    budget = parser.add_argument_group("limits for the run and all runs below it")
    budget.add_argument("--max-tokens", type=positive, metavar="N", help="tokens of models")
    budget.add_argument("--max-seconds", type=span, metavar="S", help="time")
    budget.add_argument("--max-tool-calls", type=whole, metavar="N", help="calls of tools")
