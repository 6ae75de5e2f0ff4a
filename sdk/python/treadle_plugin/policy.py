"""What every policy has, whatever its world."""

import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Mapping, Sequence

from .errors import PolicyError


@dataclass
class NoConfig:
    """The configuration of a policy that has none."""


class Policy:
    """A policy of any world. The base class of its world says what it decides.

    An instance is asked by one call at a time. It may keep what it likes between
    calls, but can be replaced at any moment: what must outlive it goes into `snapshot`
    or `host.state_set`. An exception of any kind ends a call; the host then decides by
    its built-in default and counts a fault.
    """

    name: ClassVar[str] = ""
    """Lower-case words joined by hyphens, at most 64 characters."""
    version: ClassVar[str] = "0.1.0"
    """A semantic version."""
    summary: ClassVar[str] = ""
    """One sentence; the first line of the class's documentation unless given."""
    Config: ClassVar[type] = NoConfig
    """A dataclass in which every field has a default."""

    config: Any
    """An instance of `Config`."""
    extra_names: Sequence[str]
    """Names of the extra columns that the binding asked for."""

    def __init__(self, config: Any, extra_names: Sequence[str] = ()) -> None:
        self.config = config
        self.extra_names = tuple(extra_names)

    def snapshot(self) -> bytes:
        """What was learnt, for the instance or version that takes its place."""
        return b""

    def restore(self, snapshot: bytes) -> None:
        """Takes over what a predecessor gave as its snapshot, never empty."""
        raise PolicyError.not_supported()


class Columns:
    """Columns of a call: lists with one entry per row. `len` gives the rows."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]


Extra = Mapping[str, Sequence[float]]
"""The extra columns by their names."""


def configured(policy_class: type[Policy], text: str) -> Policy:
    """A policy with a configuration in JSON. Unknown keys and wrong kinds are errors."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise PolicyError.invalid_config(f"{error}; write a JSON object") from None
    if not isinstance(given, dict):
        raise PolicyError.invalid_config("this is no JSON object; write one, such as {}")
    extra = given.pop("extra", [])
    if not isinstance(extra, list) or not all(isinstance(name, str) for name in extra):
        raise PolicyError.invalid_config("extra is a list of names of columns")
    defaults = policy_class.Config()
    known = {field.name: getattr(defaults, field.name) for field in fields(defaults)}
    values = {}
    for key, value in given.items():
        if key not in known:
            choice = ", ".join([*known, "extra"])
            raise PolicyError.invalid_config(f"{key} is not known; the keys are {choice}")
        values[key] = _of_kind(key, value, known[key])
    try:
        return policy_class(policy_class.Config(**values), extra)
    except (TypeError, ValueError) as error:
        raise PolicyError.invalid_config(str(error)) from None


def _of_kind(key: str, value: Any, default: Any) -> Any:
    """The value, if it is of the default's kind; whole numbers are floats too."""
    if default is None:
        return value
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    is_flag = isinstance(value, bool) != isinstance(default, bool)
    if is_flag or not isinstance(value, type(default)):
        kind = type(default).__name__
        raise PolicyError.invalid_config(f"{key} is {value!r}; give a {kind}, as {default!r}")
    return value
