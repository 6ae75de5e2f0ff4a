"""The guest's side of the component boundary; policies don't use it directly."""

import traceback
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Callable, Sequence, TypeVar

from . import host
from .errors import PolicyError
from .policy import Extra, Policy, configured

try:
    from componentize_py_types import Err
    from wit_world.imports.types import Description
    from wit_world.imports.types import PolicyError as Failure
except ImportError:
    # Outside a component, in tests, these stand for the generated ones.
    @dataclass
    class Description:  # type: ignore[no-redef]
        name: str
        version: str
        summary: str

    @dataclass
    class Failure:  # type: ignore[no-redef]
        code: str
        message: str

    @dataclass(frozen=True)
    class Err(Exception):  # type: ignore[no-redef]
        value: Any


T = TypeVar("T")
_NO_EXTRA: Extra = {}


class Slot:
    """Holds the configured policy of an instance, and asks it."""

    def __init__(self, policy_class: type[Policy], world: type[Policy], *required: str) -> None:
        for method in required:
            if getattr(policy_class, method) is getattr(world, method):
                raise TypeError(f"{policy_class.__name__} has no method {method}; write one")
        if not policy_class.name:
            raise TypeError(f"{policy_class.__name__}.name is empty; give the policy a name")
        self.policy_class = policy_class
        self.policy: Any = None

    def ask(self, question: Callable[[Any], T]) -> T:
        """What the policy says, or the error that the component model knows."""
        if self.policy is None:
            raise Err(Failure("failed", "asked before configure; call plugin.configure first"))
        return guarded(lambda: question(self.policy))

    def extra(self, flat: Sequence[float], rows: int) -> Extra:
        """The extra columns by their names."""
        names = self.policy.extra_names if self.policy is not None else ()
        if not names and not flat:
            return _NO_EXTRA
        if len(flat) != rows * len(names):
            message = f"extra has {len(flat)} entries where {rows * len(names)} belong"
            raise Err(Failure("invalid-input", f"{message}; pass one column per name"))
        return {name: flat[at * rows : (at + 1) * rows] for at, name in enumerate(names)}


def guarded(act: Callable[[], T]) -> T:
    """Turns exceptions into errors of the contract; unexpected ones are logged."""
    try:
        return act()
    except Err:
        raise
    except PolicyError as error:
        raise Err(Failure(error.code, error.message)) from None
    except Exception as error:
        host.error(traceback.format_exc())
        message = f"{type(error).__name__}: {error}; the policy's log has the place"
        raise Err(Failure("failed", message)) from None


def plugin(slot: Slot) -> type:
    """The class `Plugin` of a component."""
    policy_class = slot.policy_class
    documentation = (policy_class.__doc__ or "").strip().split("\n")[0]

    class Plugin:
        def describe(self) -> Description:
            summary = policy_class.summary or documentation
            return Description(policy_class.name, policy_class.version, summary)

        def configure(self, json: str) -> None:
            slot.policy = guarded(lambda: configured(policy_class, json))

        def snapshot(self) -> bytes:
            return slot.ask(lambda policy: bytes(policy.snapshot()))

        def restore(self, snapshot: bytes) -> None:
            slot.ask(lambda policy: policy.restore(snapshot))

    return Plugin


def record(interface: str, name: str) -> Callable[..., Any]:
    """The class of a record of an exported interface; outside a component a tuple.

    Called when the module is imported: a component can't import when it runs.
    """
    try:
        return getattr(import_module(f"wit_world.exports.{interface}"), name)
    except ImportError:
        return lambda *values: values
