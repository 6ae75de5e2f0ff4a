#!/usr/bin/env python3
"""treadle, or another router, in front of an engine model that shares no code with it.

A stand-in for two vLLM servers, after the published behaviour of its scheduler: continuous batching,
chunked prefill, blocks of 16 tokens with a prefix cache and LRU, and with --host-share host memory
that evicted blocks go to and come back from. It has a tokenizer of its own: 4 bytes a token, 10 tokens
a message. Agents with growing histories run against `treadle serve` with its defaults, its plain modes,
or a router of those that scripts/peers.sh installs; the first request is what --first says. Prints one
line of JSON.

    tests/engines/independent.py target/release/treadle --first hi
    tests/engines/independent.py --front vllm-router-program --host-share 2
"""
import argparse, asyncio, collections, contextlib, json, math, os, random, re, subprocess, sys, tempfile, time

BLOCK, MESSAGE, BYTES = 16, 10, 4
MODEL = {"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 262144}
CHUNK, STEP_S, PREFILL_S, SEQUENCE_S = 8192, 0.02, 1 / 12_000, 0.0004

ARGS = argparse.ArgumentParser()
ARGS.add_argument("binary", nargs="?", default="target/release/treadle")
ARGS.add_argument("--front", default="treadle", help="treadle, sticky, least-load, or a name in --peers")
ARGS.add_argument("--peers", default=".treadle/peers/peers.json", help="what scripts/peers.sh wrote")
ARGS.add_argument("--first", choices=["none", "hi", "long"], default="hi")
ARGS.add_argument("--live", type=int, default=48)
ARGS.add_argument("--programs", type=int, default=96)
ARGS.add_argument("--share", type=float, default=1 / 3, help="KV memory over the peak demand")
ARGS.add_argument("--host-share", type=float, default=0.0, help="host memory over the peak demand")
ARGS.add_argument("--host-speed", type=float, default=200_000.0, help="tokens/s that come back from it")
ARGS.add_argument("--scale", type=float, default=10.0, help="virtual seconds in a real one")
ARGS.add_argument("--minutes", type=float, default=12.0, help="virtual minutes measured")
ARGS.add_argument("--seed", type=int, default=1)
ARGS.add_argument("--log", help="a file for what the front writes")
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

    def __init__(self, blocks, host_blocks, host_speed):
        self.blocks, self.host_blocks, self.host_speed = blocks, host_blocks, host_speed
        self.used, self.idle = {}, collections.OrderedDict()  # references; without any, LRU first
        self.private, self.running, self.waiting = 0, [], collections.deque()
        self.host, self.loading = collections.OrderedDict(), []  # LRU first; requests whose blocks come back
        self.clock, self.link_free, self.late = 0.0, 0.0, 0.0
        self.wake, self.hits, self.host_hits, self.asked, self.served = asyncio.Event(), 0, 0, 0, 0

    def make_room(self, need):
        free = self.blocks - self.private - len(self.used) - len(self.idle)
        if free + len(self.idle) < need:
            return False
        for _ in range(need - free):
            self.keep(self.idle.popitem(last=False)[0])
        return True

    def keep(self, block):
        """Copies a block to host memory, evicting the least recently used."""
        self.host[block] = None
        self.host.move_to_end(block)
        while len(self.host) > self.host_blocks:
            self.host.popitem(last=False)

    def refer(self, block):
        self.idle.pop(block, None)
        self.used[block] = self.used.get(block, 0) + 1

    def unrefer(self, block):
        self.used[block] -= 1
        if self.used[block] == 0:
            del self.used[block]
            self.idle[block] = None

    def admit(self, budget):
        while self.waiting and len(self.running) + len(self.loading) < 256 and budget > 0:
            r = self.waiting[0]
            hit, most = 0, (r["prompt"] - 1) // BLOCK
            while hit < most and (r["hashes"][hit] in self.used or r["hashes"][hit] in self.idle):
                hit += 1
            end = hit
            while end < most and r["hashes"][end] in self.host:
                end += 1
            for b in r["hashes"][:hit]:
                self.refer(b)
            for b in reversed(r["hashes"][hit:end]):
                self.host.move_to_end(b)
            need = math.ceil(r["prompt"] / BLOCK) - hit
            if not self.make_room(need):
                for b in r["hashes"][:hit]:
                    self.unrefer(b)
                return
            self.waiting.popleft()
            r.update(held=r["hashes"][:hit], private=need, left=r["prompt"] - end * BLOCK, written=0)
            r["cached"] = end * BLOCK
            self.private += need
            self.hits += hit * BLOCK
            self.host_hits += (end - hit) * BLOCK
            self.asked += r["prompt"]
            if end > hit:  # after what the link already carries; the others go on meanwhile
                self.link_free = max(self.link_free, self.clock) + (end - hit) * BLOCK / self.host_speed
                r["loaded_at"] = self.link_free
                self.loading.append(r)
            else:
                self.running.append(r)
                budget -= r["left"]

    def release(self, r):
        """The computed part of its prompt stays in the cache; its end is evicted first."""
        self.private -= r["private"]
        for at, block in reversed(list(enumerate(r["hashes"][: (r["prompt"] - r["left"]) // BLOCK]))):
            if at < len(r["held"]):
                self.unrefer(block)
            elif block not in self.used and block not in self.idle and self.make_room(1):
                self.idle[block] = None

    def iterate(self):
        budget, prefilled = CHUNK, 0
        while self.loading and self.loading[0]["loaded_at"] <= self.clock:
            self.running.append(self.loading.pop(0))
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
            if not self.running and not self.waiting and not self.loading:
                self.wake.clear()
                await self.wake.wait()
                due = time.monotonic()
            self.late = max(self.late, (time.monotonic() - due) * scale)
            self.clock = due * scale
            due += self.iterate() / scale
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def metrics(self):
        """As vLLM writes them, where a request whose blocks come back from the host waits."""
        values = {
            "num_requests_running": len(self.running),
            "num_requests_waiting": len(self.waiting) + len(self.loading),
            "kv_cache_usage_perc": (self.private + len(self.used)) / self.blocks,
        }
        for tier, asked, hits in [("", self.asked, self.hits), ("external_", self.asked - self.hits, self.host_hits)]:
            values.update({f"{tier}prefix_cache_queries_total": asked, f"{tier}prefix_cache_hits_total": hits})
        page = f'vllm:cache_config_info{{block_size="{BLOCK}",engine="0",num_gpu_blocks="{self.blocks}"}} 1\n'
        return page + "".join(f'vllm:{k}{{engine="0",model_name="m"}} {v}\n' for k, v in values.items())


async def read_http(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    size = next((int(h.split(":")[1]) for h in head if h.lower().startswith("content-length:")), 0)
    return head[0], await reader.readexactly(size) if size else b""


def reply(value, kind="application/json", status="200 OK"):
    body = (value if isinstance(value, str) else json.dumps(value)).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def chat(engine, body):
    request = json.loads(body)
    messages = request.get("messages") or [{"role": "user", "content": request["prompt"]}]
    output = request.get("max_completion_tokens") or request.get("max_tokens", 16)
    r = {"prompt": tokens_of(messages), "output": output, "hashes": blocks_of(messages)}
    r["done"] = asyncio.get_running_loop().create_future()
    engine.waiting.append(r)
    engine.wake.set()
    try:
        await r["done"]
    except asyncio.CancelledError:
        if r in engine.waiting:
            engine.waiting.remove(r)
        if r in engine.loading:
            r["left"] = r["prompt"] - len(r["held"]) * BLOCK
        for active in (engine.loading, engine.running):
            if r in active:
                active.remove(r)
                engine.release(r)
        raise
    engine.served += 1
    usage = {"prompt_tokens": r["prompt"], "completion_tokens": output, "total_tokens": r["prompt"] + output}
    usage["prompt_tokens_details"] = {"cached_tokens": r["cached"]}
    message = {"role": "assistant", "content": "w" * (BYTES * output)}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    about = {"id": "chatcmpl-1", "object": "chat.completion", "created": int(time.time()), "model": "m"}
    return {**about, "choices": choices, "usage": usage}


def server(engine):
    models = {"object": "list", "data": [MODEL]}

    async def serve(reader, writer):
        try:
            while True:
                line, body = await read_http(reader)
                path = line.split(" ")[1]
                if path in ("/v1/chat/completions", "/v1/completions"):
                    writer.write(reply(await chat(engine, body)))
                elif path == "/metrics":
                    writer.write(reply(engine.metrics(), "text/plain"))
                elif path in ("/health", "/v1/models"):
                    writer.write(reply(models))
                else:
                    writer.write(reply({"detail": "Not Found"}, status="404 Not Found"))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, IndexError):
            pass
        finally:
            writer.close()

    return serve


async def call(port, method, path, value=None, header=None, program=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    body = json.dumps(value).encode() if value is not None else b""
    named = f"{header}: {program}\r\n" if header and program else ""
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
            parts.append(rest[: int(size, 16)])
            rest = rest[int(size, 16) + 2 :]
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
        step = lambda: (
            max(8, min(1500, int(draw.lognormvariate(4.8, 0.8)))),
            min(60.0, draw.lognormvariate(0.7, 1.0)),
            max(100, min(24_000, int(draw.lognormvariate(8.0, 0.9)))),
        )
        runs.append((system, first, [step() for _ in range(turns)]))
    return runs


class Front:
    """The router before the engines, and how requests name their program."""

    def __init__(self, args, engines, capacity_tokens):
        self.args, self.port = args, 20_000 + os.getpid() % 5_000
        self.treadle = args.front in ("treadle", "sticky", "least-load")
        if self.treadle:
            self.peer = {"header": "X-Session-ID", "release": "/programs/release", "ready": "/workers"}
            mode = "program-aware" if args.front == "treadle" else args.front
            settings = [f"scheduler.time_scale={args.scale}", f"server.listen=127.0.0.1:{self.port}"]
            settings += [f"scheduler.mode={mode}", *args.set]
            self.command = [os.path.abspath(args.binary), "serve", "--engine", ",".join(engines)]
            self.command += [part for setting in settings for part in ("--set", setting)]
            return
        self.peer = next(peer for peer in json.load(open(args.peers)) if peer["name"] == args.front)
        values = {"port": self.port, "spare_port": self.port + 5_000, "time_scale": args.scale}
        values.update(engines_csv=",".join(engines), capacity_tokens=capacity_tokens)

        def fill(place):
            seconds = float(place[2] or 0) / args.scale
            values.update(seconds=f"{seconds:.9g}", prompt_seconds=f"{seconds * PREFILL_S:.9g}")
            return str(values.get(place[1], max(1, round(seconds))))

        self.command = []  # scripts/peers.sh says which places there are
        for part in self.peer["command"]:
            self.command += engines if part == "{engines}" else [re.sub(r"\{(\w+)(?:=([0-9.]+))?\}", fill, part)]

    async def ready(self, daemon):
        for _ in range(600):
            await asyncio.sleep(0.1)
            if daemon.poll() is not None:
                break
            with contextlib.suppress(OSError, IndexError):
                status, body = await call(self.port, "GET", self.peer["ready"])
                if status == 200 and (not self.treadle or len(json.loads(body)["workers"]) == 2):
                    return
        raise SystemExit(f"{self.args.front} did not get ready; --log FILE keeps what it writes")

    async def chat(self, messages, output, program, last=False):
        body = {"model": "m", "messages": messages, "max_tokens": output}
        told = [(self.peer.get("body_field"), program), last and self.peer.get("last_field") or (None, None)]
        for path, value in told:
            *parents, name = (path or "unnamed").split(".")
            inner = body
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner.update({name: value} if path else {})
        return await call(self.port, "POST", "/v1/chat/completions", body, self.peer.get("header"), program)

    async def release(self, program):
        if self.peer.get("release"):
            await call(self.port, "POST", self.peer["release"], {"program_id": program})


def cpu_s(pid):
    """CPU time of a process and of those that it started."""
    parents, spent = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()
            parents[int(entry)], spent[int(entry)] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {pid}
    while more := {p for p, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(spent.get(p, 0) for p in family) / os.sysconf("SC_CLK_TCK")


class Crowd:
    def __init__(self, args, front, runs):
        self.args, self.front, self.runs, self.next = args, front, runs, 0
        self.steps, self.refused, self.altered, self.contexts, self.shared = [], 0, 0, {}, {}
        self.begun, self.open = time.monotonic(), {}

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
        for turn, (output, tool_s, grows) in enumerate(steps, 1):
            sent = self.open[name] = self.now()
            status, body = await self.front.chat(messages, output, name, turn == len(steps))
            del self.open[name]
            if status != 200:
                self.refused += 1
                print(status, body[:300], file=sys.stderr)
                break
            answer = json.loads(body)
            self.steps.append((sent, self.now()))
            usage = answer["usage"]
            self.altered += (usage["prompt_tokens"], usage["completion_tokens"]) != (tokens_of(messages), output)
            self.contexts[name] = usage["prompt_tokens"] + usage["completion_tokens"]
            messages.append(answer["choices"][0]["message"])
            messages.append({"role": "tool", "tool_call_id": "t", "content": "t" * grows})
            await asyncio.sleep(tool_s / self.args.scale)
        self.contexts.pop(name, None)
        await self.front.release(name)


def held_by(crowd, names):
    """Tokens in these programs' caches, shared ones once."""
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
    peak = demand / len(runs) * args.live / 2 / BLOCK
    per_engine = int(peak * args.share)
    engines, ports = [Engine(per_engine, int(peak * args.host_share), args.host_speed) for _ in range(2)], []
    for engine in engines:
        started = await asyncio.start_server(server(engine), "127.0.0.1", 0, limit=1 << 24)
        ports.append(started.sockets[0].getsockname()[1])
        asyncio.create_task(engine.run(args.scale))
    with tempfile.TemporaryDirectory() as folder:
        front = Front(args, [f"http://127.0.0.1:{port}" for port in ports], per_engine * BLOCK)
        log = open(args.log or os.path.join(folder, "log"), "w")
        daemon = subprocess.Popen(front.command, cwd=folder, stdout=log, stderr=log)
        try:
            await front.ready(daemon)
            if first := {"hi": "hi", "long": "long " * 2500}.get(args.first):
                await front.chat([{"role": "user", "content": first}], 4, "warm-up", True)
                await front.release("warm-up")
            crowd, cpu = Crowd(args, front, runs), cpu_s(daemon.pid)
            seen = {"paused_most": 0, "charged_over_held": [], "placed_over_capacity": []}
            seats = [asyncio.create_task(crowd.sit()) for _ in range(args.live)]
            looks = [asyncio.create_task(watch(crowd, front.port, seen))] if args.front == "treadle" else []
            warm = 4 * 60
            await asyncio.sleep((warm + args.minutes * 60) / args.scale)
            end, cpu = crowd.now(), cpu_s(daemon.pid) - cpu
            lost = sum(seat.done() for seat in seats)
            for task in [*seats, *looks]:
                task.cancel()
            done = [e - s for s, e in crowd.steps if e >= warm]
            took = done + [end - sent for sent in crowd.open.values()]  # nothing is gained by starving some
            ratios, asked = seen["charged_over_held"], max(1, sum(e.asked for e in engines))
            print(json.dumps({
                "front": args.front, "first": args.first, "seed": args.seed, "live": args.live,
                "kv_tokens_each": per_engine * BLOCK, "host_share": args.host_share,
                "steps_per_min": round(len(done) / (end - warm) * 60, 1),
                "p50_s": round(percentile(took, 0.5), 1), "p99_s": round(percentile(took, 0.99), 1),
                "oldest_open_s": round(end - min(crowd.open.values(), default=end), 1),
                "refused": crowd.refused + lost, "altered": crowd.altered, "paused_most": seen["paused_most"],
                "hit_rate": round(sum(e.hits for e in engines) / asked, 3),
                "host_hit_rate": round(sum(e.host_hits for e in engines) / asked, 3),
                "engine_requests": [e.served for e in engines],
                "engine_late_s": round(max(e.late for e in engines), 1),
                "front_cpu_s_per_1000": round(cpu / max(1, len(crowd.steps)) * 1000, 2),
                "charged_over_held_p50": ratios and round(percentile(ratios, 0.5), 3),
                "charged_over_held_min_max": ratios and [round(min(ratios), 3), round(max(ratios), 3)],
                "looks": len(ratios),
                "placed_over_capacity_max": round(max(seen["placed_over_capacity"], default=0), 2),
            }))
        finally:
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
            daemon.kill()
            daemon.wait()


asyncio.run(main())
