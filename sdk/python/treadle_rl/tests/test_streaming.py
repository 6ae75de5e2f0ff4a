"""What the example computes from a stream has the bits of what it computes from a batch."""

from __future__ import annotations

from typing import Any

import pytest
from stand_in import assemble, digest, safetensors

from treadle_rl import Payload, StreamEvent

pytest.importorskip("numpy")


def step(prompt: list[int], output: list[int]) -> dict[str, Any]:
    logprobs = [-0.1 * token for token in output]
    return {"prompt": prompt, "output": output, "logprobs": logprobs, "version": 3}


def member(steps: list[dict[str, Any]], reward: float) -> dict[str, Any]:
    sequences = assemble(steps)
    return {"sequences": sequences, "sample": digest(sequences), "reward": reward}


def event(kind: str, **data: Any) -> StreamEvent:
    return StreamEvent("1", kind, data)


def chunk(program: str, at: int, sequence: int, start: int, ids: list[int], **rest: Any) -> Any:
    named = {"program": program, "step": at, "output": 0, "sequence": sequence}
    return event("chunk", **named, start=start, ids=ids, **rest)


def begun(program: str, sequence: int, why: str, start: int = 0, of: int | None = None) -> Any:
    named = {"program": program, "sequence": sequence, "why": why, "start": start}
    return event("sequence", **named, **{"from": of})


def span(start: int, end: int, at: int) -> dict[str, int]:
    return {"start": start, "end": end, "step": at, "output": 0}


def test_chunks_and_branches_have_the_bits_of_the_whole() -> None:
    from treadle_rl.examples.streaming import Network, Prefixes, whole_sums

    talk = [step([1, 2], [3, 4]), step([1, 2, 3, 4, 5], [6]), step([9, 9], [7])]
    branch = {
        "ids": [1, 2, 3, 4, 8, 5],
        "ranges": [(5, 6)],
        "logprobs": [-0.5],
        "spans": [(5, 6, 3)],
    }
    first = member(talk, 1.0)
    first["sequences"].insert(1, branch)
    groups = {"a": {"members": {"p": first, "q": member([step([2], [3])], 0.25)}}}
    payload = Payload(safetensors("j", 1, groups))
    prefixes = Prefixes(Network(7))
    logprobs = {at: s["logprobs"] for at, s in enumerate(talk)}
    layout = [
        {"sequence": 0, "tokens": 6, "sampled": [span(2, 4, 0), span(5, 6, 1)]},
        {"sequence": 1, "tokens": 6, "sampled": [span(5, 6, 3)]},
        {"sequence": 2, "tokens": 3, "sampled": [span(2, 3, 2)]},
    ]
    for message in [
        begun("p", 0, "first"),
        chunk("p", 0, 0, 0, [1], logprobs=[]),
        chunk("p", 0, 0, 1, [2, 3], logprobs=logprobs[0][:1]),
        chunk("p", 0, 0, 3, [4], logprobs=logprobs[0][1:]),
        chunk("p", 1, 0, 4, [5, 6], logprobs=logprobs[1]),
        begun("p", 1, "branch", 4, 0),
        chunk("p", 3, 1, 4, [8, 5], logprobs=[-0.5]),
        begun("p", 2, "break"),
        chunk("p", 2, 2, 0, [9, 9, 7], logprobs=logprobs[2]),
        begun("lost", 0, "first"),
        event("dropped", program="lost"),
        event("ended", program="p", sequences=layout),
        # Its client reported its sample: it is computed from the batch.
        event("ended", program="q", sequences=None),
    ]:
        assert prefixes.take(message) is None
    assert prefixes.take(event("batch", batch=1, group="a", programs=["p", "q"], groups=1)) == 1
    whole = whole_sums(prefixes.network, payload)
    assert len(whole) == 4 and len(set(whole.values())) == 4
    assert prefixes.sums(1, payload) == whole
    assert prefixes.early == prefixes.tokens == 11
    assert prefixes.members == {} and prefixes.batches == {}
