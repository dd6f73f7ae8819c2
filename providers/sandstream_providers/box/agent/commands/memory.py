"""The limit of memory. Where the kernel keeps it for the commands, the agent helps it to choose
whom to end; where it does not, the agent looks often and ends the command that has grown.
"""

from __future__ import annotations

import time
from collections import deque

from sandstream_providers.box.agent.commands import tree, usage
from sandstream_providers.box.agent.commands.box_commands import Commands
from sandstream_providers.box.agent.loop import Loop

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, Tuple

    Sizes = Dict[int, int]
    """Bytes by the number of a command."""

LOOK_EVERY_S = 0.5
LOOK_CLOSELY_S = 0.05
"""From half of the limit on."""
LOOK_AT_GROUP_S = 0.1
"""One small file to read."""
SHARE_OF_TIME = 0.1
"""Looking must not take more than this part of the time."""
GROWTH_S = 2.0
MOST_SCORE = 1000


def watch(loop: Loop, commands: Commands, config: dict[str, Any]) -> Watch:
    limit = config["memory_bytes"]
    stat = config.get("memory_stat_fd")
    if stat is not None:
        return GroupWatch(loop, commands, limit, stat)
    return MemoryWatch(loop, commands, limit, config.get("memory_directories") or [])


class Watch:
    """Looks for as long as there are processes."""

    def __init__(self, loop: Loop, commands: Commands, limit: int) -> None:
        self._loop = loop
        self._commands = commands
        self._limit = limit
        self._looking = False

    def look_on(self) -> None:
        """Something was started."""
        if not self._looking:
            self._looking = True
            self._loop.after(LOOK_EVERY_S, self._look_once)

    def _look_once(self) -> None:
        started = time.monotonic()
        self._looking = False
        pause = self._look()
        if pause is not None:
            took = time.monotonic() - started
            self._looking = True
            self._loop.after(max(pause, took / SHARE_OF_TIME), self._look_once)

    def _look(self) -> float | None:
        """When to look again; None: there is nothing to look at."""
        raise NotImplementedError

    def _remove_orphans(self, processes: list[tree.Process]) -> bool:
        """A segment stays when its users are gone; nothing else could free it."""
        pids = {process.pid for process in processes}
        orphans = [it for it in usage.segments() if not it.attached and it.creator not in pids]
        for segment in orphans:
            usage.remove(segment)
        return bool(orphans)


class MemoryWatch(Watch):
    """Where the kernel gives no limit: counts all that the box holds, and ends what has grown."""

    def __init__(self, loop: Loop, commands: Commands, limit: int, directories: list[str]) -> None:
        super().__init__(loop, commands, limit)
        self._directories = directories
        self._owners: dict[tuple[int, int], int | None] = {}
        """The command of each process when it was first seen: it may change its mark later."""
        self._before: Deque[Tuple[float, Sizes]] = deque()
        self._ending = False

    def _look(self) -> float | None:
        processes = tree.table()
        ours = self._ours(processes)
        if not ours:
            return None
        open_files = usage.in_open_files(process for process, _ in ours)
        unowned = usage.in_directories(self._directories)
        sizes = {process.pid: process.resident for process, _ in ours}
        by_command = self._by_command(ours, sizes, open_files)
        total = sum(by_command.values()) + unowned
        if total > self._limit:
            sizes = {process.pid: usage.own_memory(process) for process, _ in ours}
            by_command = self._by_command(ours, sizes, open_files)
            total = sum(by_command.values()) + unowned
        if total > self._limit and not self._ending and not self._remove_orphans(processes):
            self._end_one({number: by_command[number] for _, number in ours})
        self._remember(by_command)
        return LOOK_CLOSELY_S if total > self._limit // 2 else LOOK_EVERY_S

    def _ours(self, processes: list[tree.Process]) -> list[tuple[tree.Process, int]]:
        owners: dict[tuple[int, int], int | None] = {}
        ours = []
        for process in processes:
            key = (process.pid, process.started)
            owner = self._owners[key] if key in self._owners else self._commands.owner(process)
            owners[key] = owner
            if owner is not None:
                ours.append((process, owner))
        self._owners = owners
        return ours

    def _by_command(
        self, ours: list[tuple[tree.Process, int]], sizes: Sizes, open_files: Sizes
    ) -> Sizes:
        found: Sizes = {}
        owners = {}
        for process, owner in ours:
            pid = process.pid
            owners[pid] = owner
            found[owner] = found.get(owner, 0) + sizes[pid] + open_files.get(pid, 0)
        for segment in usage.segments():
            pid = usage.holder(segment, owners)
            owner = owners.get(pid, tree.UNMARKED)
            found[owner] = found.get(owner, 0) + segment.size
        return found

    def _end_one(self, sizes: Sizes) -> None:
        """The one that has grown most of late; of those that have not, the biggest."""
        before = self._before[0][1] if self._before else {}
        number = max(sizes, key=lambda it: (sizes[it] - before.get(it, 0), sizes[it]))
        self._ending = True
        self._commands.end_for_memory(number, self._ended)

    def _ended(self) -> None:
        self._ending = False
        self._before.clear()

    def _remember(self, sizes: Sizes) -> None:
        now = time.monotonic()
        self._before.append((now, sizes))
        while self._before[0][0] < now - GROWTH_S:
            self._before.popleft()


class GroupWatch(Watch):
    """Watches commands that are in a control group. There the kernel kills the process with the
    most pages. It counts no pages of files in memory that a process only holds open, so the watch
    adds them to the score of that process.
    """

    def __init__(self, loop: Loop, commands: Commands, limit: int, stat: int) -> None:
        super().__init__(loop, commands, limit)
        self._stat = stat
        self._scores: dict[int, int] = {}

    def _look(self) -> float | None:
        """Cheap as long as there is enough: one small file is read."""
        own, shared = usage.in_group(self._stat)
        processes: list[tree.Process] = []
        if self._is_full(own + shared) or self._is_much(shared) or self._scores:
            processes = tree.table()
        if self._is_full(own + shared):
            self._remove_orphans(processes)
        if self._is_much(shared) or self._scores:
            self._set_scores(processes)
        if self._commands.live() or processes:
            return LOOK_AT_GROUP_S
        return LOOK_EVERY_S if tree.table() else None

    def _is_full(self, size: int) -> bool:
        return size > self._limit * 9 // 10

    def _is_much(self, shared: int) -> bool:
        return shared > self._limit // 8

    def _set_scores(self, processes: list[tree.Process]) -> None:
        held = usage.in_open_files(processes)
        scores = {
            pid: min(MOST_SCORE, MOST_SCORE * size // self._limit) for pid, size in held.items()
        }
        for pid in {*scores, *self._scores}:
            score = scores.get(pid, 0)
            if self._scores.get(pid, 0) != score:
                _write_score(pid, score)
        self._scores = {pid: score for pid, score in scores.items() if score}


def _write_score(pid: int, score: int) -> None:
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w") as file:
            file.write(str(score))
    except OSError:
        pass  # it has ended, or does not let others look: the kernel decides by its pages alone
