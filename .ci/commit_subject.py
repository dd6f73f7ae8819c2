"""Checks the subject of a commit message: `area: imperative`, at most 72 characters.

python .ci/commit_subject.py FILE    exit code 1 and the reason on stderr if the subject is wrong
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MAX_LENGTH = 72
MADE_BY_GIT = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ?")
SUBJECT = re.compile(
    r"(?P<areas>[a-z][a-z0-9_./-]*(, [a-z][a-z0-9_./-]*)*): (?P<verb>[\w-]+)( .*)?"
)
NOT_IMPERATIVE = re.compile(r"\w+(ed|ing|[^s]es)|adds|fixes|makes|moves|removes|the|an?|no|all")
"""Past tenses, participles, third persons and nouns with an article."""
IMPERATIVE = frozenset(
    {"bring", "embed", "feed", "need", "seed", "shed", "speed", "spring", "string"}
)
"""Imperatives that look like something else."""


def fault(message: str) -> str | None:
    """What is wrong with the subject of a message; None if it is right."""
    lines = [it for it in message.splitlines() if not it.startswith("#")]
    subject = lines[0] if lines else ""
    if not subject.strip():
        return "the subject is empty"
    if MADE_BY_GIT.match(subject):
        return None
    if len(subject) > MAX_LENGTH:
        return f"the subject has {len(subject)} characters; {MAX_LENGTH} are allowed"
    found = SUBJECT.fullmatch(subject)
    if found is None:
        return "the subject must be `area: imperative`, as in `bus: check every read`"
    verb = found["verb"]
    if verb[0].isupper():
        return f"{verb!r} must begin with a small letter"
    if NOT_IMPERATIVE.fullmatch(verb) and verb not in IMPERATIVE:
        return f"{verb!r} is not an imperative; write what the commit does, as in `add`, `fix`"
    if subject.endswith("."):
        return "the subject must not end with a full stop"
    if len(lines) > 1 and lines[1].strip():
        return "the second line must be empty"
    return None


def main() -> int:
    message = Path(sys.argv[1]).read_text(encoding="utf-8")
    why = fault(message)
    if why is not None:
        print(f"commit message refused: {why}", file=sys.stderr)
    return 0 if why is None else 1


if __name__ == "__main__":
    sys.exit(main())
