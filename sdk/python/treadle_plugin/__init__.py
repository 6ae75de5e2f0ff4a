"""Write treadle policies in Python.

Each world has a module with a base class `Policy`, the columns that its methods are
given, and `export`, which makes a policy what a component exports:

    from treadle_plugin import priority

    class LongestWaiting(priority.Policy):
        '''The longest waiting goes first.'''

        name = "longest-waiting-priority"

        def score(self, programs):
            return [float(waited) for waited in programs.waited_ms]

    Plugin, PriorityPolicy = priority.export(LongestWaiting)

Import only the module of one world; a component has one world.
"""

from .config import bounded, key
from .errors import PolicyError
from .policy import CacheAction, Phase

__all__ = ["CacheAction", "Phase", "PolicyError", "bounded", "key"]
