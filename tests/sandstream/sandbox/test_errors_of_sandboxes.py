"""The sandbox errors: their codes and facts, pickling, and the way over the bus."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest
from sandstream_bus.wire.sandboxes import SandboxFailure

from sandstream.sandbox import errors
from sandstream.sandbox.types import ExecResult

HERE = Path("p")
SAMPLES: list[tuple[errors.SandboxError, str, str, bool | None]] = [
    (
        errors.InvalidManifestPathError(rel="x", reason="absolute"),
        "invalid_manifest_path",
        "materialize",
        False,
    ),
    (
        errors.InvalidCompressionSchemeError(path=HERE, scheme="rar"),
        "invalid_compression_scheme",
        "write",
        False,
    ),
    (
        errors.ExposedPortUnavailableError(
            port=1, exposed_ports=(2,), reason="not_configured", retryable=True
        ),
        "exposed_port_unavailable",
        "resolve_exposed_port",
        False,
    ),
    (errors.ExecTimeoutError(command=["a", "b"], timeout_s=1.5), "exec_timeout", "exec", False),
    (
        errors.ExecTransportError(command=["a"], retryable=True),
        "exec_transport_error",
        "exec",
        True,
    ),
    (errors.PtySessionNotFoundError(session_id=4), "pty_session_not_found", "exec", False),
    (
        errors.ApplyPatchPathError(path="x", reason="empty"),
        "apply_patch_invalid_path",
        "apply_patch",
        False,
    ),
    (
        errors.ApplyPatchDiffError(message="m", path="p"),
        "apply_patch_invalid_diff",
        "apply_patch",
        False,
    ),
    (errors.WorkspaceReadNotFoundError(path=HERE), "workspace_read_not_found", "read", False),
    (
        errors.WorkspaceArchiveWriteError(path=HERE, retryable=True),
        "workspace_archive_write_error",
        "write",
        True,
    ),
    (errors.WorkspaceStartError(path=HERE), "workspace_start_error", "start", None),
    (errors.LocalDirReadError(src=HERE), "local_dir_read_error", "materialize", False),
    (errors.GitCloneError(url="u", ref="r"), "git_clone_error", "materialize", None),
    (errors.MountConfigError(message="m"), "mount_config_invalid", "materialize", False),
    (
        errors.SnapshotNotRestorableError(snapshot_id="i", path=HERE),
        "snapshot_not_restorable",
        "snapshot_restore",
        False,
    ),
    (errors.WorkspaceLostError(sandbox="s", reason="node died"), "workspace_lost", "exec", False),
    (errors.ProviderUnavailableError(provider="local"), "provider_unavailable", "start", True),
    (errors.SandboxLimitError(limit="memory"), "sandbox_limit", "exec", False),
]


@pytest.mark.parametrize(("error", "code", "op", "retryable"), SAMPLES, ids=lambda it: str(it)[:20])
def test_each_class_has_its_code(
    error: errors.SandboxError, code: str, op: str, retryable: bool | None
) -> None:
    assert (error.code, str(error.error_code), error.op, error.retryable) == (
        code,
        code,
        op,
        retryable,
    )


@pytest.mark.parametrize("error", [sample[0] for sample in SAMPLES], ids=lambda it: it.code)
def test_an_error_crosses_the_bus_with_its_class_and_facts(error: errors.SandboxError) -> None:
    sent = msgspec.json.encode(errors.failure_of(error, "ignored"))
    received = errors.error_from_failure(msgspec.json.decode(sent, type=SandboxFailure))
    assert type(received) is type(error)
    assert (received.code, received.message, received.op) == (error.code, error.message, error.op)
    assert msgspec.json.encode(received.context) == msgspec.json.encode(error.context)
    assert received.retryable is bool(error.retryable)
    own = {"timeout_s", "command", "session_id"} & set(vars(error))
    assert {name: getattr(received, name) for name in own} == {
        name: getattr(error, name) for name in own
    }


def test_the_context_of_the_caller_wins() -> None:
    error = errors.LocalFileReadError(src=HERE, context={"reason": "why", "src": "other"})
    assert error.context == {"src": "other", "reason": "why"}


def test_retryable_is_inherited_from_the_cause() -> None:
    cause = errors.ExecTransportError(command=["a"], retryable=True)
    error = errors.WorkspaceStartError(path=HERE, cause=cause)
    assert error.retryable is True
    assert error.__cause__ is cause
    assert errors.WorkspaceStartError(path=HERE, cause=OSError()).retryable is None


def test_a_failed_command_shows_its_output() -> None:
    result = ExecResult(stdout=b"o\xff", stderr=b"e", exit_code=3)
    error = errors.ExecNonZeroError(result, command=["x", HERE])
    assert error.message == "stdout: o\ufffd\nstderr: e"
    assert (error.exit_code, error.stdout, error.command) == (3, b"o\xff", ("x", "p"))
    assert error.context == {
        "command": ("x", "p"),
        "command_str": "x p",
        "exit_code": 3,
        "stdout": "o\ufffd",
        "stderr": "e",
    }
    received = errors.error_from_failure(errors.failure_of(error))
    assert isinstance(received, errors.ExecNonZeroError)
    assert (received.exit_code, received.stderr) == (3, b"e")


def test_errors_can_be_pickled() -> None:
    error = errors.ExecTimeoutError(command=["sleep", "9"], timeout_s=1)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is errors.ExecTimeoutError
    assert (copy.command, copy.timeout_s, copy.error_code) == (
        ("sleep", "9"),
        1,
        errors.ErrorCode.EXEC_TIMEOUT,
    )
    assert type(copy).__module__ == "sandstream.sandbox.errors"


def test_an_unknown_code_becomes_the_root_class() -> None:
    error = errors.error_from_failure(SandboxFailure(code="new_code", message="m", op="exec"))
    assert type(error) is errors.SandboxError
    assert (error.code, error.message) == ("new_code", "m")


def test_what_is_no_sandbox_error_is_named() -> None:
    failure = errors.failure_of(KeyError("k"), "read")
    assert failure == SandboxFailure(code="unexpected", message="KeyError: 'k'", op="read")


def test_facts_that_are_not_json_are_sent_as_text() -> None:
    error = errors.MountConfigError(
        message="m", context={"path": HERE, "raw": b"\xff", "nested": {1: {HERE}}}
    )
    assert errors.failure_of(error).context == {
        "path": "p",
        "raw": "\ufffd",
        "nested": {"1": ["p"]},
    }


def test_every_code_of_a_class_leads_back_to_it() -> None:
    for code, error_class in errors.SandboxError.by_code.items():
        assert error_class.class_code == code
        assert getattr(errors, error_class.__name__) is error_class
    without_class = {"sandbox_config_invalid"}
    assert set(errors.ErrorCode) - set(errors.SandboxError.by_code) == without_class
