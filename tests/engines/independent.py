#!/usr/bin/env python3
"""treadle in front of an engine model that shares no code with it.

A stand-in for two vLLM servers, after the published behaviour of its scheduler: continuous batching,
chunked prefill, blocks of 16 tokens with a prefix cache and LRU. It has a tokenizer of its own: 4
bytes a token, 10 tokens a message. Agents with growing histories run against `treadle serve` with its
defaults; the first request is what --first says. Prints one line of JSON.

    tests/engines/independent.py target/release/treadle --first hi
"""
import argparse, asyncio, collections, json, math, os, random, subprocess, sys, tempfile, time

BLOCK, MESSAGE, BYTES = 16, 10, 4
CHUNK, STEP_S, PREFILL_S, SEQUENCE_S = 8192, 0.02, 1 / 12_000, 0.0004

ARGS = argparse.ArgumentParser()
ARGS.add_argument("binary")
ARGS.add_argument("--first", choices=["none", "hi", "long"], default="hi")
ARGS.add_argument("--live", type=int, default=48)
ARGS.add_argument("--programs", type=int, default=96)
ARGS.add_argument("--share", type=float, default=1 / 3, help="KV memory over the peak demand")
ARGS.add_argument("--scale", type=float, default=10.0, help="virtual seconds in a real one")
ARGS.add_argument("--minutes", type=float, default=12.0, help="virtual minutes measured")
ARGS.add_argument("--seed", type=int, default=1)
ARGS.add_argument("--set", action="append", default=[], help="a setting for treadle serve")


def tokens_of(messages):
    return sum(math.ceil(len(m["content"]) / BYTES) + MESSAGE for m in messages)


def blocks_of(messages):
    """Chained hashes of the full blocks."""
    padded = (m["content"] + " " * (-len(m["content"]) % BYTES) for m in messages)
    text = "".join(f"{m['role']:{MESSAGE * BYTES}}{content}" for m, content in zip(messages, padded))
    found, parent, size = [], 0, BLOCK * BYTES
    for at in range(0, len(text) - size + 1, size):
        parent = hash((parent, text[at : at + size]))
        found.append(parent)
    return found


