"""The differences of sandbox agents that we keep on purpose; see `differences.py`."""

from __future__ import annotations

from comparison.differences import Expected

_OUTPUT = ("result.items.*.output", "result.input_list.*.output", "requests.*.output")
"""Where the output of a tool is seen."""
_GOES_ON = ("error", "result", "requests")
"""The peer's run fails; ours goes on, because the model is told."""

EXPECTED: tuple[Expected, ...] = (
    Expected(
        "Sandboxes are isolated",
        "commands do not see the host's environment unless they are allowed to",
        ("sandbox_environment_of_the_host",),
        _OUTPUT,
    ),
    Expected(
        "Sandboxes are isolated",
        "nor its files",
        ("sandbox_guide_grants",),
        ("notes.0.1",),
    ),
    Expected(
        "Commands in sandboxes",
        "what a signal ended has the exit code that shells give: 128 and the signal",
        ("sandbox_exit_codes", "sandbox_interrupt_from_the_keyboard"),
        _OUTPUT,
    ),
    Expected(
        "Commands in sandboxes",
        "a terminal has a size and a name",
        ("sandbox_terminal_or_not",),
        _OUTPUT,
    ),
    Expected(
        "Commands in sandboxes",
        "a shell that is not there, or a skill, is told to the model",
        ("sandbox_guide_unknown_skill", "sandbox_unknown_shell"),
        _GOES_ON,
    ),
    Expected(
        "Patches are all or nothing",
        "no file is changed if one of them cannot be",
        ("sandbox_patch_fails_half_way",),
        ("notes.0.0",),
    ),
    Expected(
        "Patches are all or nothing",
        "a file that is moved keeps its mode",
        ("sandbox_patch_moves",),
        ("notes.0.0.1.2",),
    ),
    Expected(
        "Patches are all or nothing",
        "the model is told what is wrong with the path that it wrote",
        ("sandbox_patch_failures", "sandbox_patch_through_a_link_out"),
        _OUTPUT,
    ),
    Expected(
        "Workspaces",
        "a local directory keeps the modes of its files",
        ("sandbox_local_sources",),
        (*_OUTPUT, "notes.0.0.4.2"),
    ),
    Expected(
        "Workspaces",
        "a file's content may be any bytes, in a saved state too",
        ("sandbox_state_of_a_file_of_bytes",),
        ("error", "result"),
    ),
    Expected(
        "Workspaces",
        "capabilities add their files also if there is no manifest",
        ("sandbox_own_capability_without_a_manifest",),
        (*_OUTPUT, "notes", "requests.*.body.instructions.*"),
    ),
    Expected(
        "Workspaces",
        "the input is processed once, not before each turn",
        ("sandbox_own_capability",),
        ("notes",),
    ),
    Expected(
        "Workspaces",
        "an image that ends a run is its content as JSON",
        ("sandbox_image_ends_the_run",),
        ("result.final_output",),
    ),
    Expected(
        "Sandbox sessions",
        "one agent object may be in several runs at once",
        ("sandbox_agent_in_two_runs_at_once",),
        ("notes.0.0.1", "requests"),
    ),
    Expected(
        "Sandbox sessions",
        "errors say what was wrong, not how it was tried",
        ("sandbox_session_failures",),
        ("notes.5.*", "notes.6.*", "notes.12.*"),
    ),
    Expected(
        "Sandbox sessions",
        "an entry that would be the workspace itself is found when the session starts",
        ("sandbox_paths_that_cannot_be",),
        ("notes.5.*", "notes.6.*"),
    ),
    Expected(
        "Sandbox sessions",
        "an archive that was extracted is not left in the workspace",
        ("sandbox_archives",),
        ("notes.0.0",),
    ),
    Expected(
        "Sandbox sessions",
        "apply_patch says what it did",
        ("sandbox_session_patches",),
        ("notes.0.0",),
    ),
    Expected(
        "Error messages",
        "our own words, about sandboxes too",
        (
            "sandbox_client_is_missing",
            "sandbox_config_is_missing",
            "sandbox_local_directory_with_a_link",
            "sandbox_patches_on_chat_completions",
            "sandbox_path_that_escapes",
            "sandbox_run_as_in_a_local_one",
            "sandbox_run_as_in_a_session",
            "sandbox_state_of_another_backend",
            "sandbox_users_of_a_local_one",
            "sandbox_working_directory_missing_in_a_session",
            "sandbox_working_directory_that_is_missing",
        ),
        ("error.message",),
    ),
    Expected(
        "Wrong arguments are found earlier",
        "before the run there is no run_data",
        (
            "sandbox_capability_that_needs_another",
            "sandbox_working_directory_missing_in_a_session",
            "sandbox_working_directory_that_is_missing",
        ),
        ("error.run_data",),
    ),
    Expected(
        "Wrong arguments are found earlier",
        "agents and configurations check themselves when they are made",
        ("sandbox_wrong_arguments",),
        ("notes.0.1", "notes.4.1", "notes.7.1"),
    ),
    Expected(
        "The turn that failed is shown",
        "the log has it, so run_data has it",
        ("sandbox_unknown_tool",),
        ("error.run_data.items", "error.run_data.responses"),
    ),
)
