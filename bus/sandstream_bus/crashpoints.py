"""Named places where a test may kill a process, to prove that a crash there costs nothing.

``SANDSTREAM_CRASH_AT=harness.before_commit:2`` kills (SIGKILL) the process when it reaches that
point for the second time; ``SANDSTREAM_CRASH_PID`` names another victim instead, such as the
server. ``harness.before_commit:2:stop`` suspends the process there (SIGSTOP), so that a test can do
harm elsewhere and let it go on (SIGCONT). Without the variable a crash point is one comparison. The
variables are read at import, the only exception to "settings are read at the edge", so that no
production path has to carry them.
"""

from __future__ import annotations

import os
import signal
import time

from sandstream_bus.environment import variable

CRASH_POINTS = (
    # every publish of every kind, in the connection
    "bus.before_publish",
    "bus.after_publish",
    # the index of open runs
    "index.before_enter",
    "index.after_enter",
    "index.after_waiting",
    "index.before_leave",
    "index.after_leave",
    # due timers and requests of outside users, on their way to the log
    "carrier.received",
    "carrier.carried",
    "carrier.before_ack",
    "carrier.after_ack",
    # the harness
    "harness.received",
    "harness.before_start",
    "harness.after_start",
    "harness.before_model",
    "harness.before_commit",
    "harness.after_commit",
    "harness.before_dispatch",
    "harness.after_dispatch",
    "harness.before_timer",
    "harness.after_timer",
    "harness.before_done",
    "harness.after_done",
    "harness.before_refuse",
    "harness.after_refuse",
    "harness.before_ack",
    "harness.after_ack",
    # the harness: agents that work together
    "harness.before_handoff",
    "harness.after_handoff",
    "harness.before_child",
    "harness.after_child",
    "harness.before_cancel_children",
    "harness.before_report",
    "harness.after_report",
    # the harness: people
    "harness.before_waiting",
    "harness.after_waiting",
    "harness.before_pass_on",
    "harness.after_pass_on",
    # the harness: conversations
    "harness.after_join",
    "harness.before_leave",
    "harness.after_leave",
    "harness.before_wake",
    "harness.after_wake",
    # retries of runs that failed
    "retry.before_reopen",
    "retry.after_reopen",
    "retry.before_task",
    "retry.after_task",
    "retry.before_child",
    "retry.after_child",
    # the tool host
    "tools.received",
    "tools.before_claim",
    "tools.started",
    "tools.before_invoke",
    "tools.before_early",
    "tools.after_early",
    "tools.after_invoke",
    "tools.published",
    "tools.before_ack",
    "tools.after_ack",
    # the sandbox actor
    "sandbox.received",
    "sandbox.before_intent",
    "sandbox.after_intent",
    "sandbox.after_create",
    "sandbox.after_restore",
    "sandbox.before_ready",
    "sandbox.after_ready",
    "sandbox.before_operation",
    "sandbox.after_operation",
    "sandbox.before_snapshot",
    "sandbox.after_snapshot",
    "sandbox.after_checkpoint",
    "sandbox.before_memory",
    "sandbox.after_memory",
    "sandbox.before_pause",
    "sandbox.after_pause",
    "sandbox.before_delete",
    "sandbox.before_result",
    "sandbox.after_result",
    "sandbox.before_reply",
    "sandbox.after_reply",
    "sandbox.before_ack",
    "sandbox.after_ack",
    # the tracing actor
    "tracing.received",
    "tracing.before_record",
    "tracing.after_record",
    "tracing.before_mark",
    "tracing.after_mark",
    "tracing.before_export",
    "tracing.after_export",
    "tracing.before_ack",
    "tracing.after_ack",
    # the memory actor
    "memory.received",
    "memory.before_note",
    "memory.after_note",
    "memory.before_start",
    "memory.after_start",
    "memory.before_extracted",
    "memory.after_extracted",
    "memory.before_merged",
    "memory.after_merged",
    "memory.after_failed",
    "memory.before_edit",
    "memory.after_edit",
    "memory.before_discard",
    # changes of a memory by people
    "memory.before_change",
    "memory.after_change",
    "memory.before_finished",
    "memory.before_ack",
    "memory.after_ack",
    # the sessions actor
    "sessions.received",
    "sessions.before_commit",
    "sessions.after_commit",
    "sessions.before_outcome",
    "sessions.after_outcome",
    "sessions.before_interrupt",
    "sessions.after_interrupt",
    "sessions.before_start",
    "sessions.after_start",
    "sessions.before_record",
    "sessions.after_record",
    "sessions.before_checkpoint",
    "sessions.after_checkpoint",
    "sessions.before_timer",
    "sessions.after_timer",
    "sessions.before_sleep",
    "sessions.after_sleep",
    "sessions.before_wake",
    "sessions.after_wake",
    "sessions.before_discard",
    "sessions.after_discard",
    "sessions.before_switch",
    "sessions.switch_saved",
    "sessions.switch_opened",
    "sessions.switch_verified",
    "sessions.before_rewind",
    "sessions.after_rewind",
    "sessions.fork_recorded",
    "sessions.fork_copied",
    "sessions.before_fork",
    "sessions.before_ack",
    "sessions.after_ack",
    # runs that would outlive the log
    "expiry.before_end",
    "expiry.after_end",
    # the upgrade of an installation
    "upgrade.copy_begun",
    "upgrade.fenced",
    "upgrade.copied",
    "upgrade.noted_places",
    "upgrade.requests_begun",
    "upgrade.made_streams",
    "upgrade.deleted_log",
    "upgrade.promoted_copy",
    "upgrade.second_copy_begun",
    "upgrade.second_copied",
    "upgrade.promoted_log",
    "upgrade.restored_place",
    "upgrade.restored_places",
    "upgrade.rearmed",
    "upgrade.before_final",
    "upgrade.final",
    "upgrade.deleted_copy",
    # messages that cannot be handled
    "parking.before_park",
    "parking.after_park",
    "parking.before_end",
    "parking.after_end",
    # big payloads
    "objects.before_chunks",
    "objects.before_meta",
    "objects.after_meta",
    # callers
    "runner.before_start",
    "runner.after_start",
    "runner.before_move",
    "runner.after_move",
    "runner.before_retry",
    "runner.after_retry",
    "runner.after_restore",
    "runner.before_resume",
    "runner.after_resume",
    "client.before_submit",
    "client.after_submit",
    "client.before_cancel",
    "client.after_cancel",
    "client.before_retry",
    "client.after_retry",
    "client.before_decision",
    "client.after_decision",
    "worker.before_register",
    "worker.after_register",
)
"""All of them. A test compares the list with the calls, and kills a process at each."""

_armed, _count, _manner, *_ = (*variable("SANDSTREAM_CRASH_AT").split(":"), "", "")
_left = int(_count or "1")
_victim = int(variable("SANDSTREAM_CRASH_PID", "0"))


def crashpoint(name: str) -> None:
    """Die here, if a test asked for it."""
    global _left
    if name != _armed:
        return
    _left -= 1
    if _left == 0:
        os.write(2, f"crash point {name} at {time.time_ns()}\n".encode())
        harm = signal.SIGSTOP if _manner == "stop" else signal.SIGKILL
        os.kill(_victim or os.getpid(), harm)
