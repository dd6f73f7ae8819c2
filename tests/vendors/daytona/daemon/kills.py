"""Signals to more than one process of a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vendors.daytona.daemon.daemon import Daemon

GROUP = 'kill -s "$1" -- "-$2" 2>/dev/null'
TREE = """
children() {
    for status in /proc/[0-9]*/status; do
        pid=; parent=
        while read -r name value _; do
            case $name in
                Pid:) pid=$value ;;
                PPid:) parent=$value; break ;;
            esac
        done < "$status"
        [ "$parent" = "$1" ] && echo "$pid"
    done 2>/dev/null
}
below() {
    for child in $(children "$1"); do
        below "$child"
        echo "$child"
    done
}
found=$(below "$2")
kill -s "$1" -- "-$2" 2>/dev/null
[ -z "$found" ] || kill -s "$1" -- $found 2>/dev/null
"""


async def signal_group(daemon: Daemon, leader: int, name: str) -> None:
    """Signal every process of a group, also when its leader has ended."""
    await _run(daemon, GROUP, leader, name)


async def signal_tree(daemon: Daemon, root: int, name: str) -> None:
    """Signal a group and all descendants of its leader that left the group."""
    await _run(daemon, TREE, root, name)


async def _run(daemon: Daemon, script: str, pid: int, name: str) -> None:
    killer = await daemon.machine.spawn(
        ["/bin/sh", "-c", script, "kill", name, str(pid)], env=daemon.env
    )
    await killer.wait()
