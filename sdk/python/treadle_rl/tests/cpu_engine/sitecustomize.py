"""Lets engines on processors use checkpoint-engine, which refuses machines without a GPU.

In an engine's PYTHONPATH it replaces three things as they are imported: checkpoint-engine's device
manager by one that does nothing, SGLang's name of its device by `CPU-0`, and vLLM's packing of
matrices for processors by one that keeps the matrices, without which nothing can be loaded later.
The receiver, the engines' loading of weights and their control paths are as they are.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

WORKER = "checkpoint_engine.worker"
SGLANG = "sglang.srt.checkpoint_engine.checkpoint_engine_worker"
VLLM = "vllm.model_executor.layers.utils"


def patch(module: ModuleType) -> None:
    inside = vars(module)
    if module.__name__ == WORKER:
        nothing = dict.fromkeys(("synchronize", "ipc_collect", "empty_cache"), lambda: None)
        manager = SimpleNamespace(device_module=SimpleNamespace(**nothing))
        inside["DeviceManager"] = lambda: manager
    elif module.__name__ == SGLANG:
        kind = inside["SGLangCheckpointEngineWorkerExtensionImpl"]
        kind.get_device_uuid = lambda self: "CPU-0"
    else:
        pack = inside["dispatch_cpu_unquantized_gemm"]

        @functools.wraps(pack)
        def keep(layer: Any, remove_weight: bool) -> None:
            pack(layer, remove_weight=False)

        inside["dispatch_cpu_unquantized_gemm"] = keep


class Finder:
    """Finds the modules as others do, and patches them once they are loaded."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in (WORKER, SGLANG, VLLM):
            return None
        sys.meta_path.remove(finder)
        spec = importlib.util.find_spec(name)
        sys.meta_path.insert(0, finder)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def loaded(module: ModuleType) -> None:
            load(module)
            patch(module)

        vars(spec.loader)["exec_module"] = loaded
        return spec


finder: Any = Finder()
sys.meta_path.insert(0, finder)