class Engine:
    """One server's scheduler, in virtual time."""

    def __init__(self, blocks):
        self.blocks = blocks
        self.used, self.idle = {}, collections.OrderedDict()  # references; without any, LRU first
        self.private, self.running, self.waiting = 0, [], collections.deque()
        self.wake, self.hits, self.asked = asyncio.Event(), 0, 0

    def make_room(self, need):
        free = self.blocks - self.private - len(self.used) - len(self.idle)
        if free + len(self.idle) < need:
            return False
        for _ in range(need - free):
            self.idle.popitem(last=False)
        return True

    def refer(self, block):
        self.idle.pop(block, None)
        self.used[block] = self.used.get(block, 0) + 1

    def unrefer(self, block):
        self.used[block] -= 1
        if self.used[block] == 0:
            del self.used[block]
            self.idle[block] = None

    def admit(self, budget):
        while self.waiting and len(self.running) < 256 and budget > 0:
            r = self.waiting[0]
            hit = 0
            for b in r["hashes"]:
                if b not in self.used and b not in self.idle:
                    break
                hit += 1
            hit = min(hit, (r["prompt"] - 1) // BLOCK)
            for b in r["hashes"][:hit]:
                self.refer(b)
            need = math.ceil(r["prompt"] / BLOCK) - hit
            if not self.make_room(need):
                for b in r["hashes"][:hit]:
                    self.unrefer(b)
                return
            self.waiting.popleft()
            r.update(held=r["hashes"][:hit], private=need, left=r["prompt"] - hit * BLOCK, written=0)
            r["cached"] = hit * BLOCK
            self.private += need
            self.hits += hit * BLOCK
            self.asked += r["prompt"]
            self.running.append(r)
            budget -= r["left"]

    def release(self, r):
        """What was computed of its prompt stays in the cache, its end to go first."""
        self.private -= r["private"]
        for at, block in reversed(list(enumerate(r["hashes"][: (r["prompt"] - r["left"]) // BLOCK]))):
            if at < len(r["held"]):
                self.unrefer(block)
            elif block not in self.used and block not in self.idle and self.make_room(1):
                self.idle[block] = None

    def iterate(self):
        budget, prefilled = CHUNK, 0
        for r in self.running:
            if r["left"] > 0 and budget > 0:
                chunk = min(r["left"], budget)
                r["left"] -= chunk
                budget -= chunk
                prefilled += chunk
        self.admit(budget)
        done = []
        for r in list(self.running):
            if r["left"] > 0 or r not in self.running:
                continue
            if (r["prompt"] + r["written"]) % BLOCK == 0:
                while not self.make_room(1) and self.running[-1] is not r:
                    victim = self.running.pop()  # preempted: begins again
                    self.release(victim)
                    self.waiting.appendleft(victim)
                if not self.make_room(1):
                    continue
                self.private += 1
                r["private"] += 1
            r["written"] += 1
            if r["written"] >= r["output"]:
                done.append(r)
        for r in done:
            if r in self.running:
                self.running.remove(r)
                self.release(r)
                r["done"].set_result(r)
        return STEP_S + prefilled * PREFILL_S + len(self.running) * SEQUENCE_S

    async def run(self, scale):
        due = time.monotonic()
        while True:
            if not self.running and not self.waiting:
                self.wake.clear()
                await self.wake.wait()
                due = time.monotonic()
            due += self.iterate() / scale
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def metrics(self):
        held = self.private + len(self.used)
        return (
            f'vllm:cache_config_info{{block_size="{BLOCK}",num_gpu_blocks="{self.blocks}"}} 1\n'
            f"vllm:num_requests_running {len(self.running)}\nvllm:num_requests_waiting {len(self.waiting)}\n"
            f"vllm:kv_cache_usage_perc {held / self.blocks}\n"
            f"vllm:prefix_cache_queries_total {self.asked}\nvllm:prefix_cache_hits_total {self.hits}\n"
        )


async def read_http(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    size = next((int(h.split(":")[1]) for h in head if h.lower().startswith("content-length:")), 0)
    return head[0], await reader.readexactly(size) if size else b""


def reply(value, kind="application/json", status="200 OK"):
    body = (value if isinstance(value, str) else json.dumps(value)).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def chat(engine, body):
    request = json.loads(body)
    messages = request["messages"]
    text = "w" * (BYTES * request.get("max_tokens", 16))
    r = {
        "prompt": tokens_of(messages),
        "output": request.get("max_tokens", 16),
        "hashes": blocks_of(messages),
        "done": asyncio.get_running_loop().create_future(),
    }
    engine.waiting.append(r)
    engine.wake.set()
    try:
        await r["done"]
    except asyncio.CancelledError:
        if r in engine.waiting:
            engine.waiting.remove(r)
        if r in engine.running:
            engine.running.remove(r)
            engine.release(r)
        raise
    usage = {"prompt_tokens": r["prompt"], "completion_tokens": r["output"]}
    usage["prompt_tokens_details"] = {"cached_tokens": r["cached"]}
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


def server(engine):
    async def serve(reader, writer):
        try:
            while True:
                line, body = await read_http(reader)
                path = line.split(" ")[1]
                if path == "/v1/chat/completions":
                    writer.write(reply(await chat(engine, body)))
                elif path == "/metrics":
                    writer.write(reply(engine.metrics(), "text/plain"))
                elif path == "/health":
                    writer.write(reply({}))
                elif path == "/v1/models":
                    writer.write(reply({"data": [{"id": "m", "max_model_len": 262144}]}))
                else:
                    writer.write(reply({"detail": "Not Found"}, status="404 Not Found"))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return serve


async def call(port, method, path, value=None, program=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    body = json.dumps(value).encode() if value is not None else b""
    named = f"X-Session-ID: {program}\r\n" if program else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{named}"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    if b"chunked" in head.lower():
        parts, rest = [], body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            parts.append(rest[:n])
            rest = rest[n + 2 :]
        body = b"".join(parts)
    return status, body


def workload(args):
    """Coding agents: a system prompt shared by all, a task by four, then turns with tools."""
    draw = random.Random(args.seed)
    system = "".join(draw.choice("abcdefgh ") for _ in range(10_000))
    runs = []
    for n in range(args.programs):
        task = random.Random(args.seed * 1000 + n // 4)
        first = "".join(task.choice("ijklmnop ") for _ in range(2_482))
        turns = max(3, min(40, int(draw.lognormvariate(2.5, 0.5))))
        steps = [
            (
                max(8, min(1500, int(draw.lognormvariate(4.8, 0.8)))),
                min(60.0, draw.lognormvariate(0.7, 1.0)),
                max(100, min(24_000, int(draw.lognormvariate(8.0, 0.9)))),
            )
            for _ in range(turns)
        ]
        runs.append((system, first, steps))
    return runs


class Crowd:
    def __init__(self, args, port, runs):
        self.args, self.port, self.runs, self.next = args, port, runs, 0
        self.steps, self.refused, self.contexts, self.shared = [], 0, {}, {}
        self.begun = time.monotonic()

    def now(self):
        return (time.monotonic() - self.begun) * self.args.scale

    async def sit(self):
        while True:
            number, self.next = self.next, self.next + 1
            await self.run(f"agent-{number}", self.runs[number % len(self.runs)], number)

    async def run(self, name, run, number):
        system, first, steps = run
        messages = [{"role": "system", "content": system}, {"role": "user", "content": f"{number % 4}{first}"}]
        self.shared[name] = [(system, 1), (system + first + str(number % 4), 1)]
        for output, tool_s, grows in steps:
            sent = self.now()
            request = {"model": "m", "messages": messages, "max_tokens": output}
            status, body = await call(self.port, "POST", "/v1/chat/completions", request, name)
            if status != 200:
                self.refused += 1
                print(status, body[:300], file=sys.stderr)
                break
            answer = json.loads(body)
            self.steps.append((sent, self.now()))
            usage = answer["usage"]
            self.contexts[name] = usage["prompt_tokens"] + usage["completion_tokens"]
            messages.append(answer["choices"][0]["message"])
            messages.append({"role": "tool", "content": "t" * grows})
            await asyncio.sleep(tool_s / self.args.scale)
        self.contexts.pop(name, None)
        await call(self.port, "POST", "/programs/release", {"program_id": name})


def held_by(crowd, names):
    """Tokens that these programs' caches hold, what they share once."""
    shared, private = {}, 0
    for name in names:
        private += crowd.contexts[name]
        for text, _ in crowd.shared[name]:
            shared.setdefault(text, []).append(name)
    system = next(iter(crowd.shared.values()))[0][0]
    part = math.ceil(len(system) / BYTES) + MESSAGE
    total = private - part * (len(names) - 1) if names else 0
    for text, sharers in shared.items():
        if text != system:
            size = math.ceil((len(text) - len(system)) / BYTES) + MESSAGE
            total -= size * (len(sharers) - 1)
    return total


async def watch(crowd, port, seen):
    """Compares charges with true contexts, of workers whose programs are all known to their agents."""
    while True:
        await asyncio.sleep(20 / crowd.args.scale)
        before = dict(crowd.contexts)
        _, workers = await call(port, "GET", "/workers")
        _, programs = await call(port, "GET", "/programs")
        programs = json.loads(programs)
        paused = sum(p["state"] == "paused" for p in programs.values())
        seen["paused_most"] = max(seen["paused_most"], paused)
        for w in json.loads(workers)["workers"]:
            names = [n for n, p in programs.items() if p["backend"] == w["url"]]
            known = [n for n in names if n in crowd.contexts and before.get(n) == crowd.contexts[n]]
            true = sum(crowd.contexts.get(n, 0) for n in names)
            seen["placed_over_capacity"].append(true / w["capacity_tokens"])
            idle = [n for n in names if programs[n]["running_steps"] == 0]
            if names and len(known) == len(names):
                # What running steps add is not known to the agents yet: a prompt's growth.
                running = sum(programs[n]["demand_tokens"] - crowd.contexts[n] for n in names if n not in idle)
                seen["charged_over_held"].append((w["used_tokens"] - running) / max(1, held_by(crowd, names)))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else None


async def main():
    args = ARGS.parse_args()
    runs = workload(args)
    demand = sum(tokens_of([{"content": s}, {"content": f}]) + sum(o + 2 * MESSAGE + g // BYTES for o, _, g in st) * 0.6 for s, f, st in runs)
    per_engine = int(demand / len(runs) * args.live * args.share / 2 / BLOCK)
    engines, ports = [Engine(per_engine) for _ in range(2)], []
    for engine in engines:
        started = await asyncio.start_server(server(engine), "127.0.0.1", 0, limit=1 << 24)
        ports.append(started.sockets[0].getsockname()[1])
        asyncio.create_task(engine.run(args.scale))
    with tempfile.TemporaryDirectory() as folder:
        urls = ",".join(f"http://127.0.0.1:{port}" for port in ports)
        listen = 20_000 + os.getpid() % 10_000
        settings = [f"scheduler.time_scale={args.scale}", f"server.listen=127.0.0.1:{listen}", *args.set]
        command = [os.path.abspath(args.binary), "serve", "--engine", urls]
        for setting in settings:
            command += ["--set", setting]
        daemon = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "log"), "w"))
        try:
            for _ in range(200):
                await asyncio.sleep(0.1)
                try:
                    status, body = await call(listen, "GET", "/workers")
                    if status == 200 and len(json.loads(body)["workers"]) == 2:
                        break
                except OSError:
                    pass
            first = {"hi": "hi", "long": "long " * 2500}.get(args.first)
            if first:
                request = {"model": "m", "messages": [{"role": "user", "content": first}], "max_tokens": 4}
                await call(listen, "POST", "/v1/chat/completions", request, "warm-up")
                await call(listen, "POST", "/programs/release", {"program_id": "warm-up"})
            crowd = Crowd(args, listen, runs)
            seen = {"paused_most": 0, "charged_over_held": [], "placed_over_capacity": []}
            seats = [asyncio.create_task(crowd.sit()) for _ in range(args.live)]
            looks = asyncio.create_task(watch(crowd, listen, seen))
            warm = 4 * 60
            await asyncio.sleep((warm + args.minutes * 60) / args.scale)
            end = crowd.now()
            for task in [*seats, looks]:
                task.cancel()
            took = [e - s for s, e in crowd.steps if e >= warm]
            ratios = seen["charged_over_held"]
            print(json.dumps({
                "first": args.first, "seed": args.seed, "kv_tokens_each": per_engine * BLOCK,
                "steps_per_min": round(len(took) / (end - warm) * 60, 1),
                "p50_s": round(percentile(took, 0.5), 1), "p99_s": round(percentile(took, 0.99), 1),
                "refused": crowd.refused, "paused_most": seen["paused_most"],
                "hit_rate": round(sum(e.hits for e in engines) / max(1, sum(e.asked for e in engines)), 3),
                "charged_over_held_p50": ratios and round(percentile(ratios, 0.5), 3),
                "charged_over_held_min_max": ratios and [round(min(ratios), 3), round(max(ratios), 3)],
                "looks": len(ratios),
                "placed_over_capacity_max": round(max(seen["placed_over_capacity"], default=0), 2),
            }))
        finally:
            daemon.terminate()
            daemon.wait()


asyncio.run(main())
