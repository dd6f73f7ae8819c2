"""``sandstream artifacts``: files that agents made, from checkpoints; no sandbox need be alive."""

from __future__ import annotations

import argparse
import stat
import sys

import msgspec
from sandstream_bus.counts import numbered
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CallFinished, CallRequested
from sandstream_providers.interface import Entry
from sandstream_workspaces.errors import NoSuchPath
from sandstream_workspaces.store import Difference, WorkspaceStore

from sandstream._inspect.texts import output_text
from sandstream._inspect.visible_text import in_one_line
from sandstream.cli.commands.artifacts.files import Saved, save_tar, save_tree, write_bytes
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.sandbox_choice import FoundSandbox, sandbox_named
from sandstream.cli.session import connected, events_of, put_json, run_async, say
from sandstream.cli.terminal.render import Screen, clean, out, size
from sandstream.client import Client

_KINDS = {"file": stat.S_IFREG, "dir": stat.S_IFDIR, "link": stat.S_IFLNK}
_MARKS = (("added", "A", "green"), ("changed", "M", "yellow"), ("removed", "D", "red"))


class Compared(msgspec.Struct, kw_only=True):
    """What ``diff --json`` prints."""

    sandbox: str
    before: str
    after: str
    added: list[str]
    changed: list[str]
    removed: list[str]


class CallOutput(msgspec.Struct, kw_only=True):
    """What ``output --json`` prints."""

    run_id: str
    call: str
    size_bytes: int
    output: str


def main(arguments: argparse.Namespace) -> int:
    return run_async(_work(arguments), debug=arguments.debug)


