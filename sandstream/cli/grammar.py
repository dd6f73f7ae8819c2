"""What the grammar of the command line is made of: commands, common flags, kinds of values."""

from __future__ import annotations

import argparse
from typing import Any


class Help(argparse.RawDescriptionHelpFormatter):
    """Descriptions as written; the same width everywhere, so that docs/cli.md is reproducible."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=96)


def add_globals(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where the bus is (before or after the command)")
    common: dict[str, Any] = {"default": argparse.SUPPRESS}
    group.add_argument("--nats-url", metavar="URL", help="instead of NATS_URL", **common)
    group.add_argument("--home", metavar="DIR", help="instead of SANDSTREAM_HOME", **common)
    group.add_argument("--prefix", help="instead of SANDSTREAM_PREFIX", **common)
    group.add_argument("--sync", help="instead of SANDSTREAM_SYNC", **common)
    group.add_argument("--debug", action="store_true", help="show tracebacks and logs", **common)


def command(
    commands: Any,
    name: str,
    summary: str,
    examples: str,
    *,
    module: str,
    json: str = "",
    is_inner: bool = False,
) -> argparse.ArgumentParser:
    """``is_inner``: an action of a command, whose flags may also stand before it."""
    parser: argparse.ArgumentParser = commands.add_parser(
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
    parser.set_defaults(module=module, refuse=parser.error)
    return parser


def add_flag(
    parser: argparse.ArgumentParser, *names: str, help: str, is_inner: bool = False
) -> None:
    """A flag. That of an action does not undo what was said before the action."""
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
    """What is still unknown once the positional that stands behind options has its value."""
    name, default, kind = getattr(arguments, "late", ("", None, str))
    values = [it for it in unknown if not it.startswith("-")]
    if not name or len(values) != 1 or getattr(arguments, name) != default:
        return unknown
    try:
        setattr(arguments, name, kind(values[0]))
    except argparse.ArgumentTypeError as error:
        arguments.refuse(f"argument {name.upper()}: {error}")
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


def port(text: str) -> int:
    """A number that a port can have."""
    number = whole(text)
    if not 0 < number < 65_536:
        raise argparse.ArgumentTypeError(f"{text} is no port: they go from 1 to 65535")
    return number
