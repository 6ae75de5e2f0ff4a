"""The bandit at engines whose weights really change.

    python -m treadle_rl.examples.bandit --engines 2

Agents ask for answers through treadle, which captures their tokens; each version of the weights is
published, and treadle loads it into the engines (`engine.py`). At the end each token of each batch is
computed again: its log-probability under the version that is on record for it has to be the one that
is on record, bit by bit. If a daemon listens at the URL already, its engines are used, which have to
be such engines.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from treadle_rl import (
    Client,
    Group,
    Job,
    NotServing,
    Payload,
    Sequence,
    Settings,
    TreadleError,
)
from treadle_rl._http import Call, to_json
from treadle_rl.records import batch_of

from ._daemon import address, daemon_at, listens
from ._loop import ARM_0, CONTEXTS, Floats, Rollouts, log_softmax, run
from .answers import TOKENS_MAX, Environment, groups_of, initial
from .engine import MODEL, Table, read_table, row_of, write_table

MEMBERS = 4
"""Members of a group; each is sampled by an agent of its own."""
READY_S, PUBLISH_S = 10, 300.0


def folder_of(out: Path, version: int) -> Path:
    return (out / "weights" / str(version)).absolute()


class Agents(Rollouts):
    """Agent `n` samples one member of each group, at engines that treadle chooses."""

    def __init__(self, job: Job, out: Path, environment: Environment, groups: list[Group]) -> None:
        super().__init__(job, out)
        self.environment, self.groups = environment, groups
        self.client: Client = job.client

    def publish(self, version: int, logits: Floats) -> None:
        """Has treadle load a version into the engines; those that can't are fenced."""
        folder = folder_of(self.out, version)
        write_table(folder, logits)
        weights, deadline = self.job.weights, time.monotonic() + PUBLISH_S
        while True:
            weights.publish(version, folder, quorum=1, ready_s=READY_S)
            try:
                weights.wait(version)
                return
            except NotServing:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def start(self) -> None:
        for group in self._groups({"begun": "true"}):
            for member in group["members"]:
                if member["end"] is None:  # Its agent was killed.
                    self.client.release(member["program"])
        for number in range(MEMBERS):
            threading.Thread(target=self._work, args=(number,), daemon=True).start()

    def _work(self, number: int) -> None:
        try:
            served = self._served()
            for group in (group for group in self.groups if group.group not in served):
                name = f"{self.job.name}-{group.group}-{number}"
                while not self._sample(group, f"{name}-{secrets.token_hex(4)}"):
                    pass
        except Exception as failure:  # noqa: BLE001 - the main thread raises it
            self.failure = failure

    def _served(self) -> set[str]:
        """Groups of batches that came before a restart."""
        stored = (batch_of(path.read_bytes()) for path in self.out.glob("batch-*.json"))
        return {group.group for batch in stored for group in batch.groups}

    def _sample(self, group: Group, program: str) -> bool:
        """Samples a member; `False` if another one is needed for it."""
        context = int(group.content["context"])
        names = {"X-Treadle-Job": self.job.name, "X-Treadle-Group": group.group}
        body = to_json({"input_ids": [context], "sampling_params": {"max_new_tokens": TOKENS_MAX}})
        headers = {**names, "X-Program-Id": program}
        call = Call("POST", "/generate", body=body, headers=headers, wait_s=3600.0)
        try:
            answer = self.client._run(self.client._link.send(call)).json()
        except TreadleError as error:
            if error.status == 409:  # It was cut, or its group needs no other member.
                return self._is_kept(group.group, program)
            raise
        rng = self.environment.rng(program)
        reward = self.environment.reward(context, answer["output_ids"], rng)
        self.client.release(program, reward=reward)
        return self._is_kept(group.group, program)

    def _groups(self, query: dict[str, str]) -> list[dict[str, Any]]:
        """Groups that are in no batch."""
        call = Call("GET", f"{self.job._calls.path}/groups", query=query)
        found: list[dict[str, Any]] = self.client._run(self.client._link.send(call)).json()[
            "groups"
        ]
        return found

    def _is_kept(self, group: str, program: str) -> bool:
        """Whether a program that ended has its sample, or its group needs none any more."""
        while True:
            groups = self._groups({"group": group})
            if not groups:
                return True
            members = {member["program"]: member for member in groups[0]["members"]}
            if program not in members:
                ended = [member for member in members.values() if member["sample"] is not None]
                return len(ended) == MEMBERS
            if members[program]["sample"] is not None:
                return True
            time.sleep(0.02)


