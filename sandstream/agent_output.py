"""The type of an agent's final output: its JSON schema, and parsing of the model's text.

The type decides which library does the work: msgspec for types that contain a ``msgspec.Struct``,
pydantic for all others. Providers require an object at the root, so any other type is wrapped as
``{"response": ...}`` and unwrapped after validation.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Union, get_args, get_origin

import msgspec
from sandstream_bus.environment import shows_model_data
from sandstream_bus.wire.error_text import error_text

from sandstream.exceptions import ModelBehaviorError, UserError
from sandstream.strict_schema import ensure_strict_json_schema

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["AgentOutputSchema", "AgentOutputSchemaBase"]

_WRAPPER_KEY = "response"
_WRAPPER_NAME = "OutputType"


class AgentOutputSchemaBase(abc.ABC):
    """The output schema of an agent. Subclass it for a format of your own.

    Example:
        class Lines(AgentOutputSchemaBase):
            def is_plain_text(self) -> bool:
                return False

            def name(self) -> str:
                return "Lines"

            def json_schema(self) -> dict[str, Any]:
                return {"type": "object", "properties": {"lines": {"type": "array"}}}

            def is_strict_json_schema(self) -> bool:
                return False

            def validate_json(self, json_str: str) -> list[str]:
                return json.loads(json_str)["lines"]


        agent = Agent(name="Poet", output_type=Lines())
    """

    @abc.abstractmethod
    def is_plain_text(self) -> bool:
        """Whether the output is the model's text as it is."""

    @abc.abstractmethod
    def name(self) -> str:
        """The name of the output type, for people and traces."""

    @abc.abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """The schema the model must follow. Not called for plain text."""

    @abc.abstractmethod
    def is_strict_json_schema(self) -> bool:
        """Whether the provider is asked to enforce the schema."""

    @abc.abstractmethod
    def validate_json(self, json_str: str) -> Any:
        """Read the model's text.

        Args:
            json_str: The text.

        Returns:
            The value.

        Raises:
            ModelBehaviorError: The text does not fit the schema.
        """


class _Engine(Protocol):
    def json_schema(self) -> dict[str, Any]: ...

    def decode(self, json_str: str, *, strict: bool) -> Any: ...


@dataclass(init=False)
class AgentOutputSchema(AgentOutputSchemaBase):
    """The output schema of a Python type.

    Args:
        output_type: A pydantic model, a dataclass, a TypedDict, a msgspec struct or a plain type;
            ``None`` and ``str`` are plain text.
        strict_json_schema: Let the provider enforce the schema. Use ``False`` for types that cannot
            be strict, such as ``dict[str, int]``.

    Raises:
        UserError: JSON cannot describe the type, or it cannot be strict.

    Example:
        schema = AgentOutputSchema(dict[str, int], strict_json_schema=False)
        agent = Agent(name="Counter", output_type=schema)
    """

    output_type: Any
    _strict: bool = field(repr=False)
    _wrapped: bool = field(repr=False)
    _engine: _Engine | None = field(repr=False)
    _schema: dict[str, Any] = field(repr=False)

    def __init__(self, output_type: Any, strict_json_schema: bool = True) -> None:
        self.output_type = output_type
        self._strict = strict_json_schema
        self._engine = None
        self._wrapped = False
        self._schema = {}
        if self.is_plain_text():
            return
        if _has_struct(output_type):
            self._wrapped = not _is_struct(output_type)
            self._engine = _MsgspecEngine(output_type, wrapped=self._wrapped)
        else:
            self._wrapped = not _is_pydantic_object(output_type)
            self._engine = _PydanticEngine(output_type, wrapped=self._wrapped)
        self._schema = self._engine.json_schema()
        if strict_json_schema:
            self._schema = self._made_strict(self._schema)

    def _made_strict(self, schema: dict[str, Any]) -> dict[str, Any]:
        try:
            return ensure_strict_json_schema(schema)
        except UserError as error:
            raise UserError(
                f"The output type {self.name()} cannot have a strict JSON schema. {error} "
                f"Change the type, or use AgentOutputSchema({self.name()}, "
                "strict_json_schema=False)."
            ) from error

    def is_plain_text(self) -> bool:
        return self.output_type is None or self.output_type is str

    def is_strict_json_schema(self) -> bool:
        return self._strict

    def name(self) -> str:
        return _type_name(self.output_type)

    def json_schema(self) -> dict[str, Any]:
        if self.is_plain_text():
            raise UserError(
                "The output type is plain text, so there is no JSON schema. "
                "Ask is_plain_text() first."
            )
        return self._schema

    def validate_json(self, json_str: str) -> Any:
        if self._engine is None:
            return json_str
        try:
            value = self._engine.decode(json_str, strict=self._strict)
        except (ValueError, msgspec.MsgspecError) as error:
            if _shows_model_data():
                raise ModelBehaviorError(
                    f"Invalid JSON when parsing model output for {self.name()}: {error_text(error)}"
                ) from error
            # The text may contain anything a user said, so errors and logs leave it out.
            raise ModelBehaviorError(
                f"Invalid JSON when parsing model output for {self.name()}"
            ) from None
        return value


