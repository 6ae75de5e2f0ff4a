#!/usr/bin/env python3
"""Runs an SGLang server until standard input ends, so that it never outlives a test.

    sglang_server.py MODEL_FOLDER LOG_FILE

Listens on a free port of 127.0.0.1, on the CPU, and prints one line of JSON once it has answered a
request: its URL, and the process group of all its processes, which is ended with standard input. Needs
what `scripts/setup.sh sglang` installs; sgl_kernel.py beside this file stands in for the kernels.
"""
import os
import sys

from serving import free_ports, serve


def environment(folder):
    """One thread each, nothing from the network, everything on the loopback, all files in a folder."""
    return os.environ | {
        "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": folder,
        "PYTHONPATH": os.path.dirname(os.path.abspath(__file__)),
    }


def command(model, port):
    return [
        sys.executable, "-m", "sglang.launch_server",
        "--model-path", model, "--served-model-name", "model", "--host", "127.0.0.1",
        "--port", str(port), "--dtype", "float32", "--max-total-tokens", "65536",
        # What needs no kernels of SGLang's own.
        "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
        "--grammar-backend", "none", "--disable-overlap-schedule",
        "--enable-priority-scheduling", "--enable-metrics", "--enable-cache-report", "--skip-server-warmup",
        # Two servers that poll would leave two cores nothing.
        "--sleep-on-idle",
    ]


def main():
    model, log = sys.argv[1], os.path.abspath(sys.argv[2])
    [port] = free_ports(1)
    serve(command(model, port), environment(os.path.dirname(log)), port, log)


if __name__ == "__main__":
    main()
