"""What treadle offers to a policy: a log, the time of the decision, a random stream,
the configuration, and values that outlive the instance.

Outside a component, in tests, the log goes to standard error, and the rest lives in
this module: set `native.now_ms` and the others as a test needs them.
"""

import sys
from dataclasses import dataclass, field

try:
    from componentize_py_types import Err as _Err
    from wit_world.imports import host as _host
    from wit_world.imports.types import LogLevel as _LogLevel
except ImportError:
    _host = None

from .errors import PolicyError

_MASK = (1 << 64) - 1


@dataclass
class Native:
    """Stands for the host outside a component."""

    now_ms: int = 0
    seed: int = 0
    config: str = "{}"
    state: dict[str, bytes] = field(default_factory=dict)

    def random_u64(self) -> int:
        """SplitMix64, the same stream as in a component with this seed."""
        self.seed = (self.seed + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((self.seed ^ (self.seed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)


native = Native()


def _log(level: str, message: str) -> None:
    if _host is None:
        print(f"policy {level}: {message}", file=sys.stderr)
    else:
        _host.log(_LogLevel[level.upper()], message)


def trace(message: str) -> None:
    """Writes every detail to the policy's log."""
    _log("trace", message)


def debug(message: str) -> None:
    """Writes what the author of the policy wants to know to its log."""
    _log("debug", message)


def info(message: str) -> None:
    """Writes what is worth knowing to the policy's log."""
    _log("info", message)


def warn(message: str) -> None:
    """Writes what is unusual, and handled, to the policy's log."""
    _log("warn", message)


def error(message: str) -> None:
    """Writes what went wrong to the policy's log."""
    _log("error", message)


def now_ms() -> int:
    """The time of the decision, in milliseconds since the job's clock began."""
    return native.now_ms if _host is None else _host.now_ms()


def random_u64() -> int:
    """The next number of a random stream that begins anew with each call.

    Use this and `random`, not the module `random` of Python: that one repeats what it
    gave when the component was built.
    """
    return native.random_u64() if _host is None else _host.random_u64()


def random() -> float:
    """The next number of the same stream, at least 0 and less than 1."""
    return (random_u64() >> 11) / (1 << 53)


def config() -> str:
    """The configuration of the binding, a JSON object."""
    return native.config if _host is None else _host.config()


def state_get(key: str) -> bytes | None:
    """A value that this binding has stored, `None` if it stored nothing for the key."""
    return native.state.get(key) if _host is None else _host.state_get(key)


def state_set(key: str, value: bytes) -> None:
    """Stores a value, or raises `PolicyError` with the code `state-full`."""
    if _host is None:
        native.state[key] = bytes(value)
        return
    try:
        _host.state_set(key, value)
    except _Err as refused:
        raise PolicyError(refused.value.code, refused.value.message) from None


def state_delete(key: str) -> bool:
    """Removes a value; true if there was one."""
    if _host is None:
        return native.state.pop(key, None) is not None
    return _host.state_delete(key)
