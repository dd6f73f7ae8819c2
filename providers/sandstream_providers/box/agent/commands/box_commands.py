"""All commands of the box, by operation and by session."""

from __future__ import annotations

import os
import signal
import time
from binascii import a2b_base64, b2a_base64

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.commands import jobs, spawn, tree
from sandstream_providers.box.agent.commands.command import Command, Running
from sandstream_providers.box.agent.commands.kills import GRACE_S, POLL_S, Killing, kill_at_once
from sandstream_providers.box.agent.commands.output import OutputStore
from sandstream_providers.box.agent.commands.waiters import Operation, Waiter
from sandstream_providers.box.agent.loop import Loop
from sandstream_providers.box.agent.network.connection import Connection
from sandstream_providers.box.agent.refused import Refused

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable


MAX_LIVE = 64
EXIT_NEWS_S = 5.0
"""How long the exit codes of killed commands are waited for, on a machine that is very busy."""
MAX_INTERACTIONS = 10000
FIRST_SESSION = 1000
SESSIONS = 99000
KEPT_OUTPUTS = 16
"""So many streams of the greatest length are kept; the disk that they lie on is the host's."""
SHORT_S = 0.02
"""What runs longer than this gets files for its output."""


class Commands:
    """Starts, finds and ends commands."""

    def __init__(self, loop: Loop, config: dict[str, Any]) -> None:
        self._loop = loop
        self._output_bytes = int(config["output_bytes"])
        self._jobs = jobs.Jobs(config["jobs_fd"], KEPT_OUTPUTS * self._output_bytes)
        self._env = {wire.to_bytes(k): wire.to_bytes(v) for k, v in config["env"].items()}
        self._wall_s: float | None = config.get("wall_s")
        facts = os.fstat(config["jobs_fd"])
        self._box_mark = f"SANDSTREAM_BOX={facts.st_dev:x}-{facts.st_ino:x}".encode()
        self._commands: dict[str, Command] = {}
        self._live: dict[str, Command] = {}
        self._by_session: dict[int, Command] = {}
        self._operations: dict[str, Operation] = {}
        self._interactions: dict[str, Operation] = {}
        self._by_pid: dict[int, Command] = {}
        self._waiters: list[Waiter] = []
        self._killing: dict[str, list[Any]] = {}
        self._by_number: dict[int, Command] = {}
        # Two agents of one machine must not give the same number.
        self._first_number = self._next_number = int.from_bytes(os.urandom(4), "big") << 24 | 1
        self._marking = spawn.can_mark()
        self._launch = spawn.launch_expendable if config.get("expendable") else spawn.launch_here
        groups = config.get("command_group_fds") or []
        if groups:
            from sandstream_providers.box.agent.commands.spawner import Spawner  # not in every box

            spawner = Spawner(loop, groups, self._exited)
            spawner.start()
            self._launch = spawner.launch
        self._end_leftovers()

    # --- requests ---------------------------------------------------------------------------------

    def run(self, connection: Connection, request: dict[str, Any], stdin: bytes) -> None:
        op = request["op"]
        operation = self._operations.get(op)
        if operation is None:
            command = self._recall(op) or self._start(op, request["spec"], stdin)
            operation = self._operations[op] = Operation(command, None)
        wait_s = request.get("wait_s")
        due = None if wait_s is None else operation.command.started_at + wait_s
        self._wait(connection, request, operation, due)

    def first_request(
        self, connection: Connection, request: dict[str, Any], _payload: bytes
    ) -> None:
        try:
            first = self._jobs.first_request(request["op"], request["request"])
        except OSError as error:
            raise Refused("NoSpace", f"the call cannot be recorded: {error.strerror}") from error
        connection.send({"id": request["id"], "ok": first})

    def interact(self, connection: Connection, request: dict[str, Any], data: bytes) -> None:
        op = request["op"]
        operation = self._interactions.get(op)
        if operation is None:
            command = self._with_session(request["session"])
            process = command.process
            if data and not command.over:
                if process is None or not process.stdin_open:
                    raise Refused(
                        "StdinClosed",
                        f"stdin of session {command.session} is closed",
                        session=command.session,
                    )
            operation = Operation(command, time.monotonic() + request["wait_s"])
            self._interactions[op] = operation
            if len(self._interactions) > MAX_INTERACTIONS:
                del self._interactions[next(iter(self._interactions))]
            if data and process is not None:
                process.write(data)
        self._wait(connection, request, operation, operation.due)

    def kill(self, connection: Connection, request: dict[str, Any], _payload: bytes) -> None:
        answer = {"id": request["id"], "ok": None}
        command = self._commands.get(request["op"])
        if command is None or command.family is None:
            connection.send(answer)
        else:
            self._end(command, "cancelled", lambda: connection.send(answer))

    def kill_all(self, connection: Connection, request: dict[str, Any], _payload: bytes) -> None:
        for command in self.live():
            if command.process is not None:
                command.killed = command.killed or "cancelled"
                command.process.killing = True

        def killed() -> list[Running]:
            return [it.process for it in self.live() if it.process and it.process.killing]

        def answer() -> None:
            for process in killed():
                process.killing_is_over()
            connection.send({"id": request["id"], "ok": None})

        def done() -> None:
            self._when_ends_are_known(killed, answer)

        Killing(self._loop, self._everything, done)

    def live(self) -> list[Command]:
        return list(self._live.values())

    def forget(self, connection: Connection, request: int | None = None) -> None:
        """The client has stopped waiting, or its connection has ended."""
        for waiter in list(self._waiters):
            if waiter.connection is connection and request in (None, waiter.request):
                waiter.stop()
                self._waiters.remove(waiter)

    # --- starting ---------------------------------------------------------------------------------

    def _start(self, op: str, spec: dict[str, Any], stdin: bytes) -> Command:
        if len(self._live) >= MAX_LIVE:
            raise Refused("LimitReached", f"{MAX_LIVE} commands are running already")
        mark = b"SANDSTREAM_OP=" + wire.to_bytes(op)
        env = dict(self._env)
        env.update((wire.to_bytes(k), wire.to_bytes(v)) for k, v in spec["env"].items())
        for one in (mark, self._box_mark):
            key, _, value = one.partition(b"=")
            env[key] = value
        try:
            self._jobs.claim(op)
        except OSError as error:
            raise Refused("NoSpace", f"the command cannot be recorded: {error.strerror}") from error
        want_stdin = bool(stdin or spec["keep_stdin"])
        number = self._new_number()
        try:
            started = spawn.start(
                [wire.to_bytes(part) for part in spec["argv"]],
                wire.to_bytes(spec["cwd"]),
                env,
                spec["tty"],
                want_stdin,
                number,
                self._launch,
            )
        except Refused:
            try:
                self._jobs.unclaim(op)
            except OSError:
                pass  # a full disk: a later agent will call it lost, which is not wrong
            raise
        command = self._live[op] = self._new_command(op, self._free_session())
        command.family = tree.Family(started.pid, (mark, self._box_mark), number)
        self._by_number[number] = command
        command.process = Running(
            self._loop,
            command,
            started,
            lambda: self._output_came(command),
            lambda: self._command_ended(command),
        )
        self._by_pid[started.pid] = command
        self._record_start(command, spec, started.pid)
        if want_stdin or spec["tty"]:
            command.process.write(stdin, close_after=not (spec["keep_stdin"] or spec["tty"]))
        self._loop.after(SHORT_S, lambda: self._is_not_short(command))
        limits = [t for t in (spec["timeout_s"], self._wall_s) if t is not None]
        if limits:
            self._loop.after(min(limits), lambda: self._timed_out(command))
        return command

    def _is_not_short(self, command: Command) -> None:
        if not command.over:
            command.use_files()

    def _new_command(self, op: str, session: int) -> Command:
        name = jobs.file_name(op)
        stores = [
            OutputStore(self._jobs.folder, name + end, self._output_bytes)
            for end in (".out", ".err")
        ]
        command = Command(op, session, *stores)
        self._commands[op] = self._by_session[session] = command
        return command

    def _record_start(self, command: Command, spec: dict[str, Any], pid: int) -> None:
        process = tree.read_process(pid)
        facts = {
            "argv": spec["argv"],
            "cwd": spec["cwd"],
            "session": command.session,
            "pid": pid,
            "started": process.started if process is not None else 0,
        }
        try:
            self._jobs.started(command.op, facts)
        except OSError:
            pass  # the disk is full, but the claim of the operation is already stored

    def _new_number(self) -> int:
        if not self._marking:
            return tree.UNMARKED
        self._next_number += 1
        return self._next_number - 1

    def _free_session(self) -> int:
        while True:
            number = FIRST_SESSION + int.from_bytes(os.urandom(4), "big") % SESSIONS
            if number not in self._by_session:
                return number

    # --- finding ----------------------------------------------------------------------------------

    def _recall(self, op: str) -> Command | None:
        """A command of an earlier life of this agent."""
        command = self._commands.get(op)
        if command is not None or not self._jobs.known(op):
            return command
        facts = self._jobs.facts(op)
        command = self._new_command(op, facts.get("session") or self._free_session())
        command.state = facts.get("state", "lost")
        command.exit_code = facts.get("exit_code")
        command.killed = facts.get("killed", "")
        name = jobs.file_name(op)
        for store, end in ((command.stdout, ".out"), (command.stderr, ".err")):
            if end in facts:
                total, readable, inline = facts[end]
                store.recall(total, readable, None if inline is None else a2b_base64(inline))
            else:
                store.recall(self._jobs.size(name + end), None, None)
        return command

    def _with_session(self, session: int) -> Command:
        command = self._by_session.get(session)
        if command is not None and not (command.state == "exited" and command.told):
            return command
        raise Refused(
            "NoSuchSession", f"no running command has the number {session}", session=session
        )

    def _end_leftovers(self) -> None:
        """What an agent that was killed left running is lost, and must not run on unseen."""
        for op in self._jobs.unfinished():
            self._recall(op)
        if self._commands:
            kill_at_once(self._everything)

    # --- waiting ----------------------------------------------------------------------------------

    def _wait(
        self,
        connection: Connection,
        request: dict[str, Any],
        operation: Operation,
        due: float | None,
    ) -> None:
        waiter = Waiter(
            self._loop,
            connection,
            request["id"],
            operation,
            due,
            request.get("events_from"),
            self._answered,
        )
        self._waiters.append(waiter)
        if operation.command.over:
            waiter.answer()

    def _answered(self, waiter: Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def _output_came(self, command: Command) -> None:
        for waiter in self._waiters:
            if waiter.operation.command is command:
                waiter.output_came()

    # --- ending -----------------------------------------------------------------------------------

    def reap(self) -> None:
        """Collect all children that ended, also those that were left to us by others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                if pid in tree.helpers:  # by a command: it would hear of no end any more
                    os.kill(pid, signal.SIGCONT)
                continue
            tree.helpers.discard(pid)
            self._exited(
                pid, os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
            )

    def _exited(self, pid: int, code: int) -> None:
        command = self._by_pid.pop(pid, None)
        if command is not None and command.process is not None:
            command.process.exited(code)

    def end_everything(self) -> None:
        """Kill all commands at once, because the agent itself ends. Their exits are not recorded:
        they would look as if the commands had ended by themselves.
        """
        self.reap()
        self._by_pid.clear()
        for _ in range(100):
            if not self._everything():
                break
            kill_at_once(self._everything)
            self.reap()

    def _timed_out(self, command: Command) -> None:
        if not command.over:
            self._end(command, "timeout", lambda: None)

    def _end(self, command: Command, why: str, done: Any, grace_s: float = GRACE_S) -> None:
        family = command.family
        assert family is not None
        if command.op in self._killing:
            self._killing[command.op].append(done)
            return
        calls = self._killing[command.op] = [done]
        process = command.process
        if process is not None and not command.over:
            command.killed = why
            process.killing = True

        def is_over() -> None:
            del self._killing[command.op]
            if process is not None and not command.over:
                process.killing_is_over()
            for call in calls:
                call()

        def killed() -> list[Running]:
            return [process] if process is not None and not command.over else []

        def done_killing() -> None:
            self._when_ends_are_known(killed, is_over)

        def find() -> list[tree.Process]:
            processes = tree.table()
            members = family.members(processes, set(self._by_pid))
            known = {process.pid for process in members}
            return [*members, *(it for it in self._strays(processes) if it.pid not in known)]

        Killing(self._loop, find, done_killing, grace_s)

    def _when_ends_are_known(
        self,
        killed: Callable[[], list[Running]],
        then: Callable[[], None],
        late: float | None = None,
    ) -> None:
        """The answer to a kill means that new commands have room. A process that is gone still
        counts until its exit code is known, which the process that started it tells.
        """
        late = time.monotonic() + EXIT_NEWS_S if late is None else late
        self.reap()
        if time.monotonic() < late and not all(it.has_exited for it in killed()):
            self._loop.after(POLL_S, lambda: self._when_ends_are_known(killed, then, late))
        else:
            then()

    def _strays(self, processes: list[tree.Process]) -> list[tree.Process]:
        """Processes that have got rid of their mark, so that they may be any command's.

        Nothing else has a reason to do that: they end with the first command that is ended.
        """
        if not self._marking or os.getpid() != 1:
            return []
        return [it for it in processes if not self._is_ours(tree.number_of(it.pid))]

    def _is_ours(self, number: int | None) -> bool:
        return number is None or self._first_number <= number < self._next_number

    def _everything(self) -> list[tree.Process]:
        """All processes of this box: all there are, if the agent has its own process table."""
        processes = tree.table()
        if os.getpid() == 1:
            return processes
        everything = tree.Family(-1, (self._box_mark,))
        return everything.members(processes, set())

    def _command_ended(self, command: Command) -> None:
        del self._live[command.op]
        facts: dict[str, Any] = {
            "state": command.state,
            "exit_code": command.exit_code,
            "killed": command.killed,
        }
        for store, end in ((command.stdout, ".out"), (command.stderr, ".err")):
            inline = store.inline()
            encoded = None if inline is None else b2a_base64(inline).decode("ascii")
            facts[end] = [store.total, store.readable, encoded]
        try:
            self._jobs.ended(command.op, facts)
        except OSError:
            pass  # a full disk: this agent still knows; a later one will call it lost
        command.stdout.close()
        command.stderr.close()
        for waiter in list(self._waiters):
            if waiter.operation.command is command:
                waiter.answer()
        self._prune()

    def _prune(self) -> None:
        in_use = set(self._live)
        in_use.update(waiter.operation.command.op for waiter in self._waiters)
        for op in self._jobs.prune(in_use):
            command = self._commands.pop(op, None)
            self._operations.pop(op, None)
            if command is not None:
                del self._by_session[command.session]
                if command.family is not None:
                    self._by_number.pop(command.family.number, None)

    # --- memory -----------------------------------------------------------------------------------

    def owner(self, process: tree.Process) -> int | None:
        """The number of the command that it comes from, ``UNMARKED`` for a stray one; None: it is
        not of this box.
        """
        number = tree.number_of(process.pid)
        if number is not None and self._first_number <= number < self._next_number:
            return number
        return tree.UNMARKED if os.getpid() == 1 else None

    def end_for_memory(self, number: int, done: Any) -> None:
        """End all that comes from a command, also what it left in the background."""
        command = self._by_number.get(number)
        if command is not None and command.family is not None:
            self._end(command, "memory", done, grace_s=0)
            return
        family = tree.Family(-1, (), number)

        def find() -> list[tree.Process]:
            processes = tree.table()
            if number == tree.UNMARKED:
                return self._strays(processes)
            return family.members(processes, set(self._by_pid))

        Killing(self._loop, find, done, grace_s=0)
