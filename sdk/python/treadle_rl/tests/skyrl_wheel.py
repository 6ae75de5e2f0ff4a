"""SkyRL's fully asynchronous trainer out of its wheel, without torch, Ray and models.

Real, as they are in the wheel: `FullyAsyncRayPPOTrainer` with its loop, its queue, its
`_AsyncStalenessManager` and its `_AsyncDataloader`, and `FullyAsyncTrainerSim` with its simulated
training. Stand-ins: what these two files import, among it their base class `RayPPOTrainer`, which
would build models, and the parts that turn outputs into tensors and metrics.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

PACKAGE = "skyrl==0.4.0"
FILES = ("skyrl/train/fully_async_trainer.py", "skyrl/train/fully_async_trainer_sim.py")
LOGGER = logging.getLogger("skyrl")


@dataclass
class TrajectoryID:
    instance_id: str
    repetition_id: int

    def to_string(self) -> str:
        return f"{self.instance_id}_{self.repetition_id}"


class ResumeMode(Enum):
    NONE = "none"


class Loader:
    """`StatefulDataLoader` with batches of one prompt."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        return iter([[row] for row in self.rows])

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        assert state == {}


class Gauge:
    """`TrainingPhaseGauge` and `ScalarGauges`."""

    @contextmanager
    def timed_phase(self, name: str, timings: Any) -> Iterator[None]:
        yield

    def set(self, name: str, value: float, description: str) -> None:
        pass


class Tracker:
    """Keeps what SkyRL logs of each step."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, Any]] = {}

    def log(self, metrics: dict[str, Any], step: int, commit: bool) -> None:
        self.steps.setdefault(step, {}).update(metrics)

    def finish(self) -> None:
        pass


class RayPPOTrainer:
    """The base class: its attributes, and the ends of what the real files call."""

    def __init__(self, cfg: Any, train_dataset: Any, client: Any, generator: Any) -> None:
        self.cfg, self.generator, self.tracker = cfg, generator, Tracker()
        self.train_dataset, self.inference_engine_client = train_dataset, client
        self.all_metrics: dict[str, Any] = {}
        self.all_timings: dict[str, Any] = {}
        self.global_step = 0
        self.resume_mode = ResumeMode.NONE
        self.colocate_all = self.has_critic = False
        self.trajectory_logger = self._ray_gpu_monitor = self._vllm_metrics_scraper = None
        self._callback_handler = types.SimpleNamespace(callbacks=[])
        self.tokenizer = types.SimpleNamespace(decode=lambda ids: f"{len(ids)} tokens")
        self._build_train_dataloader_and_compute_training_steps()

    def _build_train_dataloader_and_compute_training_steps(self) -> None:
        raise NotImplementedError

    def _profiler_start(self) -> None:
        pass

    _profiler_step = _profiler_stop = _profiler_start

    def postprocess_generator_output(self, output: Any, uids: Any, **views: Any) -> Any:
        return output, uids

    def convert_to_training_input(self, output: Any, uids: list[str]) -> list[str]:
        return uids


def prepare_generator_input(
    prompts: list[Any], n: int, sampling: Any, env_class: Any, phase: str, step: int
) -> Any:
    rows = [(row, repetition) for row in prompts for repetition in range(n)]
    return {
        "prompts": [row["prompt"] for row, _ in rows],
        "env_extras": [row["env_extras"] for row, _ in rows],
        "sampling_params": sampling,
        "trajectory_ids": [TrajectoryID(row["uid"], repetition) for row, repetition in rows],
    }, [row["uid"] for row, _ in rows]


def concatenated(outputs: list[Any], **flags: Any) -> dict[str, Any]:
    lists = ("rewards", "response_ids")
    joined = {name: [x for output in outputs for x in output[name]] for name in lists}
    return {**joined, "rollout_metrics": {}}


def put(name: str, **values: Any) -> None:
    """A module with these values, in the place of that name, until the process ends."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        part = ".".join(parts[:depth])
        sys.modules.setdefault(part, types.ModuleType(part))
    sys.modules[name].__dict__.update(values)


def load(folder: Path, put: Callable[..., Any]) -> Any:
    """`FullyAsyncTrainerSim` of the files in a folder; `put` puts modules into their places."""
    skyrl = "skyrl.backends.skyrl_train"
    put("torch")
    put("loguru", logger=LOGGER)
    put("tqdm", tqdm=lambda **about: types.SimpleNamespace(update=int, set_postfix=str, close=str))
    put("torchdata.stateful_dataloader", StatefulDataLoader=Loader)
    named = {"get_sampling_params_for_backend": lambda backend, sampling: sampling}
    put(f"{skyrl}.inference_servers.engine_utils", **named)
    put(f"{skyrl}.training_batch", TrainingInputBatch=list)
    put(f"{skyrl}.utils.io", io=None)
    losses = {"LOSSES_WITH_OLD_LOGPROBS": (), "PolicyLossType": Enum("PolicyLossType", "CISPO")}
    put(f"{skyrl}.utils.ppo_utils", **losses)
    put("skyrl.train.generators.base", GeneratorOutput=dict, TrajectoryID=TrajectoryID)
    put(
        "skyrl.train.generators.utils",
        concatenate_generator_outputs=concatenated,
        get_metrics_from_generator_output=None,
        prepare_generator_input=prepare_generator_input,
    )
    put("skyrl.train.trainer", RayPPOTrainer=RayPPOTrainer)
    put("skyrl.train.utils", Timer=lambda name, timings=None: nullcontext())
    put("skyrl.train.utils.metrics", ScalarGauges=Gauge, TrainingPhaseGauge=Gauge)
    put(
        "skyrl.train.utils.trainer_utils",
        ResumeMode=ResumeMode,
        build_dataloader=lambda cfg, rows, **kind: Loader(rows),
        get_group_completion_metrics=lambda *times: {},
        get_intra_group_completion_time_std_cv=lambda output: (None, None),
        zero_variance_filter=None,
    )
    for file in FILES:
        name = file.removesuffix(".py").replace("/", ".")
        spec = importlib.util.spec_from_file_location(name, folder / file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        put(name, **vars(module))
    return sys.modules[name]
