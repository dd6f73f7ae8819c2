"""The script: which step answers which request.

Owns `Script` with its JSON form, conversation scripts, the choice of a step and the record of used
steps. A conversation script keeps no state: the number of answers in the request's conversation
determines the step, so a request repeated after a crash gets the same answer again. Only faults are
counted, per distinct request: each occurs its number of times and is then skipped.
"""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from sandstream_bus.counts import numbered

from sandstream.testing.journal import Request
from sandstream.testing.request_reader import count_answers, first_user_text
from sandstream.testing.steps import Step


class ScriptError(AssertionError):
    """The script was not followed: a request was unexpected, or a step was not used."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answers for every conversation whose text contains `match`.

    Example:
        greeting = Conversation(match="Hello", steps=(text("Hi!"), text("Bye!")))
    """

    match: str
    """The text that selects the conversation."""
    steps: tuple[Step, ...]
    """Its answers, in order."""
    name: str = ""
    """A name for the journal and for error messages."""

    @property
    def label(self) -> str:
        return self.name or self.match or "default"


class Script(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All answers of a server: by conversation first, then the list, then the default.

    Example:
        script = Script(steps=(text("Hi!"),), default=script_for("", [text("What?")]))
        Path("script.json").write_bytes(script.to_json())
    """

    steps: tuple[Step, ...] = ()
    """Answers in order, for requests that no conversation matches."""
    conversations: tuple[Conversation, ...] = ()
    """Answers for single conversations."""
    default: Conversation | None = None
    """Answers for all other requests."""

    def to_json(self) -> bytes:
        """The script as JSON, for `python -m sandstream.testing.server`.

        Returns:
            The JSON text.

        Raises:
            ScriptError: A step has a Python predicate.
        """
        for step in self._all_steps():
            if step.predicate is not None:
                raise ScriptError(
                    f"a Python predicate cannot be written as JSON (step {step.name or step.action}"
                    "): use a substring in when(), or run the model in-process"
                )
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @staticmethod
    def from_json(data: bytes | str) -> "Script":
        """Read a script from the result of `to_json`.

        Args:
            data: The JSON text.

        Returns:
            The script.
        """
        return msgspec.json.decode(data, type=Script)

    def _all_steps(self) -> list[Step]:
        chosen = [*self.conversations, *([self.default] if self.default else [])]
        return [*self.steps, *(step for one in chosen for step in one.steps)]


def script_for(match: str, steps: Iterable[Step], *, name: str = "") -> Conversation:
    """Answers for one conversation.

    Args:
        match: A part of the first user message, or of any text of the conversation.
        steps: The answers, in order.
        name: A name for the journal and for error messages.

    Returns:
        The conversation.

    Example:
        ScriptedModel(conversations=[script_for("Ann asks", [text("Hello Ann.")])])
    """
    return Conversation(match=match, steps=tuple(steps), name=name)


class Choice(msgspec.Struct, frozen=True):
    """The step for a request, and the prefixes of its ids."""

    step: Step
    label: str
    call_prefix: str
    response_prefix: str = ""
    conversation: str | None = None
    position: int | None = None


class Selector:
    """Chooses steps for one server and records their use."""

    def __init__(self, script: Script, salt: str) -> None:
        self._steps = script.steps
        self._used = [0] * len(script.steps)
        self._salt = salt
        self._taken = 0
        self._rules = [_Rule(one) for one in script.conversations]
        # "run-1" also occurs in "run-10": the longest match is the intended one.
        self._by_length = sorted(self._rules, key=lambda rule: -len(rule.script.match))
        self._default = _Rule(script.default) if script.default else None
        known = [*self._rules, *([self._default] if self._default else [])]
        self._by_digest = {rule.digest[:8]: rule for rule in known}

    def choose(self, request: Request) -> Choice | None:
        """The step that answers this request; ``None`` if the script has none."""
        rule, earlier = self._continued(request)
        if rule is None:
            rule = self._matching(request)
        if rule is not None:
            return rule.choose(request, earlier)
        for index, step in enumerate(self._steps):
            if step.repeat is not None and self._used[index] >= step.repeat:
                continue
            if step.accepts(request):
                self._used[index] += 1
                self._taken += 1
                prefix = _call_prefix(self._salt, self._taken)
                return Choice(step=step, label=step.name or str(index), call_prefix=prefix)
        return self._default.choose(request, earlier) if self._default else None

    def unused(self) -> list[str]:
        """Descriptions of the steps that should have answered and did not."""
        lines: list[str] = []
        for index, step in enumerate(self._steps):
            missing = (step.repeat or 0) - self._used[index]
            if missing > 0:
                more = numbered(missing, "more time")
                lines.append(f"steps[{index}] {more}: {_describe(step)}")
        for rule in self._rules:
            lines.extend(rule.unused())
        if self._default and self._default.used:
            lines.extend(self._default.unused())
        return lines

    def _continued(self, request: Request) -> "tuple[_Rule | None, int]":
        """The script, and the number of answers, of a conversation that the API stores."""
        previous = request.body.get("previous_response_id")
        if not isinstance(previous, str) or not previous.startswith("resp_"):
            return None, 0
        rule = self._by_digest.get(previous[5:13])
        try:
            return (rule, int(previous[13:17], 16) + 1) if rule else (None, 0)
        except ValueError:
            return None, 0

    def _matching(self, request: Request) -> "_Rule | None":
        if not self._rules:
            return None
        first = first_user_text(request.body)
        for rule in self._by_length:
            if rule.script.match in first:
                return rule
        everything = request.text
        return next((rule for rule in self._by_length if rule.script.match in everything), None)


class _Rule:
    """One conversation script in use."""

    def __init__(self, script: Conversation) -> None:
        self.script = script
        self.digest = hashlib.sha256(script.label.encode()).hexdigest()
        self.used: set[int] = set()
        self._faults_given: dict[tuple[int, int], int] = {}

    def choose(self, request: Request, earlier: int) -> Choice | None:
        position = earlier + count_answers(request.body)
        first = 0
        for index, step in enumerate(self.script.steps):
            if not step.accepts(request):
                continue
            if step.adds_answer:
                if step.repeat is None or position < first + step.repeat:
                    return self._chosen(index, step, position)
                first += step.repeat
            elif position == first and self._fault_is_due(index, step, request):
                return self._chosen(index, step, position)
        return None

    def unused(self) -> list[str]:
        return [
            f"conversation {self.script.label!r} steps[{index}]: {_describe(step)}"
            for index, step in enumerate(self.script.steps)
            if index not in self.used and step.repeat is not None
        ]

    def _fault_is_due(self, index: int, step: Step, request: Request) -> bool:
        if step.repeat is None:
            return True
        body = request.body
        asked = msgspec.json.encode(body.get("messages") or body.get("input"))
        key = (index, hash(asked))
        given = self._faults_given.get(key, 0)
        self._faults_given[key] = given + 1
        return given < step.repeat

    def _chosen(self, index: int, step: Step, position: int) -> Choice:
        self.used.add(index)
        return Choice(
            step=step,
            label=step.name or str(index),
            call_prefix=_call_prefix(self.digest, position),
            response_prefix=f"{self.digest[:8]}{position:04x}",
            conversation=self.script.label,
            position=position,
        )


def as_conversation(default: Conversation | Sequence[Step] | None) -> Conversation | None:
    """Bare steps become a conversation that matches anything."""
    if default is None or isinstance(default, Conversation):
        return default
    return Conversation(match="", steps=tuple(default), name="default")


def _call_prefix(seed: str, position: int) -> str:
    return f"call_{hashlib.sha256(seed.encode()).hexdigest()[:18]}{position:04x}"


def _describe(step: Step) -> str:
    shown = msgspec.json.encode(step.action).decode()
    return shown if len(shown) <= 120 else shown[:117] + "..."
