"""vLLM's extension for checkpoint-engine on a processor: `--worker-extension-cls cpu_worker.Extension`."""

from __future__ import annotations

from checkpoint_engine.worker import VllmColocateWorkerExtension


class Extension(VllmColocateWorkerExtension):
    """The package's own, but for its device's name, which only GPUs have."""

    _device_uuid = "CPU-0"
