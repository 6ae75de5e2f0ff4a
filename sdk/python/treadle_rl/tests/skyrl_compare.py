"""Compares SkyRL's own staleness manager with treadle's batches, in SkyRL's own loop.

    python tests/skyrl_compare.py --binary ../../../target/debug/treadle

`FullyAsyncTrainerSim` of SkyRL's wheel (`skyrl_wheel.py` says what of it is real) trains the same
number of mini-batches twice: with its own queue and staleness manager, and with the mini-batches
that treadle cuts (`treadle_rl.adapters.skyrl`), with the same bound. Both send each request through
one daemon to the same simulated engines, with the same prompts, lengths of answers, tools, and
times of training and of weight updates. Of the settings tried of each the best one is compared.
SkyRL's bound holds for the sum of groups, so it also runs with the bound 0, which no group exceeds.

Stand-ins: the engines (`treadle up`), the generator and the inference client below, and training.
Times are those of the model, in scaled seconds: real ones times `--time-scale`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import httpx
import skyrl_wheel
import wheels

from treadle_rl.examples._daemon import Daemon, daemon_at

MODEL = "treadle-sim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What both sides have in common. Times are in scaled seconds."""

    steps: int
    batch: int
    group: int
    lag: int
    turns: int
    tokens: int
    spread: float
    tool_s: float
    train_s: float
    sync_s: float
    time_scale: float
    seed: int

    def rows(self) -> list[dict[str, Any]]:
        """Prompts, more than are trained."""
        count = (self.steps + self.lag + 1) * self.batch
        return [
            {"uid": f"{number}", "prompt": [number] * 200, "env_extras": None}
            for number in range(count)
        ]

    def sample(self, uid: str, repetition: int, attempt: int) -> list[tuple[int, float]]:
        """Tokens and the tool's seconds of each turn of a sample.

        It is long or short as a whole, as agents' are: half of the variance is the prompt's, half
        its own. A group that is sampled again keeps the former.
        """
        spread = self.spread / 2**0.5
        size = 1.0
        own = random.Random(f"{self.seed}/{uid}/{repetition}/{attempt}")
        for stream in (random.Random(f"{self.seed}/{uid}"), own):
            size *= stream.lognormvariate(-(spread**2) / 2, spread)
        tokens = max(1, min(16_000, int(self.tokens * size)))
        return [(tokens, own.expovariate(1 / self.tool_s)) for _ in range(self.turns)]


@dataclass(frozen=True, slots=True)
class Setting:
    """One run: whose batches, and the setting that is tried."""

    system: str
    workers: int
    pipeline: int | None = None
    stale: str | None = None
    bound: int | None = None
    """SkyRL's bound, if it is not the one that both have."""

    def name(self) -> str:
        own = "" if self.pipeline is None else f", pipeline {self.pipeline}, {self.stale}"
        own += "" if self.bound is None else f", bound {self.bound}"
        return f"{self.system}, {self.workers} workers{own}"


@dataclass(slots=True)
class Outcome:
    """What a run came to. Staleness counts training steps, by one observer for both systems."""

    setting: Setting
    batches: int
    seconds: float
    staleness: list[int] = field(default_factory=list)
    requests: int = 0
    refused: int = 0
    resampled: int = 0

    def report(self, lag: int) -> dict[str, Any]:
        hours = self.seconds / 3600
        beyond = sum(stale > lag for stale in self.staleness)
        return {
            **asdict(self.setting),
            "batches": self.batches,
            "groups": len(self.staleness),
            "seconds": round(self.seconds, 1),
            "steps_per_hour": round(self.batches / hours, 1),
            "staleness_max": max(self.staleness),
            "staleness_mean": round(sum(self.staleness) / len(self.staleness), 3),
            "groups_beyond_bound": beyond,
            "requests": self.requests,
            "requests_refused": self.refused,
            "groups_sampled_again": self.resampled,
        }


