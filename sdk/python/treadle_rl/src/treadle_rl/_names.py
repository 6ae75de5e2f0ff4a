"""Names of the programs that one rollout worker begins, one after the other."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces a file so that it has either its old content or the new one."""
    beside = path.with_name(f"{path.name}.part")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


class Names:
    """`WORKER-0`, `WORKER-1` and so on.

    With a `state` file, a worker that is started again goes on with the name it was at, and gets
    the same member. Without one, its prefix has to be new each time, as the default is.
    """

    def __init__(self, worker: str | None, state: Path | None) -> None:
        unique = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.worker, self.state, self.number = worker or unique, state, 0
        if state is not None and state.exists():
            self.number = int(state.read_text())

    @property
    def current(self) -> str:
        return f"{self.worker}-{self.number}"

    def advance(self) -> None:
        if self.state is not None:
            write_atomically(self.state, str(self.number + 1).encode())
        self.number += 1
