"""The world `shaping`: how many members groups of training runs sample, and which are trained."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Sequence

from . import guest, policy
from .errors import PolicyError
from .policy import Columns

try:
    from wit_world.exports.shaping_policy import Verdict
except ImportError:
    # Outside a component, in tests, this replaces the generated binding.
    class Verdict(Enum):  # type: ignore[no-redef]
        """What becomes of a running member."""

        GO_ON = 0
        """It runs on."""
        END = 1
        """It ends, and its group gets no other member for it. Ignored if fewer members than the
        group's size would be left."""
        AGAIN = 2
        """It ends, and its group gets another member for it, later; a group that has no member left
        then goes to the end of the queue. Ignored once members of the group were put off as often as
        the job's `starved_after`."""


RUNNING, COMPLETED, TRUNCATED = 0, 1, 2
"""States of members: it runs, it completed, or a limit on its length ended it."""


@dataclass(slots=True)
class GroupColumns(Columns):
    """Groups, one row each, in the order of their queue."""

    prompt: Sequence[int]
    """An opaque number, the same each time that this prompt is submitted."""
    domain: Sequence[int]
    """An opaque number, the same for all prompts of one domain; 0 without a domain."""
    size: Sequence[int]
    """Members that are trained."""
    size_max: Sequence[int]
    """Most members that may be sampled."""
    sampled: Sequence[int]
    """Members that are sampled, as `size` answered; 0 in a call of `size`."""
    postponed: Sequence[int]
    """How often members of the group were put off by the verdict `AGAIN`."""


@dataclass(slots=True)
class MemberColumns(Columns):
    """Members, one row each, group after group and within a group in the order in which they
    began."""

    group: Sequence[int]
    """The row of its group."""
    state: Sequence[int]
    """`RUNNING`, `COMPLETED` or `TRUNCATED`."""
    tokens: Sequence[int]
    """Tokens that it has sampled, all steps together. Of one that its client samples, they are
    known only at its end."""
    turns: Sequence[int]
    """LLM calls finished."""
    elapsed_ms: Sequence[int]
    """Time since it began, in milliseconds; of one that ended, until its end."""
    lag: Sequence[int]
    """By how many training steps the weights in service are newer than its first token."""
    batch_groups: int
    """Groups in a batch."""
    ready_groups: int
    """Groups that could be in the next batch already."""
    groups: GroupColumns
    """The groups."""

    def of_groups(self) -> list[list[int]]:
        """The rows of each group's members."""
        rows: list[list[int]] = [[] for _ in range(len(self.groups))]
        for row, group in enumerate(self.group):
            rows[group].append(row)
        return rows


class Policy(policy.Policy):
    """A policy of this world."""

    def size(self, groups: GroupColumns) -> Sequence[int]:
        """How many members each group samples, from its size up to `size_max`."""
        raise NotImplementedError

    def curtail(self, members: MemberColumns) -> Sequence[Verdict]:
        """A verdict for each member; of those that have ended, only `AGAIN` counts."""
        raise PolicyError.not_supported()

    def select(self, members: MemberColumns) -> Sequence[bool]:
        """Which members are trained: as many of each group as its size."""
        raise PolicyError.not_supported()


def export(policy_class: type[Policy]) -> tuple[type, type]:
    """The classes `Plugin` and `ShapingPolicy` of a component."""
    slot = guest.Slot(policy_class, Policy, ("size", "curtail", "select"), ("size",))

    def members_of(members: Any, groups: Any) -> MemberColumns:
        return slot.columns(MemberColumns, members, groups=slot.columns(GroupColumns, groups))

    class ShapingPolicy:
        def size(self, groups: Any) -> list[int]:
            columns = slot.columns(GroupColumns, groups)
            return slot.ask(lambda policy: list(policy.size(columns)))

        def curtail(self, members: Any, groups: Any) -> list[Verdict]:
            columns = members_of(members, groups)
            return slot.ask(lambda policy: list(policy.curtail(columns)))

        def select(self, members: Any, groups: Any) -> list[bool]:
            columns = members_of(members, groups)
            return slot.ask(lambda policy: list(policy.select(columns)))

    return guest.plugin(slot), ShapingPolicy