class _PydanticEngine:
    def __init__(self, output_type: Any, *, wrapped: bool) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError
        from typing_extensions import TypedDict

        self._wrapped = wrapped
        self._name = _type_name(output_type)
        typed_dict: Any = TypedDict  # type checkers know only typed dicts with literal names
        target = typed_dict(_WRAPPER_NAME, {_WRAPPER_KEY: output_type}) if wrapped else output_type
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(target)
        except PydanticUserError as error:
            raise self._undescribable(error) from error

    def json_schema(self) -> dict[str, Any]:
        from pydantic.errors import PydanticUserError

        try:
            return self._adapter.json_schema()
        except PydanticUserError as error:
            raise self._undescribable(error) from error

    def _undescribable(self, error: Exception) -> UserError:
        return UserError(
            f"The output type {self._name} cannot be described in JSON. "
            f"{str(error).splitlines()[0]} Use a pydantic model, a dataclass, a TypedDict, a "
            "msgspec.Struct or plain types."
        )

    def decode(self, json_str: str, *, strict: bool) -> Any:
        value = self._adapter.validate_json(json_str, strict=True if strict else None)
        return value[_WRAPPER_KEY] if self._wrapped else value


class _MsgspecEngine:
    def __init__(self, output_type: Any, *, wrapped: bool) -> None:
        self._wrapped = wrapped
        self._type: Any = output_type
        if wrapped:
            self._type = msgspec.defstruct(_WRAPPER_NAME, [(_WRAPPER_KEY, output_type)])

    def json_schema(self) -> dict[str, Any]:
        """The struct's schema with its own definition at the root instead of a ``$ref``."""
        schema = msgspec.json.schema(self._type)
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return schema
        definitions: dict[str, Any] = dict(schema["$defs"])
        name = ref.rsplit("/", 1)[1]
        root = dict(definitions[name])
        if not _mentions(definitions, ref):
            del definitions[name]
        if definitions:
            root["$defs"] = definitions
        return root

    def decode(self, json_str: str, *, strict: bool) -> Any:
        value = msgspec.json.decode(json_str, type=self._type, strict=strict)
        return getattr(value, _WRAPPER_KEY) if self._wrapped else value


def _mentions(node: Any, ref: str) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == ref or any(_mentions(child, ref) for child in node.values())
    return isinstance(node, list) and any(_mentions(child, ref) for child in node)


def _is_struct(tp: Any) -> bool:
    cls = get_origin(tp) or tp
    return isinstance(cls, type) and issubclass(cls, msgspec.Struct)


def _has_struct(tp: Any) -> bool:
    return _is_struct(tp) or any(_has_struct(arg) for arg in get_args(tp))


def _is_pydantic_object(tp: Any) -> bool:
    """Whether the type is a JSON object by itself: a pydantic model or any kind of dict."""
    from pydantic import BaseModel

    cls = get_origin(tp) or tp
    return isinstance(cls, type) and issubclass(cls, BaseModel | dict)


def _type_name(tp: Any) -> str:
    origin, args = get_origin(tp), get_args(tp)
    if origin is None or not args:
        return str(getattr(tp, "__name__", tp))
    base = "Union" if origin is Union else getattr(tp, "__name__", None) or origin.__name__
    return f"{base}[{', '.join(map(_argument_name, args))}]"


def _argument_name(arg: Any) -> str:
    is_type = isinstance(arg, type) or get_origin(arg) is not None
    return _type_name(arg) if is_type else repr(arg)


def _shows_model_data() -> bool:
    return shows_model_data()
