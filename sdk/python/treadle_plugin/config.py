"""Configurations: a dataclass gives the keys, their kinds, defaults and bounds.

    @dataclass
    class Config:
        age_weight: float = bounded(1.0, 0, 1e6, "Thousands of tokens that a second makes up for.")
        order: Literal["long", "short"] = choice("long", "What goes first.")
"""

import json
import types
from dataclasses import Field, field, fields
from typing import Any, Literal, Mapping, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import PolicyError

T = TypeVar("T")

_KINDS: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
}


def bounded(default: T, minimum: float, maximum: float, description: str = "") -> T:
    """A key with a number from `minimum` to `maximum`."""
    bounds = {"minimum": minimum, "maximum": maximum}
    return field(default=default, metadata={**bounds, "description": description})  # type: ignore[return-value]


def key(default: T, description: str = "") -> T:
    """A key without bounds."""
    return field(default=default, metadata={"description": description})  # type: ignore[return-value]


def schema(config_class: type) -> str:
    """A JSON Schema of a configuration."""
    properties = {field.name: rules for field, rules in _keys(config_class)}
    return json.dumps(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
        }
    )


def configured(config_class: type, text: str) -> Any:
    """The defaults, with what a JSON object says instead. What does not fit is an error."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise PolicyError.invalid_config(f"{error}; write a JSON object") from None
    if not isinstance(given, dict):
        raise PolicyError.invalid_config("this is no JSON object; write one, such as {}")
    known = {field.name: rules for field, rules in _keys(config_class)}
    for name, value in given.items():
        if name not in known:
            choice = f"the keys are {', '.join(known)}" if known else "there are no keys"
            raise PolicyError.invalid_config(f"{name} is not known; {choice}")
        given[name] = _fitting(name, value, known[name])
    try:
        return config_class(**given)
    except (TypeError, ValueError) as error:
        raise PolicyError.invalid_config(str(error)) from None


def _keys(config_class: type) -> list[tuple["Field[Any]", dict[str, Any]]]:
    """The fields, each with its schema."""
    hints = get_type_hints(config_class)
    defaults = config_class()
    return [
        (field, _rules(hints[field.name], field, getattr(defaults, field.name)))
        for field in fields(config_class)
    ]


def _rules(hint: Any, field: "Field[Any]", default: Any) -> dict[str, Any]:
    is_union = get_origin(hint) in (Union, types.UnionType)
    kinds = get_args(hint) if is_union else (hint,)
    rules: dict[str, Any] = {}
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if choices:
        rules["enum"] = choices + [None for kind in kinds if kind is type(None)]
    else:
        # A kind that JSON has no name for is left to `__post_init__`.
        names = [_KINDS[kind] for kind in kinds if kind in _KINDS]
        if len(names) == len(kinds):
            rules["type"] = names[0] if len(names) == 1 else names
    rules.update({name: told for name, told in field.metadata.items() if told != ""})
    rules["default"] = default
    return rules


def _fitting(name: str, value: Any, rules: Mapping[str, Any]) -> Any:
    """The value, if it fits; whole numbers are floats too."""
    if "enum" in rules and value not in rules["enum"]:
        choices = " or ".join(json.dumps(choice) for choice in rules["enum"])
        raise PolicyError.invalid_config(f"{name} is {json.dumps(value)}; give {choices}")
    kinds = rules.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    kind = _KINDS.get(type(value))
    if kind == "integer" and "number" in kinds:
        value, kind = float(value), "number"
    if kinds and kind not in kinds:
        wanted = f"{' or '.join(kinds)}, as {json.dumps(rules['default'])}"
        raise PolicyError.invalid_config(f"{name} is {json.dumps(value)}; give a {wanted}")
    is_number = isinstance(value, (int, float)) and "minimum" in rules
    if is_number and not rules["minimum"] <= value <= rules["maximum"]:
        bounds = f"{rules['minimum']} to {rules['maximum']}"
        raise PolicyError.invalid_config(f"{name} is {value}; give {bounds}")
    return value
