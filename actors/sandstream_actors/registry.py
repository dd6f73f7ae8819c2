"""The list of actors. The command line, ``up``, ``doctor``, compose and the docs derive from it.

A new actor is one folder and one entry here. Another package adds an actor through the entry point
group ``sandstream.actors``: the entry point names an :class:`ActorEntry`. The code that an entry
refers to is imported when it is needed. Standard library only: every command imports this module.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

GROUP = "sandstream.actors"


@dataclass(frozen=True)
class Option:
    """An option of ``sandstream actor NAME``. Actors may share one."""

    flag: str
    """The option as it is written, such as ``--pool``."""
    help: str
    """Its text in the help, with the default in parentheses."""
    metavar: str = ""
    """The name of its value in the help; empty: the flag's own name in capitals."""
    choices: tuple[str, ...] = ()
    """The allowed values; empty: any."""
    is_switch: bool = False
    """Whether the option has no value."""

    @property
    def name(self) -> str:
        """Its name in the parsed arguments."""
        return self.flag.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, kw_only=True)
class ActorEntry:
    """One kind of actor. References to code are written ``module:function``.

    Example:
        # pyproject.toml: [project.entry-points."sandstream.actors"] webhook = "webhook:ENTRY"
        ENTRY = ActorEntry(name="webhook", purpose="posts the ends of runs", make="webhook:make")
    """

    name: str
    """The name in ``sandstream actor NAME``."""
    purpose: str
    """The text after its name in the list of ``sandstream actor``."""
    make: str = ""
    """Makes the :class:`~sandstream_actors.base.Actor` from a bus and the parsed arguments."""
    serve: str = ""
    """Instead of ``make``: runs the whole command with the parsed arguments; returns its exit code.
    """
    examples: str = ""
    """Lines for the help of ``sandstream actor``."""
    options: tuple[Option, ...] = ()
    """Its options besides those that all actors have."""
    in_up: Literal["no", "inside", "process"] = "no"
    """How ``sandstream up`` starts it: not at all, inside its own process, or in a separate
    process. Only the actors of this module may be ``inside``.
    """
    up_help: str = ""
    """The help of ``sandstream up --no-NAME``; empty: the actor cannot be left out."""
    up_check: str = ""
    """Raises if the settings of the actor are wrong; ``up`` calls it before it starts any actor."""
    presence: tuple[str, ...] = ()
    """The beginnings of its consumers' names: ``NAME``, or ``NAME-`` and a pool, node or group."""
    role: str = "actor"
    """Its role on a NATS server with permissions (``sandstream_bus.setup.roles``)."""
    doctor: str = ""
    """Its check in ``sandstream doctor``; empty: the check reports whether a replica is live."""
    compose: str = ""
    """Its service in compose.yaml; empty: none."""

    def reads(self, consumer: str) -> bool:
        """Does this actor read with the consumer?

        Args:
            consumer: The name of a durable consumer.
        """
        names = self.presence or (f"actor-{self.name}",)
        return any(consumer == it or consumer.startswith(f"{it}-") for it in names)


_PROVIDER = Option("--provider", "the provider of the sandboxes (local)")