class Client:
    """Stand-in of SkyRL's `RemoteInferenceClient`: its paths and headers, through the daemon.

    A pause holds requests that are not sent yet, until the weights are there.
    """

    def __init__(self, daemon: Daemon, job: str) -> None:
        headers = {"authorization": f"Bearer {daemon.token}", "x-treadle-job": job}
        limits = httpx.Limits(max_connections=None)
        self.http = httpx.AsyncClient(
            base_url=daemon.url, headers=headers, limits=limits, timeout=None
        )
        self.weight_version = 0
        self._running = asyncio.Event()

    async def pause_generation(self) -> None:
        self._running.clear()

    async def resume_generation(self) -> None:
        self._running.set()

    def increment_weight_version(self) -> None:
        self.weight_version += 1

    async def generate(self, session: str, prompt: list[int], tokens: int) -> list[int]:
        await self._running.wait()
        sampling = {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True}
        body = {"model": MODEL, "token_ids": prompt, "sampling_params": sampling}
        headers = {"x-session-id": session}
        answer = await self.http.post("/inference/v1/generate", json=body, headers=headers)
        answer.raise_for_status()
        output: list[int] = answer.json()["choices"][0]["token_ids"]
        return output

    async def finish_session(self, session: str) -> None:
        await self.http.post("/finish_session", params={"session_id": session})


