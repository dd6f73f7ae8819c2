"""The strict form of JSON schemas, with literal expectations."""

from __future__ import annotations

from typing import Any

import pytest

from sandstream.exceptions import UserError
from sandstream.strict_schema import ensure_strict_json_schema


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def closed(**properties: Any) -> dict[str, Any]:
    return {**obj(**properties), "required": list(properties), "additionalProperties": False}


def test_nothing_becomes_the_empty_object() -> None:
    assert ensure_strict_json_schema({}) == closed()


def test_objects_are_closed_and_everything_is_required() -> None:
    schema = {**obj(a={"type": "string"}, b=obj(c={})), "required": ["a"]}
    assert ensure_strict_json_schema(schema) == closed(a={"type": "string"}, b=closed(c={}))


def test_the_argument_is_not_changed() -> None:
    schema = obj(a=obj(b={"type": "string", "default": None}))
    ensure_strict_json_schema(schema)
    assert schema == obj(a=obj(b={"type": "string", "default": None}))


def test_none_defaults_go_and_others_stay() -> None:
    schema = obj(a={"type": "string", "default": None}, b={"type": "integer", "default": 1})
    assert ensure_strict_json_schema(schema) == closed(
        a={"type": "string"}, b={"type": "integer", "default": 1}
    )


def test_properties_without_a_type_are_an_object() -> None:
    assert ensure_strict_json_schema({"properties": {"a": {}}}) == closed(a={})


def test_one_of_becomes_any_of() -> None:
    schema = obj(a={"anyOf": [{"type": "number"}], "oneOf": [{"type": "string"}, obj()]})
    assert ensure_strict_json_schema(schema) == closed(
        a={"anyOf": [{"type": "number"}, {"type": "string"}, closed()]}
    )


def test_an_all_of_with_one_member_is_merged_and_outer_keys_win() -> None:
    schema = obj(a={"allOf": [{**obj(q={}), "description": "inner"}], "description": "outer"})
    assert ensure_strict_json_schema(schema) == closed(a={**closed(q={}), "description": "outer"})


def test_an_all_of_with_two_members_stays() -> None:
    assert ensure_strict_json_schema(obj(a={"allOf": [obj(q={}), obj(r={})]})) == closed(
        a={"allOf": [closed(q={}), closed(r={})]}
    )


def test_a_reference_alone_stays_and_one_with_siblings_is_inlined() -> None:
    definition = {**obj(x={"type": "string"}), "description": "of the definition"}
    schema = {
        **obj(a={"$ref": "#/$defs/D", "description": "of the field"}, b={"$ref": "#/$defs/D"}),
        "$defs": {"D": definition},
    }
    strict = ensure_strict_json_schema(schema)
    assert strict["properties"] == {
        "a": {**closed(x={"type": "string"}), "description": "of the field"},
        "b": {"$ref": "#/$defs/D"},
    }
    assert strict["$defs"]["D"]["additionalProperties"] is False


def test_a_chain_of_references_is_followed() -> None:
    schema = {
        **obj(a={"$ref": "#/$defs/D", "description": "d"}),
        "$defs": {"D": {"$ref": "#/$defs/E", "title": "T"}, "E": {"type": "string"}},
    }
    inlined = ensure_strict_json_schema(schema)["properties"]["a"]
    assert inlined == {"description": "d", "title": "T", "type": "string"}


@pytest.mark.parametrize("value", [True, {"type": "string"}, {}, None])
def test_free_keys_are_an_error_that_says_where(value: Any) -> None:
    with pytest.raises(UserError, match=r"#/properties/a .*strict_mode=False"):
        ensure_strict_json_schema(obj(a={"type": "object", "additionalProperties": value}))


def test_the_root_must_be_one_object() -> None:
    with pytest.raises(UserError, match="anyOf"):
        ensure_strict_json_schema({"oneOf": [{"type": "object"}]})
    with pytest.raises(UserError, match="plain object"):
        ensure_strict_json_schema({"type": ["object", "null"]})


def test_bad_references_say_where_they_are() -> None:
    with pytest.raises(KeyError, match="#/properties/a"):
        ensure_strict_json_schema(obj(a={"$ref": "#/$defs/Nope", "title": "t"}))
    with pytest.raises(ValueError, match="same schema"):
        ensure_strict_json_schema(obj(a={"$ref": "http://x", "title": "t"}))


def test_a_part_that_is_no_schema_is_named() -> None:
    with pytest.raises(TypeError, match="#/properties/a there is 'str'"):
        ensure_strict_json_schema(obj(a="str"))


@pytest.mark.parametrize(("levels", "fits"), [(49, True), (50, False)])
def test_depth_is_limited(levels: int, fits: bool) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = obj(a=schema)
    if fits:
        ensure_strict_json_schema(schema)
        return
    with pytest.raises(UserError, match="100 levels"):
        ensure_strict_json_schema(schema)


def test_a_described_cycle_cannot_be_inlined() -> None:
    schema = {
        **obj(a={"$ref": "#/$defs/D", "description": "d"}),
        "$defs": {"D": obj(next={"$ref": "#/$defs/D", "description": "again"})},
    }
    with pytest.raises(UserError, match="contains itself"):
        ensure_strict_json_schema(schema)