ACTORS = (
    ActorEntry(
        name="harness",
        purpose="takes the model turns of a pool's runs",
        serve="sandstream.cli.services.launch:serve_harness",
        examples="  sandstream actor harness --concurrency 64",
        options=(Option("--pool", "the pool whose turns it takes (main)"),),
        in_up="inside",
        presence=("harness", "starts", "tasks"),
        role="harness",
        doctor="sandstream.cli.commands.doctor.actors:check_harnesses",
        compose="harness",
    ),
    ActorEntry(
        name="sandbox",
        purpose="makes and keeps the sandboxes of this machine, and runs commands in them",
        serve="sandstream.cli.services.launch:serve_sandboxes",
        examples="  sandstream actor sandbox                    the sandboxes of this machine\n"
        "  sandstream actor sandbox --provider docker  containers of a Docker engine",
        options=(
            _PROVIDER,
            Option(
                "--isolation",
                "none runs commands with all rights of this user "
                "(SANDSTREAM_LOCAL_ISOLATION, else required)",
                metavar="required|none",
                choices=("required", "none"),
            ),
        ),
        in_up="inside",
        up_help="start no actor for sandboxes",
        up_check="sandstream.cli.services.launch:chosen_isolation",
        presence=("sandbox",),
        role="sandbox",
        doctor="sandstream.cli.commands.doctor.actors:check_sandbox_actors",
        compose="sandbox",
    ),
    ActorEntry(
        name="sessions",
        purpose="takes the turns of sessions, saves their workspaces and puts them to sleep",
        make="sandstream_actors.sessions.actor:make",
        examples="  sandstream actor sessions                   sessions of people with agents",
        in_up="inside",
        up_help="start no actor for sessions",
        presence=("sessions",),
        role="sessions",
        doctor="sandstream.cli.commands.doctor.sessions:check_sessions",
        compose="sessions",
    ),
    ActorEntry(
        name="tracing",
        purpose="reads the log, keeps traces and sums of all runs, and exports them",
        serve="sandstream.cli.commands.actor.tracing:serve_traces",
        examples="  sandstream actor tracing                    traces of all runs; exported "
        "where\n                                              OTEL_EXPORTER_OTLP_ENDPOINT says",
        options=(
            Option("--group", "replicas of a group share the work, groups do not (main)"),
            Option("--store", "the file of the trace store (below home)", metavar="PATH"),
            Option(
                "--content",
                "also keep texts of people, models and tools "
                "(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true)",
                is_switch=True,
            ),
            Option(
                "--redact",
                "redacts stored contents (SANDSTREAM_TRACE_REDACT)",
                metavar="MODULE:FUNCTION",
            ),
            Option("--only-new", "a new group skips existing runs", is_switch=True),
        ),
        in_up="process",
        up_help="start no tracing actor",
        up_check="sandstream.cli.services.launch:chosen_tracing",
        presence=("tracing",),
        role="tracing",
        doctor="sandstream.cli.commands.doctor.tracing:check_tracing",
        compose="tracing",
    ),
    ActorEntry(
        name="memory",
        purpose="learns from runs that have ended, for agents with a memory",
        serve="sandstream.cli.commands.actor.memory:serve_memories",
        examples="  sandstream actor memory                     the memories of agents",
        options=(
            _PROVIDER,
            Option("--node", "where its sandboxes are (any node of the provider)"),
        ),
        in_up="process",
        up_help="start no memory actor",
        presence=("memory",),
        role="memory",
        doctor="sandstream.cli.commands.doctor.memory:check_memory",
        compose="memory",
    ),
)


def find_actors(*, installed: bool = True) -> dict[str, ActorEntry]:
    """All actors by name; ``installed``: include those of other installed packages."""
    found = {it.name: it for it in ACTORS}
    if installed:
        from importlib.metadata import entry_points  # slow, and rarely needed

        for point in entry_points(group=GROUP):
            entry = point.load()
            if not isinstance(entry, ActorEntry) or entry.name in found:
                raise TypeError(f"{point.value} ({GROUP}) is not an ActorEntry with a new name")
            if entry.in_up == "inside":
                raise TypeError(
                    f"{point.value} ({GROUP}) has in_up='inside', which only the actors of "
                    "Sandstream may have; use in_up='process'"
                )
            found[entry.name] = entry
    return found


def load(reference: str) -> Any:
    """The object that ``module:name`` refers to."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def options_of(entries: dict[str, ActorEntry]) -> Iterator[tuple[Option, list[str]]]:
    """Each option once, with the names of its actors."""
    owners: dict[Option, list[str]] = {}
    for entry in entries.values():
        for option in entry.options:
            owners.setdefault(option, []).append(entry.name)
    yield from owners.items()


def add_options(parser: argparse.ArgumentParser, entries: dict[str, ActorEntry]) -> None:
    """Give ``sandstream actor`` the options of all actors."""
    for option, names in options_of(entries):
        more: dict[str, Any] = {"action": "store_true", "default": None}
        if not option.is_switch:
            more = {"metavar": option.metavar or None, "choices": option.choices or None}
        parser.add_argument(option.flag, help=f"{', '.join(names)}: {option.help}", **more)
