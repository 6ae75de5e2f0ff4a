"""Host memory for vLLM's OffloadingConnector on a processor.

vLLM refuses to offload there: its own copy worker needs CUDA streams. Lookup, LRU and bookkeeping are
vLLM's; what is replaced is the copying, which is done at once.
"""
import time

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec


class HostMemoryWorker(OffloadingWorker):
    """Copies blocks between the KV cache and a second tensor of each of its tensors."""

    def __init__(self, caches, chunks):
        self.caches = [cache.tensor for cache in caches.tensors]
        self.copies = [torch.empty((chunks, *cache.shape[1:]), dtype=cache.dtype)
                       for cache in self.caches]
        self.finished = []

    def copy(self, job_id, sources, targets, source, target):
        began = time.monotonic()
        source = torch.from_numpy(source.block_ids).long()
        target = torch.from_numpy(target.block_ids).long()
        for of, into in zip(sources, targets, strict=True):
            into[target] = of[source]
        size = sum(of[0].nbytes for of in sources) * len(source)
        self.finished.append(TransferResult(job_id, True, size, time.monotonic() - began))
        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, self.caches, self.copies, src_spec, dst_spec)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, self.copies, self.caches, src_spec, dst_spec)

    def get_finished(self):
        finished, self.finished = self.finished, []
        return finished

    def wait(self, job_ids):
        """Every copy is done when it is submitted."""


class HostMemorySpec(CPUOffloadingSpec):
    """vLLM's own, with the worker above."""

    def get_worker(self, kv_caches):
        assert self.blocks_per_chunk == 1, "blocks are copied one by one"
        assert len(kv_caches.group_data_refs) == 1, "one group of layers"
        if self._worker is None:
            self._worker = HostMemoryWorker(kv_caches, self.num_chunks)
        return self._worker
