"""What every policy has, whatever its world."""

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar, Mapping, Sequence

from .errors import PolicyError

try:
    from wit_world.imports.types import CacheAction, Phase
except ImportError:
    # Outside a component, in tests, these replace the generated bindings.
    class Phase(Enum):  # type: ignore[no-redef]
        """What a program does."""

        REASONING = 0
        """It has an LLM call in flight or ready to be sent."""
        ACTING = 1
        """An action (a tool call) runs."""

    class CacheAction(Enum):  # type: ignore[no-redef]
        """What to do with the KV cache of an acting program."""

        KEEP = 0
        """It stays, and so does the program's place."""
        OFFLOAD = 1
        """It goes to host memory, and comes back with the program."""
        MIGRATE = 2
        """It goes to a worker with room."""
        DROP = 3
        """It is given up, and computed again when the program comes back."""


@dataclass
class NoConfig:
    """The configuration of a policy that has none."""


class Policy:
    """A policy of any world. The base class of its world defines its decisions.

    An instance gets one call at a time. It may keep any state between
    calls, but can be replaced at any moment: what must outlive it goes into `snapshot`
    or `host.state_set`. An exception of any kind ends a call; the host then decides by
    its built-in default and counts a fault. A method of the world that is not written is
    not asked: the host decides that by itself.
    """

    name: ClassVar[str] = ""
    """Lower-case words joined by hyphens, at most 64 characters."""
    version: ClassVar[str] = "0.1.0"
    """A semantic version."""
    summary: ClassVar[str] = ""
    """One sentence; the first line of the class's documentation unless given."""
    columns: ClassVar[Sequence[str]] = ()
    """Names of the columns that calls must carry in `extra`."""
    Config: ClassVar[type] = NoConfig
    """A dataclass in which every field has a default; see `treadle_plugin.config`."""

    config: Any
    """An instance of `Config`."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def snapshot(self) -> bytes:
        """What was learnt, for the instance or version that takes its place."""
        return b""

    def restore(self, snapshot: bytes) -> None:
        """Takes over what a predecessor gave as its snapshot, never empty."""
        raise PolicyError.not_supported()


Extra = Mapping[str, Sequence[float]]
"""The extra columns by their names."""


class Columns:
    """Columns of a call: lists with one entry per row. `len` gives the rows."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]
