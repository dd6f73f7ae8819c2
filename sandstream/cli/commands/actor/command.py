"""``sandstream actor``: one replica of an actor of the registry."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from sandstream_actors.registry import ActorEntry, find_actors, load, options_of

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.suggestions import did_you_mean

_NOTE = "tool hosts are started by `sandstream worker app.py`"


def main(arguments: argparse.Namespace) -> int:
    actors = find_actors()
    names = ", ".join(actors)
    chosen = actors.get(arguments.kind)
    if chosen is None and arguments.kind is not None:
        raise CliError(
            Exit.USAGE,
            f"there is no actor {arguments.kind!r}; the kinds are: {names} ({_NOTE})"
            + did_you_mean(arguments.kind, actors),
        )
    for option, owners in options_of(actors):
        if getattr(arguments, option.name, None) is None:
            continue
        if chosen is None:
            text = f"{option.flag} needs a kind: sandstream actor KIND; the kinds are: {names}"
            raise CliError(Exit.USAGE, text)
        if chosen.name not in owners:
            commands = " and ".join(f"`sandstream actor {name}`" for name in owners)
            raise CliError(Exit.USAGE, f"{option.flag} is for {commands}")
    if chosen is None:
        return _list(actors.values(), as_json=arguments.json)
    if chosen.serve:
        return int(load(chosen.serve)(arguments))
    from sandstream.cli.services.launch import serve_actor

    return serve_actor(chosen, arguments)


def _list(actors: Collection[ActorEntry], *, as_json: bool) -> int:
    from sandstream.cli.session import put_json, say
    from sandstream.cli.terminal.render import out

    for actor in actors:
        if as_json:
            put_json({"kind": actor.name, "meaning": actor.purpose})
        else:
            out().line(f"{actor.name:<10} {actor.purpose}")
    say(_NOTE)
    return Exit.OK
