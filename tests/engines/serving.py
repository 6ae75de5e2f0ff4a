"""Runs an engine's server until standard input ends, so that it never outlives a test."""
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


def ask(url, body=None):
    """True if the answer is a success."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read() is not None
    except OSError:
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


def serve(command, environment, port, log):
    """Runs a command that serves a model called `model` at a port of 127.0.0.1.

    Prints one line of JSON once it has answered a request: its URL, and the process group of all its
    processes, which is ended with standard input. What it says goes to the log.
    """
    url = f"http://127.0.0.1:{port}"
    libc = ctypes.CDLL(None)
    with open(log, "ab") as output:
        server = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM))

    def until_told():
        sys.stdin.read()
        end(server)
        os._exit(0)

    threading.Thread(target=until_told, daemon=True).start()
    if not start(server, url):
        end(server)
        sys.exit(f"the server did not start; {log} says why")
    print(json.dumps({"url": url, "group": server.pid}), flush=True)
    # A test that kills the server looks at what follows.
    threading.Event().wait()