class Generator:
    """Stand-in of SkyRL's generator: agents with tools, whose lengths the model has."""

    def __init__(self, client: Client, model: Model) -> None:
        self.client, self.model = client, model
        self.began: dict[str, int] = {}
        """The version of the weights when a group began, by its prompt."""
        self.attempts: dict[str, int] = {}
        self.requests = self.refused = 0

    async def generate(self, given: Any) -> dict[str, Any]:
        uid = str(given["prompts"][0][0])
        self.began[uid] = self.client.weight_version
        attempt = self.attempts[uid] = self.attempts.get(uid, -1) + 1
        runs = [
            self._sample(ids.to_string(), prompt, self.model.sample(uid, number, attempt))
            for number, (ids, prompt) in enumerate(zip(given["trajectory_ids"], given["prompts"]))
        ]
        results = await asyncio.gather(*runs, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return {"response_ids": results, "rewards": [0.0] * len(results)}

    async def _sample(self, session: str, prompt: list[int], turns: Any) -> list[int]:
        context = list(prompt)
        try:
            for tokens, tool_s in turns:
                self.requests += 1
                context += await self.client.generate(session, context, tokens)
                await asyncio.sleep(tool_s / self.model.time_scale)
        except httpx.HTTPStatusError:
            self.refused += 1
            raise
        finally:
            await self.client.finish_session(session)
        return context[len(prompt) :]


def settings_of(model: Model, workers: int, bound: int | None = None) -> Any:
    """SkyRL's configuration, as far as the loop reads it."""
    fully_async = SimpleNamespace(
        enabled=True,
        simulate_training=True,
        simulate_training_step_seconds=model.train_s / model.time_scale,
        simulate_weight_sync_seconds=model.sync_s / model.time_scale,
        max_staleness_steps=model.lag if bound is None else bound,
        num_parallel_generation_workers=workers,
        sample_full_batch=False,
    )
    algorithm = SimpleNamespace(
        policy_loss_type="rollout_is", dynamic_sampling=SimpleNamespace(type=None)
    )
    trainer = SimpleNamespace(
        fully_async=fully_async,
        algorithm=algorithm,
        policy_mini_batch_size=model.batch,
        train_batch_size=model.batch,
        epochs=1,
        max_training_steps=model.steps,
        update_ref_every_epoch=False,
        **dict.fromkeys(("eval_interval", "ckpt_interval", "hf_save_interval"), -1),
    )
    generator = SimpleNamespace(
        batched=False,
        n_samples_per_prompt=model.group,
        sampling_params={},
        step_wise_trajectories=False,
        inference_engine=SimpleNamespace(backend="vllm", enable_return_routed_experts=False),
    )
    environment = SimpleNamespace(env_class=None)
    return SimpleNamespace(trainer=trainer, generator=generator, environment=environment)


def observed(sim: Any) -> Any:
    """`FullyAsyncTrainerSim`, with what it lacks, and with the staleness of what it trains."""

    class Observed(sim.FullyAsyncTrainerSim):  # type: ignore[misc]
        def init_weight_sync_state(self) -> None:
            super().init_weight_sync_state()
            # 0.4.0 calls both, and its simulated dispatch has neither.
            self.dispatch.get_timing_metrics = dict
            self.dispatch.finalize_pending_saves = str
            self.staleness: list[int] = []

        async def _run_training(self, training_input: Any) -> Any:
            for uid in dict.fromkeys(training_input):
                # The first version is that of the first step.
                self.staleness.append(self.global_step - self.generator.began[uid])
            return await super()._run_training(training_input)

    return Observed


async def run(sim: Any, model: Model, setting: Setting, daemon: Daemon, number: int) -> Outcome:
    """Trains all mini-batches with one setting."""
    kind = observed(sim)
    job = f"{setting.system}-{number}"
    if setting.system == "treadle":
        os.environ["TREADLE_URL"], os.environ["TREADLE_TOKEN"] = daemon.url, str(daemon.token)
        batches = importlib.import_module("treadle_rl.adapters.skyrl").TreadleBatches
        about = {"job_name": job, "pipeline": setting.pipeline, "stale": setting.stale}
        kind = type("WithTreadle", (batches, kind), about)
    client = Client(daemon, job)
    generator = Generator(client, model)
    settings = settings_of(model, setting.workers, setting.bound)
    trainer = kind(settings, model.rows(), client, generator)
    start = time.monotonic()
    await trainer.train()
    seconds = (time.monotonic() - start) * model.time_scale
    await client.http.delete(f"/api/v1/jobs/{job}")
    await client.http.aclose()
    outcome = Outcome(setting, model.steps, seconds, trainer.staleness)
    outcome.requests, outcome.refused = generator.requests, generator.refused
    outcome.resampled = sum(generator.attempts.values())
    assert len(outcome.staleness) == model.steps * model.batch, "a group was trained twice"
    return outcome


def tried(model: Model) -> list[Setting]:
    """Settings that are tried of each system, within the bound that both have."""
    most = model.batch * (model.lag + 1)
    workers = sorted({model.batch * n for n in range(1, model.lag + 2)})
    skyrl = [Setting("skyrl", count) for count in workers]
    skyrl.append(Setting("skyrl", model.batch, bound=0))
    return skyrl + [
        Setting("treadle", most, pipeline, stale)
        for pipeline in range(1, model.lag + 1)
        for stale in ("cut", "wait")
    ]


def compared(model: Model, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The best setting of each system, and how they compare."""
    reports = [outcome.report(model.lag) for outcome in outcomes]

    def best(system: str, beyond_max: int) -> dict[str, Any] | None:
        own = [report for report in reports if report["system"] == system]
        own = [report for report in own if report["groups_beyond_bound"] <= beyond_max]
        return max(own, key=lambda report: float(report["steps_per_hour"]), default=None)

    treadle = best("treadle", 0)

    def over(skyrl: dict[str, Any] | None) -> float | None:
        if treadle is None or skyrl is None:
            return None
        ratio: float = treadle["steps_per_hour"] / skyrl["steps_per_hour"]
        return round(ratio, 3)

    skyrl, within = best("skyrl", sys.maxsize), best("skyrl", 0)
    return {
        "model": asdict(model),
        "stand_ins": ["engines", "generator", "inference client", "training", "base trainer"],
        "runs": reports,
        "best": {"skyrl": skyrl, "skyrl_within_bound": within, "treadle": treadle},
        "treadle_over_skyrl": over(skyrl),
        "treadle_over_skyrl_within_bound": over(within),
    }


def text(comparison: dict[str, Any]) -> str:
    """The comparison for a terminal."""
    lines = [
        "SkyRL's loop (real); engines, generator and training (stand-ins)",
        f"bound {comparison['model']['lag']} steps, {comparison['model']['steps']} mini-batches",
        f"{'':40} steps/h  staleness max  mean  groups beyond the bound",
    ]
    for report in comparison["runs"]:
        setting = Setting(*(report[name] for name in Setting.__dataclass_fields__))
        mark = "*" if report in comparison["best"].values() else " "
        lines.append(
            f"{mark} {setting.name():38} {report['steps_per_hour']:7.1f}  "
            f"{report['staleness_max']:13}  {report['staleness_mean']:4.2f}  "
            f"{report['groups_beyond_bound']:5} of {report['groups']}"
        )
    lines.append(f"treadle's best (*) over SkyRL's best: {comparison['treadle_over_skyrl']}")
    within = comparison["treadle_over_skyrl_within_bound"]
    lines.append(f"treadle's best over SkyRL's best in which no group exceeds the bound: {within}")
    return "\n".join(lines)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--binary", type=Path, help="treadle; by default as TREADLE names it, or on the PATH")
    parser.add_argument("--listen", default="127.0.0.1:8397", help="where the daemon listens")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--profile", default="qwen3-8b-h100", help="of the simulated engines")
    parser.add_argument("--steps", type=int, default=16, help="mini-batches that are trained")
    parser.add_argument("--batch", type=int, default=8, help="groups of a mini-batch")
    parser.add_argument("--group", type=int, default=4, help="samples of a prompt")
    parser.add_argument("--lag", type=int, default=1, help="the bound on staleness, in steps")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=500, help="of an answer, in the mean")
    parser.add_argument("--spread", type=float, default=1.0, help="sigma of lengths' logarithms")
    parser.add_argument("--tool-s", type=float, default=3.0)
    parser.add_argument("--train-s", type=float, default=8.0)
    parser.add_argument("--sync-s", type=float, default=1.0)
    parser.add_argument("--time-scale", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parsed = parser.parse_args(given)
    if min(parsed.lag, parsed.steps, parsed.batch, parsed.group, parsed.turns) < 1:
        parser.error("--lag, --steps, --batch, --group and --turns have to be at least 1")
    return parsed


def model_of(parsed: argparse.Namespace) -> Model:
    return Model(**{name: getattr(parsed, name) for name in Model.__dataclass_fields__})


def main() -> None:
    parsed = arguments()
    model = model_of(parsed)
    logging.basicConfig(level=logging.ERROR)  # SkyRL warns of each group beyond the bound.
    if parsed.binary is not None:
        os.environ["TREADLE"] = str(parsed.binary.absolute())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not wheels.unpack(skyrl_wheel.PACKAGE, skyrl_wheel.FILES, folder):
            sys.exit(f"pip can't download {skyrl_wheel.PACKAGE}; name its wheel in SKYRL_WHEEL")
        sim = skyrl_wheel.load(folder, skyrl_wheel.put)
        start = ["up", "--engines", str(parsed.engines), "--profile", parsed.profile]
        url = f"http://{parsed.listen}"
        start += ["--time-scale", str(model.time_scale), "--model", MODEL]
        with redirect_stdout(sys.stderr), daemon_at(url, folder, start) as daemon:
            if daemon.binary is None:
                sys.exit(f"something listens at {parsed.listen}; name a free port with --listen")
            outcomes = []
            for number, setting in enumerate(tried(model)):
                print(f"running {setting.name()}", file=sys.stderr, flush=True)
                outcomes.append(asyncio.run(run(sim, model, setting, daemon, number)))
                print(outcomes[-1].report(model.lag), file=sys.stderr, flush=True)
    comparison = compared(model, outcomes)
    print(json.dumps(comparison) if parsed.json else text(comparison))


if __name__ == "__main__":
    main()