async def _work(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        if arguments.action == "output":
            return await _output(client, arguments)
        found = await sandbox_named(client, arguments.id)
        store = WorkspaceStore(client.bus)
        try:
            if arguments.action == "diff":
                return await _diff(store, found, arguments)
            tree = found.checkpoint(arguments.checkpoint)
            path = _inside(arguments.path, found)
            if arguments.action == "ls":
                return await _list(store, tree, path, arguments)
            return await _get(store, tree, path, arguments)
        except NoSuchPath as error:
            raise CliError(Exit.NOT_FOUND, in_one_line(str(error))) from None


def _inside(path: str, found: FoundSandbox) -> str:
    """The path below the root, which people may also write in full."""
    root = found.record.root.rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    elif path.startswith("/"):
        raise CliError(Exit.USAGE, f"{in_one_line(path)} is not in the workspace, which is {root}")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise CliError(Exit.USAGE, f"{in_one_line(path)}: a path in a workspace cannot have '..'")
    return "/".join(names)


# --- ls -------------------------------------------------------------------------------------------


async def _list(store: WorkspaceStore, tree: str, path: str, arguments: argparse.Namespace) -> int:
    entries = await _entries_at(store, tree, path, recursive=arguments.recursive)
    screen = out()
    if arguments.json:
        for entry in entries:
            put_json(_record(entry))
        return Exit.OK
    if not entries:
        say("nothing is there")
        return Exit.OK
    sizes = [size(entry.size) if entry.kind == "file" else "-" for entry in entries]
    width = max(map(len, sizes))
    for entry, amount in zip(entries, sizes, strict=True):
        mode = screen.paint(stat.filemode(_KINDS.get(entry.kind, 0) | entry.mode), "dim")
        screen.line(f"{mode}  {amount:>{width}}  {_name(screen, entry)}")
    return Exit.OK


async def _entries_at(
    store: WorkspaceStore, tree: str, path: str, *, recursive: bool
) -> list[Entry]:
    prefix = ""
    if path:
        entry = await store.lookup(tree, path)
        if entry is None:
            raise NoSuchPath(f"there is nothing at {path!r} in checkpoint {tree[:12]}")
        if entry.kind != "dir":
            return [entry]
        prefix = path + "/"
    return [
        entry
        for entry in await store.entries(tree)
        if entry.path.startswith(prefix) and (recursive or "/" not in entry.path[len(prefix) :])
    ]


class EntryRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One entry as ``--json`` prints it. Bytes of names that are not UTF-8 are escaped."""

    path: str
    kind: str
    mode: str
    size: int = 0
    digest: str = ""
    target: str = ""


def _record(entry: Entry) -> EntryRecord:
    return EntryRecord(
        path=_plain(entry.path),
        kind=entry.kind,
        mode=f"{entry.mode:04o}",
        size=entry.size,
        digest=entry.digest,
        target=_plain(entry.target),
    )


def _plain(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


def _name(screen: Screen, entry: Entry) -> str:
    name = in_one_line(entry.path)
    if entry.kind == "dir":
        return screen.paint(f"{name}/", "bold blue")
    return f"{name} -> {in_one_line(entry.target)}" if entry.kind == "link" else name


# --- get ------------------------------------------------------------------------------------------


async def _get(store: WorkspaceStore, tree: str, path: str, arguments: argparse.Namespace) -> int:
    if arguments.json and arguments.output == "-":
        raise CliError(Exit.USAGE, "stdout cannot have both the file and --json")
    if arguments.tar:
        part = await store.subtree(tree, path)
        saved = await save_tar(store, part, arguments.output, force=arguments.force)
    else:
        saved = await save_tree(
            store, tree, path, arguments.output, force=arguments.force, name=arguments.id
        )
    _tell(saved)
    if arguments.json:
        put_json(saved)
    return Exit.OK


def _tell(saved: Saved) -> None:
    for note in saved.left_out:
        say(f"left out: {note}")
    if saved.target != "-":
        files = numbered(saved.files, "file")
        say(f"{in_one_line(saved.target)}: {files}, {size(saved.size_bytes)}")


# --- diff -----------------------------------------------------------------------------------------


async def _diff(store: WorkspaceStore, found: FoundSandbox, arguments: argparse.Namespace) -> int:
    after = found.checkpoint(arguments.after)
    before = _before(found, arguments.before, after)
    if before:
        difference = await store.diff(before, after)
    else:
        everything = [entry.path for entry in await store.entries(after)]
        difference = Difference(added=everything, changed=[], removed=[])
    if arguments.json:
        put_json(
            Compared(
                sandbox=found.id,
                before=before,
                after=after,
                added=[_plain(path) for path in difference.added],
                changed=[_plain(path) for path in difference.changed],
                removed=[_plain(path) for path in difference.removed],
            )
        )
        return Exit.OK
    _print_difference(out(), difference)
    start = before[:12] if before else "an empty workspace"
    say(f"from {start} to {after[:12]}")
    return Exit.OK


def _before(found: FoundSandbox, digest: str | None, after: str) -> str:
    """The named one; else the one before; else what the sandbox began with; empty: nothing."""
    if digest:
        return found.checkpoint(digest)
    trees = [it.tree for it in found.checkpoints]
    earlier = [tree for tree in trees[: trees.index(after)] if tree != after]
    return earlier[-1] if earlier else found.record.spec.base


def _print_difference(screen: Screen, difference: Difference) -> None:
    for name, mark, style in _MARKS:
        for path in getattr(difference, name):
            screen.line(screen.paint(f"{mark} {in_one_line(path)}", style))


# --- output ---------------------------------------------------------------------------------------


async def _output(client: Client, arguments: argparse.Namespace) -> int:
    finished = _finished(await events_of(client, arguments.id), arguments.id, arguments.call)
    if finished.full_output:
        data = await client.bus.objects.get(finished.full_output)
    else:
        data = output_text(finished.output).encode()
        say("the model saw all of it")
    if arguments.json:
        text = data.decode("utf-8", "replace")
        put_json(
            CallOutput(run_id=arguments.id, call=finished.call, size_bytes=len(data), output=text)
        )
        return Exit.OK
    if arguments.output not in (None, "-"):
        write_bytes(arguments.output, data, force=arguments.force)
        say(f"{in_one_line(arguments.output)}: {size(len(data))}")
        return Exit.OK
    if sys.stdout.isatty():
        data = clean(data.decode("utf-8", "replace")).encode()
    sys.stdout.buffer.write(data)
    return Exit.OK


def _finished(events: list[LogEvent], run: str, name: str) -> CallFinished:
    """The outcome of a call, by our id or by the model's."""
    calls = {
        it.event.call_id: it.event.call for it in events if isinstance(it.event, CallRequested)
    }
    wanted = calls.get(name, name)
    finished = [it.event for it in events if isinstance(it.event, CallFinished)]
    for event in finished:
        if event.call == wanted:
            return event
    shortened = ", ".join(it.call for it in finished if it.full_output) or "none"
    raise CliError(
        Exit.NOT_FOUND,
        f"run {run} has no finished call {name!r}; those with a shortened output: {shortened}",
    )
