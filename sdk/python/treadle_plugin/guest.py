"""The guest's side of the component boundary; policies don't use it directly."""

import traceback
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Callable, Sequence, TypeVar

from . import host
from .errors import PolicyError
from .config import configured, schema
from .policy import Policy

try:
    from componentize_py_types import Err
    from wit_world.imports.types import Description
    from wit_world.imports.types import PolicyError as Failure
except ImportError:
    # Outside a component, in tests, these replace the generated bindings.
    @dataclass
    class Description:  # type: ignore[no-redef]
        name: str
        version: str
        summary: str
        functions: list[str]
        columns: list[str]
        config_schema: str

    @dataclass
    class Failure:  # type: ignore[no-redef]
        code: str
        message: str

    @dataclass(frozen=True)
    class Err(Exception):  # type: ignore[no-redef]
        value: Any


C = TypeVar("C")
T = TypeVar("T")


class Slot:
    """Holds the configured policy of an instance, and asks it.

    `functions` are those of the world's interface, by the names of their methods; a policy has to
    have the `required` ones.
    """

    def __init__(
        self,
        policy_class: type[Policy],
        world: type[Policy],
        functions: Sequence[str],
        required: Sequence[str],
    ) -> None:
        def is_written(method: str) -> bool:
            return getattr(policy_class, method) is not getattr(world, method)

        for method in required:
            if not is_written(method):
                raise TypeError(f"{policy_class.__name__} has no method {method}; write one")
        if not policy_class.name:
            raise TypeError(f"{policy_class.__name__}.name is empty; give the policy a name")
        self.functions = [method for method in functions if is_written(method)]
        self.policy_class = policy_class
        self.policy: Any = None

    def ask(self, question: Callable[[Any], T]) -> T:
        """What the policy says, or the error that the component model knows."""
        if self.policy is None:
            raise Err(Failure("failed", "asked before configure; call plugin.configure first"))
        return guarded(lambda: question(self.policy))

    def columns(self, columns_class: Callable[..., C], record: Any, **beside: Any) -> C:
        """The columns of a record of the contract, the extra ones by their names. `beside` replaces
        fields and adds further ones."""
        given = {**vars(record), **beside}
        if "extra" in given:
            names, flat = self.policy_class.columns, given["extra"]
            rows = len(flat) // len(names) if names else 0
            extra = {name: flat[at * rows : (at + 1) * rows] for at, name in enumerate(names)}
            given["extra"] = extra
        return columns_class(**given)


def guarded(act: Callable[[], T]) -> T:
    """Turns exceptions into errors of the contract; unexpected ones are logged."""
    try:
        return act()
    except Err:
        raise
    except PolicyError as error:
        raise Err(Failure(error.code, error.message)) from None
    except Exception as error:
        host.error(_trace(error))
        message = f"{type(error).__name__}: {error}; the policy's log has the place"
        raise Err(Failure("failed", message)) from None


def _trace(error: Exception) -> str:
    """The calls that led to an error. The module `traceback` would read their source, and a
    component that opens a file traps."""
    walk = traceback.walk_tb(error.__traceback__)
    calls = [(frame.f_code, line) for frame, line in walk]
    places = [f'  File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in calls]
    return "\n".join([*places, f"{type(error).__name__}: {error}"])


def plugin(slot: Slot) -> type:
    """The class `Plugin` of a component."""
    policy_class = slot.policy_class
    documentation = (policy_class.__doc__ or "").strip().split("\n")[0]

    class Plugin:
        def describe(self) -> Description:
            summary = policy_class.summary or documentation
            functions = [method.replace("_", "-") for method in slot.functions]
            return Description(
                policy_class.name,
                policy_class.version,
                summary,
                functions,
                list(policy_class.columns),
                schema(policy_class.Config),
            )

        def configure(self, json: str) -> None:
            slot.policy = guarded(lambda: policy_class(configured(policy_class.Config, json)))

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
