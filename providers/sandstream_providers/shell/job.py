"""One command on its way into a box: what its job's files hold, and why it may be refused."""

from __future__ import annotations

import hashlib
import math

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.commands.jobs import file_name
from sandstream_providers.interface import (
    CannotExecute,
    ExecSpec,
    LimitReached,
    ProviderError,
    ProviderUnavailable,
)
from sandstream_providers.shell.archive import Archive
from sandstream_providers.shell.basics import BASICS, Basics, BoxFacts
from sandstream_providers.shell.channel import Answer, ShellSettings
from sandstream_providers.shell.job_scripts import KEEPER, TERMINAL
from sandstream_providers.shell.kill_scripts import killing
from sandstream_providers.shell.output import Report
from sandstream_providers.shell.quotes import assigned_all, words
from sandstream_providers.shell.refusals import REFUSED, failure

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
MOST_ARGUMENT = 131071
"""Bytes of one argument or variable that the kernel takes."""
SEGMENT = 65536
_COULD_NOT = (126, 127)


class Job:
    """A command, as scripts start it."""

    def __init__(
        self, op: str, spec: ExecSpec, settings: ShellSettings, basics: Basics, facts: BoxFacts
    ) -> None:
        """Raises CannotExecute for what no kernel takes."""
        self.name = file_name(op)
        self.mark = self.mark_of(basics, op)
        self._spec = spec
        self._basics = basics
        self._facts = facts
        self._limits = settings.limits
        marks = dict([basics.mark.split("="), self.mark.split("=")])
        self._env = {"PATH": DEFAULT_PATH, **settings.env, **spec.env, "SANDSTREAM_OP": op, **marks}
        self._check()

    @staticmethod
    def mark_of(basics: Basics, op: str) -> str:
        """In the environment of all processes of the command, and of no others."""
        named = hashlib.sha256(wire.to_bytes(f"{basics.mark}\n{op}")).hexdigest()[:32]
        return f"SANDSTREAM_JOB={named}"

    def _check(self) -> None:
        spec = self._spec
        if not spec.argv or not spec.argv[0]:
            raise CannotExecute("no program was given: the command is empty")
        strings = [*spec.argv, spec.cwd, *(f"{name}={it}" for name, it in self._env.items())]
        for string in strings:
            raw = wire.to_bytes(string)
            if b"\0" in raw:
                raise CannotExecute(f"the command cannot be passed on: a zero byte in {string!r}")
            if len(raw) > MOST_ARGUMENT:
                raise CannotExecute(
                    f"cannot start {spec.argv[0]}: an argument or variable of {len(raw)} bytes is "
                    f"too long; at most {MOST_ARGUMENT}",
                    reason="program",
                )
        if spec.tty and "script" not in self._facts.has:
            raise ProviderUnavailable(
                "this sandbox has no terminals (pty): it needs the program 'script' "
                "(of util-linux) or Python in its image"
            )

    def place(self) -> dict[str, str | bytes]:
        """What a script must know to start it."""
        return {
            "N": self.name,
            "MARK": self.mark,
            "PIPES": "1" if self._spec.tty or self._spec.keep_stdin else "",
            "CWD": wire.to_bytes(self._spec.cwd),
            "PROGRAM": wire.to_bytes(self._spec.argv[0]),
            "SEARCH": wire.to_bytes(self._env["PATH"]),
        }

    def files(self) -> bytes:
        """An archive of the files that its directory has at first."""
        archive = Archive([("run", self._keeper()), ("go", self._go())])
        if self._spec.stdin:
            archive.add("in", self._spec.stdin)
        if self._spec.tty:
            archive.add("tty", TERMINAL.encode("ascii"))
        return archive.bytes()

    def _keeper(self) -> bytes:
        limit = self._limits.output_mb * 1024 * 1024
        values = assigned_all(
            R=self._basics.records,
            N=self.name,
            MARK=self.mark,
            HALF=max(SEGMENT, limit // 2),
            SEGMENT=max(SEGMENT, limit // 4),
            TIMEOUT=self._timeout(),
            TTY="1" if self._spec.tty else "",
        )
        values += 'J=$R/jobs/$N\ninput=/dev/null\n[ -s "$J/in" ] && input=$J/in\n'
        return (BASICS + values + killing(self._facts) + KEEPER).encode("ascii")

    def _timeout(self) -> str:
        given = [it for it in (self._spec.timeout_s, self._limits.wall_s) if it is not None]
        if not given:
            return ""
        least = max(0.0, min(given))
        return f"{least:.3f}" if "short_sleep" in self._facts.has else str(math.ceil(least))

    def _go(self) -> bytes:
        """Replaces its shell by the command, with the box's environment and nothing else."""
        argv = [wire.to_bytes(it) for it in self._spec.argv]
        if b"=" in argv[0]:
            argv = [b"sh", b"-c", b'exec "$0" "$@"', *argv]
        env = [wire.to_bytes(f"{name}={value}") for name, value in self._env.items()]
        note = b"echo $$ >" + words(
            [wire.to_bytes(f"{self._basics.records}/jobs/{self.name}/leader")]
        )
        return note + b"\nexec env -i " + words([*env, *argv]) + b"\n"

    # --- refusals ---------------------------------------------------------------------------------

    def refusal(self, answer: Answer) -> ProviderError:
        if answer.code != REFUSED:
            return failure(answer.stderr, "the command cannot be recorded")
        kind, reason = answer.stdout.decode("ascii").split()[:2]
        program, cwd = self._spec.argv[0], self._spec.cwd
        if kind == "LimitReached":
            return LimitReached(f"too many commands are running already ({reason}): at most 64")
        if reason == "cwd":
            return CannotExecute(f"the working directory {cwd} cannot be used", reason="cwd")
        why = "it may not be executed" if reason == "forbidden" else "there is no such program"
        return CannotExecute(f"cannot start {program}: {why}", reason="program")

    def not_executed(self, report: Report) -> ProviderError:
        said = b"".join(data for _, _, data in report.pieces)
        return CannotExecute(
            f"cannot start {self._spec.argv[0]}: {wire.to_text(said).strip()}", reason="program"
        )


def was_not_executed(report: Report, spec: ExecSpec) -> bool:
    """Whether ``env`` says that it could not start the program: a kernel's refusal is only seen
    when it is too late for the script that starts the command.
    """
    if report.state != "exited" or report.exit_code not in _COULD_NOT or report.killed:
        return False
    said = [data for _, _, data in report.pieces]
    program = wire.to_bytes(spec.argv[0])
    return len(said) == 1 and said[0].startswith(b"env: ") and program in said[0].splitlines()[0]
