"""Places programs on workers; `treadle plugin build` makes a component of this module."""

from dataclasses import dataclass

from treadle_plugin import PolicyError, key, placement


@dataclass
class Config:
    """Keys of the configuration."""

    stay: bool = key(True, "Whether a program returns to its last worker if that has room.")


class MostRoom(placement.Policy):
    """A program goes back to its last worker, else to the one with the most room."""

    name = "@name@"
    version = "0.1.0"
    Config = Config

    def assign(self, programs: placement.AssignColumns) -> list[int]:
        workers = programs.workers
        room = [
            total - used for total, used in zip(workers.capacity_tokens, workers.used_tokens)
        ]
        if not room:
            raise PolicyError.failed("there is no worker; nothing can be placed")
        chosen = []
        for tokens, last in zip(programs.tokens, programs.last_worker):
            worker = room.index(max(room))
            if self.config.stay and last < len(room) and room[last] >= tokens:
                worker = last
            room[worker] -= tokens
            chosen.append(worker)
        return chosen


Plugin, PlacementPolicy = placement.export(MostRoom)
