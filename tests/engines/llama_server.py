#!/usr/bin/env python3
"""Runs llama.cpp's HTTP server until standard input ends, so that it never outlives a test.

    llama_server.py MODEL SLOTS TOKENS_PER_SLOT [SLOTS_FOLDER]

Listens on a free port of 127.0.0.1 and prints its URL once it serves. Slots can be saved to and
restored from the folder, if one is named. Needs xllamacpp.
"""
import os
import random
import socket
import sys

import xllamacpp


def free_port():
    """One below those that the system gives to connections: none of these takes it meanwhile."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def main():
    model, slots, tokens_per_slot = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = free_port()
    params.n_parallel = slots
    params.n_ctx = slots * tokens_per_slot
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.offline = True
    params.warmup = False
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.endpoint_props = True
    if len(sys.argv) > 4:
        # The server puts a file's name right behind it.
        params.slot_save_path = os.path.join(sys.argv[4], "")
    # Caches stay in their slots: what is gone there is computed again.
    params.cache_ram_mib = 0
    server = xllamacpp.Server(params)
    print(f"http://127.0.0.1:{params.port}", flush=True)
    sys.stdin.read()
    del server
    os._exit(0)


if __name__ == "__main__":
    main()
