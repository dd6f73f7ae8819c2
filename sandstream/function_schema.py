"""Turns a Python function into the JSON schema for a model, and a model's arguments into a call.

Types and defaults become a pydantic model; the docstring provides its descriptions. ``pydantic`` is
imported for the first function, so that ``import sandstream`` stays fast.
"""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from sandstream._surface.docstrings import DocstringStyle, parse_docstring
from sandstream.exceptions import ModelBehaviorError, UserError
from sandstream.run_context import RunContextWrapper
from sandstream.strict_schema import ensure_strict_json_schema

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["DocstringStyle", "FuncSchema", "function_schema"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass
class FuncSchema:
    """The description of a function for a model, and how to call it with the model's arguments."""

    name: str
    """The function's name for the model."""
    description: str | None
    """The function's description for the model; ``None`` if it has none."""
    params_pydantic_model: type[BaseModel]
    """Checks the model's arguments."""
    params_json_schema: dict[str, Any]
    """The JSON schema of the arguments, without the context."""
    signature: inspect.Signature
    """The signature of the function, with the context."""
    takes_context: bool = False
    """Whether the first parameter is the run's context."""
    strict_json_schema: bool = True
    """Whether the model must follow the schema strictly."""
    return_annotation: Any = field(default_factory=lambda: inspect.Signature.empty)
    """The type that the function declares to return."""

    def to_call_args(self, data: BaseModel) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for the function, without the context.

        Args:
            data: The checked arguments: an object of ``params_pydantic_model``.

        Raises:
            ModelBehaviorError: if a key of ``**kwargs`` is also a named parameter.
        """
        positional: list[Any] = []
        keyword: dict[str, Any] = {}
        for param in self._model_params():
            value = getattr(data, _field_name(param.name))
            if param.kind in _POSITIONAL:
                positional.append(value)
            elif param.kind is param.VAR_POSITIONAL:
                positional.extend(value or ())
            elif param.kind is param.KEYWORD_ONLY:
                keyword[param.name] = value
            else:
                self._check_collisions(param.name, value or {})
                keyword.update(value or {})
        return positional, keyword

    def _model_params(self) -> Iterator[inspect.Parameter]:
        params = iter(self.signature.parameters.values())
        if self.takes_context:
            next(params)
        return params

    def _check_collisions(self, kwargs_name: str, extra: dict[str, Any]) -> None:
        nameable = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        for param in self.signature.parameters.values():
            if param.kind in nameable and param.name in extra:
                raise ModelBehaviorError(
                    f"Invalid arguments for tool {self.name}: {param.name!r} is a parameter of "
                    f"its own and may not also be a key of {kwargs_name!r}."
                )


def function_schema(
    func: Callable[..., Any],
    docstring_style: DocstringStyle | None = None,
    name_override: str | None = None,
    description_override: str | None = None,
    use_docstring_info: bool = True,
    strict_json_schema: bool = True,
) -> FuncSchema:
    """Describe ``func`` for a model.

    A first parameter typed ``RunContextWrapper`` or ``ToolContext`` is filled by the runtime and
    hidden from the model. A description in the docstring wins over one in ``Annotated``.

    Args:
        func: The function. Its types and defaults become the schema.
        docstring_style: The format of the docstring; ``None`` detects it.
        name_override: The name for the model; ``None`` is the function's own.
        description_override: The description for the model; ``None`` takes it from the docstring.
        use_docstring_info: Whether the docstring provides descriptions.
        strict_json_schema: Whether the schema is made strict; a function that cannot be described
            strictly is then refused.

    Raises:
        UserError: if the function cannot be described; the text says which part and why.
    """
    name = name_override or _name_of(func)
    doc = parse_docstring(func.__doc__ if use_docstring_info else None, docstring_style)
    signature = _signature_of(func, name)
    hints = _hints_of(func, name)
    params = list(signature.parameters.values())
    takes_context = bool(params) and _is_context(hints.get(params[0].name))
    params = params[1:] if takes_context else params
    for param in params:
        _check_param(param, hints.get(param.name), name, strict_json_schema)
    model = _build_model(name, params, hints, doc.params)
    return FuncSchema(
        name=name,
        description=description_override or doc.description,
        params_pydantic_model=model,
        params_json_schema=_json_schema_of(model, name, strict_json_schema),
        signature=signature,
        takes_context=takes_context,
        strict_json_schema=strict_json_schema,
        return_annotation=hints.get("return", signature.return_annotation),
    )


def _name_of(func: Callable[..., Any]) -> str:
    name = getattr(func, "__name__", None)
    if callable(func) and isinstance(name, str):
        return name
    raise UserError(
        f"Cannot make a tool of {func!r}: it is not a function with its own name and signature "
        "(a partial or a callable object, perhaps). Wrap it in a `def` with typed parameters."
    )


def _signature_of(func: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(func)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"Cannot make a tool of '{name}': Python knows no signature for it ({error}). "
            "Wrap it in a `def` with typed parameters."
        ) from error


def _hints_of(func: Callable[..., Any], name: str) -> dict[str, Any]:
    target = func.__init__ if inspect.isclass(func) else func
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise UserError(
            f"Cannot make a tool of '{name}': an annotation is not defined where the function is "
            f"({error}). Import that name at module level, outside `if TYPE_CHECKING`."
        ) from error
    except TypeError:
        return {}  # builtins have a signature but no annotations


def _is_context(hint: Any) -> bool:
    bare = get_args(hint)[0] if _marks(hint) else hint
    cls = get_origin(bare) or bare
    return isinstance(cls, type) and issubclass(cls, RunContextWrapper)


def _check_param(param: inspect.Parameter, hint: Any, name: str, strict: bool) -> None:
    if _is_context(hint):
        raise UserError(
            f"Parameter '{param.name}' of tool '{name}' is a RunContextWrapper/ToolContext but not "
            "the first parameter. Move it to the front."
        )
    if get_origin(hint) in (Union, types.UnionType) and any(map(_is_context, get_args(hint))):
        raise UserError(
            f"Parameter '{param.name}' of tool '{name}' is a context or something else. The "
            "context is always given: annotate the first parameter with the context type alone."
        )
    if strict and param.kind is param.VAR_KEYWORD:
        raise UserError(
            f"Tool '{name}' takes free keyword arguments (**{param.name}), which a strict schema "
            "cannot describe. Name the parameters, or set strict_mode=False (function_schema: "
            f"strict_json_schema=False); the model then passes them in an object '{param.name}'."
        )


def _build_model(
    name: str, params: list[inspect.Parameter], hints: dict[str, Any], docs: dict[str, str]
) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model
    from pydantic.errors import PydanticUserError

    # With **kwargs, free keys go into their own object, so any other extra key is an error.
    has_kwargs = any(param.kind is param.VAR_KEYWORD for param in params)
    config = ConfigDict(protected_namespaces=())
    if has_kwargs:
        config["extra"] = "forbid"
    fields: dict[str, Any] = {}
    for param in params:
        hint = hints.get(param.name, Any)
        description = docs.get(param.name) or _annotated_description(hint) or docs.get(param.name)
        fields[_field_name(param.name)] = _field(param, hint, description)
    try:
        return create_model(f"{name}_args", __config__=config, **fields)
    except PydanticUserError as error:
        raise UserError(_undescribable(name, error)) from error


def _field(param: inspect.Parameter, hint: Any, description: str | None) -> Any:
    """One ``create_model`` field. Later ``Field`` marks of an ``Annotated`` take precedence."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    default: Any = ... if param.default is param.empty else param.default
    marks: list[Any] = []
    if param.kind is param.VAR_POSITIONAL:
        hint, default = list[_element(hint)], Field(default_factory=list)  # type: ignore[misc]
    elif param.kind is param.VAR_KEYWORD:
        hint, default = dict[str, _element(hint)], Field(default_factory=dict)  # type: ignore[misc]
    if _field_name(param.name) != param.name:
        marks.append(Field(alias=param.name))
    if isinstance(default, FieldInfo):
        marks.append(default)
    described = any(getattr(mark, "description", None) for mark in (*_marks(hint), *marks))
    if description or (description is not None and not described):
        marks.append(Field(description=description))
    for mark in marks:
        hint = Annotated[hint, mark]
    # "No default" outside must not hide a default inside a Field mark.
    return hint if isinstance(default, FieldInfo) else (hint, default)


def _field_name(param_name: str) -> str:
    """The name as a pydantic field: names that pydantic reserves get a prefix."""
    from pydantic import BaseModel

    reserved = param_name.startswith("_") or hasattr(BaseModel, param_name)
    return f"param_{param_name}" if reserved else param_name


def _marks(hint: Any) -> tuple[Any, ...]:
    """The metadata that ``Annotated`` adds to a type."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _element(hint: Any) -> Any:
    """The type of one element of ``*args`` or ``**kwargs``, with constraints but without titles."""
    from pydantic.fields import FieldInfo

    element = get_args(hint)[0] if _marks(hint) else hint
    for mark in _marks(hint):
        for constraint in mark.metadata if isinstance(mark, FieldInfo) else (mark,):
            element = Annotated[element, constraint]
    return element


def _annotated_description(hint: Any) -> str | None:
    return next((mark for mark in _marks(hint) if isinstance(mark, str) and mark), None)


def _json_schema_of(model: type[BaseModel], name: str, strict: bool) -> dict[str, Any]:
    from pydantic.errors import PydanticUserError
    from pydantic.json_schema import PydanticJsonSchemaWarning

    try:
        with warnings.catch_warnings():
            # A default that JSON cannot represent is left out of the schema; the call still uses
            # it.
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            schema = model.model_json_schema()
    except PydanticUserError as error:
        raise UserError(_undescribable(name, error)) from error
    if not strict:
        return schema
    try:
        return ensure_strict_json_schema(schema)
    except UserError as error:
        raise UserError(f"Cannot make a strict tool of '{name}'. {error}") from error


def _undescribable(name: str, error: Exception) -> str:
    first_line = str(error).splitlines()[0]
    return (
        f"Cannot make a tool of '{name}': a parameter has a type or default that JSON cannot "
        f"describe. {first_line} Use plain types, a pydantic model, a dataclass or a TypedDict."
    )
