"""A trainer that computes on tokens while their members still run.

    python -m treadle_rl.examples.streaming [--url URL] [--model NAME] [--steps 3] [--job streaming]

Agents talk to the model through treadle, in turns. The trainer reads the job's stream and computes
each chunk once, from the state after the tokens before it, as a model with a KV cache does (DARTS,
Appendix E). A member's sums need its whole sample and the rewards of its group, so they follow when
a batch took the group. Each batch is computed a second time from its payload: both have the same
bits. The network is a toy with weights that never change, as those of a reference model; a trainer
whose weights change begins again with the prefixes that it holds. Needs numpy.
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError:
    sys.exit("the example needs numpy: pip install numpy")

from treadle_rl import Client, Group, Job, Payload, Settings, StreamEvent, TreadleError
from treadle_rl._http import Call, to_json

VOCABULARY, WIDTH = 211, 12
GROUP_SIZE, TURNS = 2, 3
Floats: TypeAlias = NDArray[np.float64]
Sums: TypeAlias = dict[tuple[str, str, int], bytes]
"""Running sums of each sequence, by group, program and number."""


class Network:
    """A recurrent cell: the score of a token depends on all tokens before it."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.inputs: Floats = rng.standard_normal((VOCABULARY, WIDTH))
        self.mix: Floats = rng.standard_normal((WIDTH, WIDTH)) / WIDTH
        self.head: Floats = rng.standard_normal((VOCABULARY, WIDTH))

    def begin(self) -> Floats:
        return np.zeros(WIDTH)

    def read(self, state: Floats, ids: Iterable[int]) -> tuple[Floats, list[float]]:
        """The state after some tokens, and the log-probability of each."""
        scores = []
        for token in ids:
            logits = (self.head * state).sum(axis=1)
            logits -= logits.max()
            scores.append(float(logits[token % VOCABULARY] - np.log(np.exp(logits).sum())))
            state = np.tanh((self.mix * state).sum(axis=1) + self.inputs[token % VOCABULARY])
        return state, scores


def running_sums(scores: Sequence[float], logprobs: Sequence[float], advantage: float) -> bytes:
    """What is compared: sums over prefixes of (score - log-probability) times the advantage."""
    ratios: Floats = np.array(scores) - np.array(logprobs, dtype=np.float32)
    return np.cumsum(ratios * advantage).tobytes()


@dataclass
class Line:
    """A sequence so far: scores of its tokens, and the states after its steps."""

    scores: list[float]
    states: dict[int, Floats]


@dataclass
class Progress:
    """A member so far."""

    lines: dict[int, Line] = field(default_factory=dict)
    logprobs: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    layout: list[dict[str, Any]] | None = None
    ended: bool = False


