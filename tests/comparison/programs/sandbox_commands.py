"""Sandbox agents that run commands: `exec_command` and `write_stdin`."""

from typing import Any

from comparison.program import Probe
from comparison.sandboxes import (
    LAST_SESSION,
    box,
    commands,
    config,
    files,
    pointing_model,
    run,
    run_and_look,
    sandbox_program,
    worker,
)


@sandbox_program(commands("echo hello", "pwd; ls -A | wc -l"))
async def sandbox_command(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    commands("true", "exit 3", "kill -9 $$", "no-such-command-here", "sh -c 'exit 77'")
)
async def sandbox_exit_codes(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    commands(
        "echo out; sleep 0.1; echo err >&2",
        "echo only errors >&2; exit 1",
        "printf 'no newline'; sleep 0.1; printf 'none either' >&2",
        ":",
    )
)
async def sandbox_streams_of_a_command(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(commands("echo a; sleep 0.3; echo b >&2; sleep 0.3; echo c"))
async def sandbox_order_of_streams(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    commands(
        {"cmd": "pwd; cat a.txt", "workdir": "sub/deeper"},
        {"cmd": "pwd", "workdir": "."},
        {"cmd": "pwd", "workdir": ""},
        {"cmd": "pwd", "workdir": "sub/../sub"},
        {"cmd": "pwd; cat deeper/a.txt", "workdir": "sub/"},
    )
)
async def sandbox_workdir(sdk: Any, probe: Probe) -> Any:
    return await run_and_look(sdk, probe, entries=files(sdk, sub__deeper__a_dot_txt="A\n"))


@sandbox_program(
    commands(
        {"cmd": "touch made", "workdir": "not-there"},
        {"cmd": "touch made", "workdir": "../.."},
        {"cmd": "touch made", "workdir": "/etc"},
        {"cmd": "touch made", "workdir": "a.txt"},
    )
)
async def sandbox_workdir_that_cannot_be(sdk: Any, probe: Probe) -> Any:
    return await run_and_look(sdk, probe, entries=files(sdk, a_dot_txt="A"))


@sandbox_program(commands({"cmd": "pwd", "workdir": "out"}, {"cmd": "pwd", "workdir": "within"}))
async def sandbox_workdir_through_links(sdk: Any, probe: Probe) -> Any:
    client = box(sdk).UnixLocalSandboxClient()
    session = await client.create()
    async with session:
        await session.exec("mkdir real; ln -s real within; ln -s / out")
        result = await run(sdk, probe, session=session)
    await client.delete(session)
    return result


@sandbox_program(
    commands(
        {"cmd": "echo $0", "shell": "bash"},
        {"cmd": "shopt -q login_shell && echo login || echo no login", "shell": "bash"},
        {
            "cmd": "shopt -q login_shell && echo login || echo no login",
            "shell": "bash",
            "login": False,
        },
        {"cmd": "echo $0", "login": False},
        {"cmd": "echo $0", "shell": "/bin/sh", "login": True},
    )
)
async def sandbox_shells(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(commands({"cmd": "echo hi", "shell": "no-such-shell"}))
async def sandbox_unknown_shell(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    lambda m: [
        m.tool_call("exec_command", {}),
        m.tool_call("exec_command", {"cmd": ""}),
        m.tool_call("exec_command", {"cmd": 5}),
        m.tool_call("exec_command", {"cmd": "echo a", "yield_time_ms": -1}),
        m.tool_call("exec_command", {"cmd": "echo a", "max_output_tokens": 0, "tty": "perhaps"}),
        m.tool_call("exec_command", '{"cmd": '),
        m.tool_call("exec_command", "[]"),
        m.tool_call("exec_command", {"cmd": "echo fine", "unknown": 1, "yield_time_ms": "500"}),
        m.tool_call("exec_command", {"cmd": "echo nulls", "workdir": None, "shell": None}),
        m.text("Done."),
    ]
)
async def sandbox_bad_arguments(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    lambda m: [
        m.tool_call("write_stdin", {"session_id": 4321, "chars": "x"}),
        m.tool_call("write_stdin", {"session_id": 4321}),
        m.tool_call("write_stdin", {}),
        m.tool_call("write_stdin", {"session_id": "x"}),
        m.tool_call("write_stdin", {"session_id": 1, "yield_time_ms": -5}),
        m.text("Done."),
    ]
)
async def sandbox_stdin_of_nobody(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


def stdin(m: Any, **arguments: Any) -> Any:
    return m.tool_call("write_stdin", {"session_id": LAST_SESSION, **arguments})


@sandbox_program(
    lambda m: [
        m.tool_call(
            "exec_command",
            {"cmd": "read a; echo got:$a; read b; echo then:$b", "tty": True, "yield_time_ms": 400},
        ),
        stdin(m, chars="one\n", yield_time_ms=1500),
        stdin(m, chars="two\n", yield_time_ms=3000),
        stdin(m, chars="three\n"),
        m.text("Done."),
    ]
)
async def sandbox_dialog_with_a_terminal(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, model=pointing_model(sdk)))


@sandbox_program(
    lambda m: [
        m.tool_call("exec_command", {"cmd": "sleep 1.5; echo late", "yield_time_ms": 300}),
        stdin(m),
        m.text("Done."),
    ]
)
async def sandbox_poll_of_a_slow_command(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, model=pointing_model(sdk)))


@sandbox_program(
    lambda m: [
        m.tool_call("exec_command", {"cmd": "echo first; sleep 30", "yield_time_ms": 1500}),
        stdin(m, chars="to nobody"),
        m.text("Done."),
    ]
)
async def sandbox_stdin_without_a_terminal(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, model=pointing_model(sdk)))


