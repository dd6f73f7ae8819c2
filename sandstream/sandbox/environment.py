"""Environment variables of a sandbox: plain text, values resolved late, named secrets."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, SerializeAsAny, field_serializer, field_validator
from pydantic_core import PydanticSerializationError
from sandstream_bus.wire.sandboxes import EnvironmentValue

from sandstream.sandbox._registry import register_by_type, type_name
from sandstream.sandbox.materialization import gather_in_order

EnvValueClass = type["EnvValue"]


class EnvValue(BaseModel, abc.ABC):
    """Base of values that are resolved late. Subclasses register by the default of ``type``."""

    type: Any = ""
    """A text; each subclass narrows it to its own literal."""
    _by_type: ClassVar[dict[str, EnvValueClass]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "type" in inspect.get_annotations(cls) and type_name(cls):
            register_by_type(EnvValue._by_type, cls, "env value")

    @abc.abstractmethod
    async def resolve(self) -> str:
        """The text of the variable."""

    async def to_wire(self) -> EnvironmentValue:
        """The value as it is sent to the sandbox actor."""
        return EnvironmentValue(value=await self.resolve())

    @classmethod
    def parse(cls, payload: object) -> EnvValue:
        """A value from an ``EnvValue`` or from its serialized form.

        Args:
            payload: A value, which is returned unchanged, or a mapping with its ``type``; a mapping
                of ``value`` alone is plain text.
        """
        if isinstance(payload, EnvValue):
            return payload
        if not isinstance(payload, Mapping):
            raise TypeError(f"an env value must be an EnvValue or a mapping, not {_kind(payload)}")
        text = payload.get("value")
        if set(payload) == {"value"} and isinstance(text, str):
            return StrEnvValue(value=text)
        name = payload.get("type")
        if not isinstance(name, str):
            raise ValueError("an env value given as a mapping must say its `type`")
        value_class = EnvValue._by_type.get(name)
        if value_class is None:
            known = ", ".join(sorted(EnvValue._by_type))
            raise ValueError(f"unknown env value type `{name}`; known: {known}")
        return value_class.model_validate(dict(payload))


class StrEnvValue(EnvValue):
    """Plain text."""

    type: Literal["str"] = "str"
    value: str
    """The text of the variable."""

    async def resolve(self) -> str:
        return self.value


class SecretRef(EnvValue):
    """The name of a variable in the sandbox actor's own environment.

    Only the name is sent and stored; the actor puts the value into the sandbox.

    Example:
        Environment(value={"GITHUB_TOKEN": SecretRef("GITHUB_TOKEN")})
    """

    type: Literal["secret_ref"] = "secret_ref"
    name: str = Field(min_length=1)
    """The name of the variable."""

    def __init__(self, name: str, **data: Any) -> None:
        BaseModel.__init__(self, name=name, **data)

    async def resolve(self) -> str:
        raise RuntimeError(
            f"secret {self.name!r} is known only to the sandbox actor; it has no value here"
        )

    async def to_wire(self) -> EnvironmentValue:
        return EnvironmentValue(secret=self.name)


class EnvEntry(BaseModel):
    """A value with a description."""

    description: str | None = None
    """What the variable is for."""
    ephemeral: bool = False
    """Whether the variable is left out of the stored session."""
    value: SerializeAsAny[EnvValue]
    """The value, or its serialized form."""

    @field_validator("value", mode="before")
    @classmethod
    def _parse_value(cls, value: object) -> EnvValue:
        return EnvValue.parse(value)

    @field_serializer("value", mode="wrap")
    def _dump_value(self, value: EnvValue, handler: Any) -> dict[str, Any]:
        return _with_type(value, handler(value))


class Environment(BaseModel):
    """Variables by name; each is a text, an :class:`EnvValue` or an :class:`EnvEntry`.

    Example:
        Environment(value={"LANG": "C.UTF-8", "GITHUB_TOKEN": SecretRef("GITHUB_TOKEN")})
    """

    value: dict[str, str | SerializeAsAny[EnvValue] | EnvEntry] = Field(default_factory=dict)
    """The variables."""

    @field_validator("value", mode="before")
    @classmethod
    def _parse_value(cls, value: object) -> dict[str, str | EnvValue | EnvEntry]:
        if not isinstance(value, Mapping):
            raise ValueError(f"environment must be a mapping of names, not {_kind(value)}")
        return {name: _parse_member(member) for name, member in value.items()}

    @field_serializer("value", mode="wrap")
    def _dump_value(
        self, value: dict[str, str | EnvValue | EnvEntry], handler: Any
    ) -> dict[str, Any]:
        dumped = dict(handler(value))
        for name, member in value.items():
            if isinstance(member, EnvValue) and name in dumped:
                dumped[name] = _with_type(member, dumped[name])
        return dumped

    def normalized(self) -> dict[str, EnvEntry]:
        """Every variable as an entry."""
        return {name: _as_entry(member) for name, member in self.value.items()}

    async def resolve(self) -> dict[str, str]:
        """Every variable as text. If one value fails, the others are cancelled."""
        entries = self.normalized()
        texts = await gather_in_order([entry.value.resolve for entry in entries.values()])
        return dict(zip(entries, texts, strict=True))

    async def to_wire(self) -> dict[str, EnvironmentValue]:
        """Every variable in its wire form: secrets by name only."""
        entries = self.normalized()
        values = await gather_in_order([entry.value.to_wire for entry in entries.values()])
        return dict(zip(entries, values, strict=True))


def _as_entry(member: str | EnvValue | EnvEntry) -> EnvEntry:
    if isinstance(member, EnvEntry):
        return member
    return EnvEntry(value=StrEnvValue(value=member) if isinstance(member, str) else member)


def _parse_member(payload: object) -> str | EnvValue | EnvEntry:
    if isinstance(payload, str | EnvValue | EnvEntry):
        return payload
    if not isinstance(payload, Mapping):
        raise TypeError(
            f"a variable must be text, an EnvValue or an EnvEntry, not {_kind(payload)}"
        )
    if "type" in payload or isinstance(payload.get("value"), str):
        return EnvValue.parse(payload)
    return EnvEntry.model_validate(dict(payload))


def _with_type(value: EnvValue, dumped: object) -> dict[str, Any]:
    """The serialized form with ``type``, which is needed to parse it again."""
    if EnvValue._by_type.get(value.type) is not type(value):
        raise PydanticSerializationError(
            f"{type(value).__name__} has no `type` of its own and could not be read back"
        )
    if not isinstance(dumped, Mapping):
        raise PydanticSerializationError(f"{type(value).__name__} must be dumped as a mapping")
    return {**dumped, "type": value.type}


def _kind(value: object) -> str:
    return type(value).__name__