class Prefixes:
    """Computes what a stream brings, as it comes."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.members: dict[str, Progress] = {}
        self.batches: dict[int, list[str]] = {}
        self.tokens = self.early = 0
        """Tokens that were computed, and those of them whose members were still running."""

    def take(self, event: StreamEvent) -> int | None:
        """Computes an event. Returns the number of a batch that has come with all its groups."""
        data = event.data
        if event.kind == "sequence":
            self._sequence(self.members.setdefault(data["program"], Progress()), data)
        elif event.kind == "chunk":
            self._chunk(self.members[data["program"]], data)
        elif event.kind == "ended":
            member = self.members.setdefault(data["program"], Progress())
            member.ended = True
            member.layout = data["sequences"] or member.layout
        elif event.kind == "dropped" or (event.kind == "gone" and data["what"] == "step"):
            self.members.pop(data["program"], None)
        elif event.kind == "batch":
            self.batches.setdefault(data["batch"], []).append(data["group"])
            if len(self.batches[data["batch"]]) == data["groups"]:
                return int(data["batch"])
        return None

    def _sequence(self, member: Progress, data: dict[str, Any]) -> None:
        line = Line([], {0: self.network.begin()})
        if data["why"] == "branch":  # A copy of a cache, or of its first blocks.
            start, first = data["start"], member.lines[data["from"]]
            line = Line(first.scores[:start], {start: first.states[start]})
        member.lines[data["sequence"]] = line

    def _chunk(self, member: Progress, data: dict[str, Any]) -> None:
        line, start = member.lines[data["sequence"]], data["start"]
        if start != len(line.scores):
            sys.exit(f"a chunk of {data['program']} begins at {start}, not {len(line.scores)}")
        state, scores = self.network.read(line.states[start], data["ids"])
        line.scores += scores
        line.states[len(line.scores)] = state
        of_step = member.logprobs.setdefault((data["step"], data["output"]), [])
        of_step += data["logprobs"]
        self.tokens += len(scores)
        self.early += 0 if member.ended else len(scores)

    def sums(self, number: int, payload: Payload) -> Sums:
        """The sums of a batch, from what was computed. Members whose sequences the stream could not
        tell are computed from the payload."""
        groups, advantages = self.batches.pop(number), advantages_of(payload)
        sums: Sums = {}
        for entry in payload.meta["members"]:
            program = entry["program"]
            member = self.members.pop(program, None)
            group, advantage = advantages[program]
            if group not in groups:
                sys.exit(f"group {group} is in batch {number}, and the stream did not say so")
            if member is None or member.layout is None:
                sums |= whole_sums(self.network, payload, {program})
                continue
            for nth, sequence in enumerate(member.layout):
                scores: list[float] = []
                logprobs: list[float] = []
                for span in sequence["sampled"]:
                    line = member.lines[sequence["sequence"]]
                    scores += line.scores[span["start"] : span["end"]]
                    logprobs += member.logprobs[span["step"], span["output"]]
                sums[group, program, nth] = running_sums(scores, logprobs, advantage)
        return sums


def advantages_of(payload: Payload) -> dict[str, tuple[str, float]]:
    """Group and advantage of each program: its reward less the mean of its group."""
    members = {sequence.member: (sequence.group, sequence.reward) for sequence in payload}
    rewards: dict[str, list[float]] = {}
    for group, reward in members.values():
        rewards.setdefault(group, []).append(reward)
    means = {group: float(np.mean(of_group)) for group, of_group in rewards.items()}
    return {program: (group, reward - means[group]) for program, (group, reward) in members.items()}


def whole_sums(network: Network, payload: Payload, programs: set[str] | None = None) -> Sums:
    """The sums of a batch that has come as a whole, of all programs or of some."""
    advantages, sums = advantages_of(payload), {}
    for sequence in payload:
        if programs is None or sequence.member in programs:
            group, advantage = advantages[sequence.member]
            _, scores = network.read(network.begin(), sequence.ids.tolist())
            mask = sequence.mask
            sums[group, sequence.member, sequence.number] = running_sums(
                np.array(scores)[mask].tolist(), sequence.logprobs[mask].tolist(), advantage
            )
    return sums


class Agents:
    """Threads with an agent each. Agent `w` samples a member of each group."""

    def __init__(self, client: Client, job: str, model: str) -> None:
        self.client, self.job, self.model = client, job, model
        self.failure: Exception | None = None

    def start(self, groups: list[str]) -> None:
        for number in range(GROUP_SIZE):
            arguments = (number, groups)
            threading.Thread(target=self._work, args=arguments, daemon=True).start()

    def _work(self, number: int, groups: list[str]) -> None:
        try:
            for group in groups:
                attempt = 0
                while not self._talk(group, f"{self.job}-{group}-{number}-{attempt}"):
                    attempt += 1
        except Exception as failure:  # noqa: BLE001 - the main thread raises it
            self.failure = failure

    def _talk(self, group: str, program: str) -> bool:
        """Talks in turns; `False` if the program was cut or replaced."""
        names = {"X-Treadle-Job": self.job, "X-Treadle-Group": group, "X-Program-Id": program}
        messages = [{"role": "user", "content": f"task {group}"}]
        try:
            for _ in range(TURNS):
                body = to_json({"model": self.model, "messages": messages, "max_tokens": 12})
                path = "/v1/chat/completions"
                call = Call("POST", path, body=body, headers=names, wait_s=3600.0)
                reply = self.client._run(self.client._link.send(call))
                message = reply.json()["choices"][0]["message"]
                messages += [message, {"role": "user", "content": "go on"}]
        except TreadleError as error:
            if error.status == 409:
                return False
            raise
        self.client.release(program, reward=sum(map(len, map(str, messages))) % 7 / 8)
        return self._is_kept(group, program)

    def _is_kept(self, group: str, program: str) -> bool:
        """Whether a program that ended has its sample, or its group is in a batch."""
        call = Call("GET", f"/api/v1/jobs/{self.job}/groups", query={"group": group})
        while True:
            groups = self.client._run(self.client._link.send(call)).json()["groups"]
            if not groups:
                return True
            members = {member["program"]: member for member in groups[0]["members"]}
            if program not in members:
                return False
            if members[program]["sample"] is not None:
                return True
            time.sleep(0.05)


def batches(job: Job, steps: int, ready: queue.Queue[int | Exception]) -> None:
    """Asks for one batch after the other: a batch is cut when it is asked for."""
    try:
        for number in range(1, steps + 1):
            ready.put(job.batch(number).batch)
    except Exception as failure:  # noqa: BLE001 - the main thread raises it
        ready.put(failure)


def train(job: Job, prefixes: Prefixes, agents: Agents, steps: int) -> None:
    """Follows the stream until the last batch was trained."""
    ready: queue.Queue[int | Exception] = queue.Queue()
    threading.Thread(target=batches, args=(job, steps, ready), daemon=True).start()
    for event in job.stream():
        if agents.failure is not None:
            raise agents.failure
        number = prefixes.take(event)
        if number is None:
            continue
        asked = ready.get()
        if isinstance(asked, Exception):
            raise asked
        payload = job.payload(number)
        streamed, whole = prefixes.sums(number, payload), whole_sums(prefixes.network, payload)
        if streamed != whole:
            sys.exit(f"batch {number} differs between the stream and its payload")
        print(f"batch {number}: {len(whole)} sequences have the same bits", flush=True)
        job.trained(number)
        job.version(number)
        if number == steps:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description="A trainer that computes on streamed tokens.")
    parser.add_argument("--url", help="the daemon; default TREADLE_URL, or http://127.0.0.1:8300")
    parser.add_argument("--model", default="default", help="the model that agents ask for")
    parser.add_argument("--steps", type=int, default=3, help="batches to train on")
    parser.add_argument("--job", default="streaming", help="name of the job, a new one")
    parser.add_argument("--groups", type=int, default=2, help="groups in a batch")
    arguments = parser.parse_args()
    with Client(arguments.url) as client:
        job = client.job(arguments.job)
        job.declare(
            Settings(
                group_size=GROUP_SIZE,
                batch_groups=arguments.groups,
                lag_max=arguments.steps,
                capture="tokens",
            )
        )
        groups = [f"{n:04}" for n in range(arguments.steps * arguments.groups)]
        job.submit(Group(group) for group in groups)
        prefixes, agents = Prefixes(Network(0)), Agents(client, arguments.job, arguments.model)
        agents.start(groups)
        train(job, prefixes, agents, arguments.steps)
    share = prefixes.early / max(1, prefixes.tokens)
    print(f"{prefixes.tokens} tokens, {share:.0%} of them computed while their members ran")


if __name__ == "__main__":
    main()