def newest_of(payload: Payload) -> dict[tuple[int, int, int, int], int]:
    """Ranges that one of two versions sampled: the newer one by member, sequence, start and end.

    An engine that has loaded a version may sample with it a moment before it is in service; then both
    are on record.
    """
    members = enumerate(payload.meta["members"])
    mixed = ((index, row) for index, member in members for row in member.get("mixed", ()))
    return {(index, *row[:3]): row[3] for index, row in mixed}


class Verifier:
    """Computes log-probabilities again."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.tables: dict[int, Table] = {}
        self.tokens = self.answers = self.changed = self.unsure = 0

    def check(self, sequence: Sequence, newest: dict[tuple[int, int, int, int], int]) -> None:
        """Compares each token of an answer."""
        self.answers += 1
        self.changed += len(sequence.spans) > 1
        for start, end, version in sequence.spans:
            place = (sequence.member_index, sequence.number, start, end)
            last = newest.get(place, version)
            self.unsure += last != version
            wrong = [self._wrong(sequence, start, end, v) for v in range(version, last + 1)]
            if None not in wrong:
                sys.exit(f"{sequence.member}: {wrong[0]}")
            self.tokens += end - start

    def _wrong(self, sequence: Sequence, start: int, end: int, version: int) -> str | None:
        """A token that this version does not give the log-probability that is on record."""
        if version not in self.tables:
            self.tables[version] = read_table(folder_of(self.out, version))
        logprobs = log_softmax(row_of(self.tables[version], int(sequence.ids[0])))
        for at in range(start, end):
            recorded, own = sequence.logprobs[at], np.float32(logprobs[sequence.ids[at] - ARM_0])
            if recorded != own:
                return (
                    f"token {at} has log-probability {recorded} on record, and {own} under "
                    f"version {version}"
                )
        return None


def verify(out: Path, steps: int) -> str:
    """Computes each token of all batches again, and says what was compared."""
    verifier = Verifier(out)
    for number in range(1, steps + 1):
        payload = Payload((out / f"batch-{number}.safetensors").read_bytes())
        newest = newest_of(payload)
        for sequence in payload:
            verifier.check(sequence, newest)
    return (
        f"{verifier.tokens} tokens of {verifier.answers} answers have the log-probabilities of "
        f"their versions, {min(verifier.tables)} to {max(verifier.tables)}, bit by bit; "
        f"{verifier.changed} answers went on under new weights, and for {verifier.unsure} ranges "
        "two versions are on record"
    )


@contextmanager
def engine_at(out: Path, number: int) -> Iterator[str]:
    """Starts an engine, which ends with the block."""
    command = [sys.executable, "-m", "treadle_rl.examples.engine"]
    with open(out / f"engine-{number}.log", "ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        url = process.stdout.readline().strip() if process.stdout else ""
        if not url:
            sys.exit(f"the engine did not start; its words are in {out / f'engine-{number}.log'}")
        yield url
    finally:
        process.kill()
        process.wait()


def check_engines(client: Client, url: str) -> None:
    """A daemon that listens already may have any engines."""
    call = Call("GET", "/v1/models")
    models: list[dict[str, Any]] = client._run(client._link.send(call)).json()["data"]
    if [model["id"] for model in models] != [MODEL]:
        sys.exit(
            f"the daemon at {url} has other engines than treadle_rl.examples.engine: stop it, or "
            "give another --url, at which nothing listens"
        )


def play(arguments: argparse.Namespace) -> None:
    """The bandit at engines of its own."""
    out, steps = arguments.out, arguments.steps
    settings = Settings(group_size=MEMBERS, batch_groups=CONTEXTS, capture="tokens")
    url = address(arguments.url)
    count = 0 if listens(url) else arguments.engines
    with ExitStack() as stack:
        engines = [stack.enter_context(engine_at(out, n)) for n in range(count)]
        start = ["serve", "--engine", ",".join(engines), "--set", "engines.measure=false"]
        daemon = stack.enter_context(daemon_at(url, out, start))
        client = stack.enter_context(daemon.client())
        check_engines(client, url)
        groups = groups_of(steps)
        agents = Agents(client.job(arguments.job), out, Environment(arguments.seed), groups)
        run(agents, settings, groups, initial(), steps)
        print(verify(out, steps), flush=True)
        daemon.check(arguments.job, out)
