"""Answers of several tokens: some thoughts, then an arm. Two domains need different lengths."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from treadle_rl import Group

from ._loop import ARM_0, ARMS, CONTEXTS, Floats, log_softmax

DOMAINS = ("short", "long")
THINK = ARM_0 + ARMS
"""The token that comes after the arms: a thought."""
VOCABULARY = THINK + 1
TOKENS_MAX = 40
"""An answer that has no arm by then is worth nothing."""
THOUGHTS_NEEDED = 4
"""In the domain `long`, an arm that is chosen sooner pays less."""
SHARES = {"short": 0.4, "long": 0.85}
"""How likely a thought is at first."""
NOISE = 0.1


def domain_of(context: int) -> str:
    return DOMAINS[context % len(DOMAINS)]


def groups_of(steps: int) -> list[Group]:
    """Groups of this many batches, each context once in each."""
    contexts = [(n, n % CONTEXTS) for n in range(steps * CONTEXTS)]
    return [Group(f"{n:06}", {"context": c}, domain=domain_of(c)) for n, c in contexts]


def initial() -> Floats:
    """Logits of a model that has its habits of thinking, and knows nothing of arms."""
    logits: Floats = np.zeros((CONTEXTS, ARMS + 1))
    for context in range(CONTEXTS):
        share = SHARES[domain_of(context)]
        logits[context, -1] = np.log(ARMS * share / (1 - share))
    return logits


def next_token(rng: np.random.Generator, logits: Floats) -> tuple[int, float]:
    """The next token, and its log-probability as a 32-bit number."""
    logprobs = log_softmax(logits)
    column = int(rng.choice(len(logprobs), p=np.exp(logprobs)))
    return ARM_0 + column, float(np.float32(logprobs[column]))


def is_over(tokens: Sequence[int]) -> bool:
    """Whether an answer has its arm, or all tokens that it may have."""
    return bool(tokens) and (tokens[-1] != THINK or len(tokens) == TOKENS_MAX)


class Environment:
    """Pays for answers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.means: Floats = np.random.default_rng(seed).random((CONTEXTS, ARMS))

    def rng(self, program: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(program.encode())])

    def reward(self, context: int, tokens: Sequence[int], rng: np.random.Generator) -> float:
        """What an answer is worth: its arm's mean with noise, less if it was too hasty."""
        if tokens[-1] == THINK:
            return 0.0
        paid = float(self.means[context, tokens[-1] - ARM_0]) + NOISE * rng.standard_normal()
        if domain_of(context) == "long":
            paid *= min(1.0, (len(tokens) - 1) / THOUGHTS_NEEDED)
        return paid
