"""The section about skills in the system prompt."""

from __future__ import annotations

from collections.abc import Sequence

_INTRO = """
Skills are instructions for particular kinds of tasks. Each is a directory with a `SKILL.md` and,
where needed, scripts, references and assets. This section lists what each is for; the instructions
themselves are in the files.
""".strip()

_RUN_PATHS = """
### Run-scoped skill paths
- The listed paths are absolute. What a `SKILL.md` refers to lies below its own directory, wherever
  the command that uses it runs.
- Skills belong to the sandbox, and other runs may use them too. Put inputs, results and temporary
  files of the task into the working directory, not next to the skill, unless changing the skill is
  the task.
""".strip()

_LAZY = """
### Lazy loading
- The listed files are not in the workspace yet.
- Call `load_skill` with the name of a skill before you read its files. It brings exactly one skill
  to the listed path; call it once for each skill that you need.
""".strip()

_HOW_TO_USE = """
### How to use skills
- Use a skill when the user names it (`$name` or in plain words), or when the task is plainly what
  its description says; if several fit, use as few as cover the task, and say in which order. A
  skill counts for the request at hand, not for later ones.
- {first_step} Read as much of it as you need to follow it.
- Read references only as they are needed, and only those that matter here; do not follow
  references of references without a reason.
- Run or adapt the scripts of a skill rather than writing your own, and start from its templates and
  assets.
- Say in one line which skill you use and why, or why you leave out one that seems to fit.
- If a skill is missing, cannot be read or does not work here, say so and go on with the next best
  way.
""".strip()

_OPEN = "Open its `SKILL.md` first."
_LOAD_AND_OPEN = "Load it with `load_skill` and open its `SKILL.md` first."


def skills_section(skills: Sequence[tuple[str, str, str]], *, lazy: bool, has_cwd: bool) -> str:
    """The section for skills given as name, description and path."""
    parts = [
        "## Skills",
        _INTRO,
        "### Available skills",
        *(f"- {name}: {description} (file: {path})" for name, description, path in skills),
    ]
    if has_cwd:
        parts.append(_RUN_PATHS)
    if lazy:
        parts.append(_LAZY)
    parts.append(_HOW_TO_USE.format(first_step=_LOAD_AND_OPEN if lazy else _OPEN))
    return "\n".join(parts)