@sandbox_program(
    lambda m: [
        m.tool_call("exec_command", {"cmd": "cat", "tty": True, "yield_time_ms": 300}),
        stdin(m, chars="\x03", yield_time_ms=3000),
        m.text("Done."),
    ]
)
async def sandbox_interrupt_from_the_keyboard(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, model=pointing_model(sdk)))


@sandbox_program(
    commands(
        {"cmd": "test -t 0 && echo terminal || echo none"},
        {"cmd": "test -t 0 && echo terminal || echo none; echo e >&2", "tty": True},
        {"cmd": "stty size; echo $TERM", "tty": True},
    )
)
async def sandbox_terminal_or_not(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    commands(
        {"cmd": "seq 1 400", "max_output_tokens": 40},
        {"cmd": "seq 1 5", "max_output_tokens": 40},
        {"cmd": "seq 1 400", "max_output_tokens": 5},
        {"cmd": "printf 'ä%.0s' $(seq 1 300)", "max_output_tokens": 21},
        {"cmd": "seq 1 200; sleep 0.2; seq 1 200 >&2", "max_output_tokens": 60},
    )
)
async def sandbox_output_is_cut(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(commands("seq 1 20000 | md5sum; seq 1 20000"))
async def sandbox_much_output(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    commands({"cmd": "head -c 3000000 /dev/zero | tr '\\0' x", "max_output_tokens": 99})
)
async def sandbox_flood(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    commands("printf '\\377\\376ok\\n'", "printf 'grün 🙂\\n'", "printf 'a\\rb\\033[1mc'")
)
async def sandbox_bytes_that_are_no_text(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(commands("cat; echo end", "(echo in background; true) & wait; echo $?"))
async def sandbox_stdin_is_empty(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    commands(
        "X=1; cd /tmp",
        "echo [$X]; pwd",
        "echo 'quotes \"and\" $HOME' # comment",
        "a=$(cat <<'E'\nx y\nE\n); echo $a",
    )
)
async def sandbox_commands_are_independent(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(
    lambda m: [
        m.tool_calls(
            ("exec_command", {"cmd": "echo one"}),
            ("exec_command", {"cmd": "echo two; exit 2"}),
            ("exec_command", {"cmd": "echo three"}),
        ),
        m.text("Done."),
    ]
)
async def sandbox_commands_side_by_side(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(commands("umask; echo x > f; mkdir d; ln -s f l; chmod 640 f", "ls -1"))
async def sandbox_what_commands_leave(sdk: Any, probe: Probe) -> Any:
    return await run_and_look(sdk, probe)


@sandbox_program(commands("echo $COLOUR-$FLAVOUR; env | grep -c COLOUR"))
async def sandbox_environment(sdk: Any, probe: Probe) -> Any:
    environment = box(sdk).Environment(value={"COLOUR": "blue", "FLAVOUR": "sweet sour"})
    return await run(sdk, probe, manifest=box(sdk).Manifest(environment=environment))


@sandbox_program(commands('echo "${COMPARISON_SECRET:-hidden}"'))
async def sandbox_environment_of_the_host(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(commands('echo "${COMPARISON_SECRET:-hidden}"; test -n "$PATH" && echo path'))
async def sandbox_environment_allowed(sdk: Any, probe: Probe) -> Any:
    client = box(sdk).UnixLocalSandboxClient(
        inherit_host_environment=False, host_environment_allowlist={"COMPARISON_SECRET"}
    )
    return await run(sdk, probe, client=client)


@sandbox_program(commands("echo hello", "echo again"))
async def sandbox_command_ends_the_run(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, tool_use_behavior="stop_on_first_tool"))


@sandbox_program(commands("echo hello", "echo again"))
async def sandbox_streamed(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(worker(sdk), probe.input, run_config=config(sdk))
