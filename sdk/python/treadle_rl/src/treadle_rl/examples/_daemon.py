"""A daemon for an example: the one that listens, or one that is started and ends with it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from treadle_rl import Client
from treadle_rl._http import URL_DEFAULT

START_S = 60.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """Where a daemon listens. `binary` is the program, if it was started here."""

    url: str
    token: str | None = None
    binary: str | None = None

    def client(self) -> Client:
        return Client(self.url, self.token)

    def check(self, job: str, batches: Path) -> None:
        """Has `treadle training check` prove a run, if the daemon ends with this program."""
        if self.binary is not None:
            command = [self.binary, "training", "check", "--job", job, "--batches", str(batches)]
            environment = {**os.environ, "TREADLE_TOKEN": self.token or ""}
            checked = subprocess.run([*command, "--url", self.url], env=environment, check=False)
            if checked.returncode != 0:
                sys.exit("the check failed")


def listens(url: str) -> bool:
    """Whether something listens at a URL."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=5):
            return True
    except OSError:
        return False


def program() -> str | None:
    """The program `treadle`: `TREADLE` names it or a checkout with it, or it is on the PATH."""
    named = os.environ.get("TREADLE")
    if named and Path(named).is_dir():
        named = str(Path(named) / "target/release/treadle")
    return named or shutil.which("treadle")


def address(url: str | None) -> str:
    """The URL that clients use."""
    return (url or os.environ.get("TREADLE_URL") or URL_DEFAULT).rstrip("/")


@contextmanager
def daemon_at(url: str, out: Path, start: Sequence[str]) -> Iterator[Daemon]:
    """The daemon at a URL. If nothing listens there, `treadle` is started with these arguments; it
    ends with the block, and has its store and its log in `out`."""
    if listens(url):
        yield Daemon(url)
        return
    binary, parts = program(), urlsplit(url)
    if binary is None:
        sys.exit(
            f"nothing listens at {url}, and there is no `treadle` to start: name it in TREADLE"
        )
    folder = (out / ".treadle").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    command = [binary, *start, "--listen", f"{parts.hostname}:{parts.port or 80}"]
    with open(out / "daemon.log", "ab") as log:
        command += ["--set", f"store.path={folder / 'treadle.db'}"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        print(f"started {' '.join(command)}", flush=True)
        token = folder / "admin-token"
        _await(process, url, token, out / "daemon.log")
        yield Daemon(url, token.read_text().strip(), binary)
    finally:
        process.terminate()
        process.wait()


def _await(process: subprocess.Popen[bytes], url: str, token: Path, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not (listens(url) and token.exists()):
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"`treadle` did not start; its words are in {log}")
        time.sleep(0.05)
