"""A stand-in of the daemon's training API, in memory: the few paths that tests need.

It follows `docs/training.md`, without waiting: what is not ready is 202 at once. Members are lost
only when their clients say so, and groups that are too old are always cut.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any
from urllib.parse import unquote

import httpx

TRAINED = ("completed", "truncated")
DEFAULTS = {
    "group_size": 8,
    "batch_groups": 16,
    "lag_max": 1,
    "pipeline": 1,
    "failures_max": 8,
    "rewarded": True,
    "capture": "none",
}


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str = "refused") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


def assemble(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merges steps into sequences: one continues the longest whose tokens begin its prompt."""
    sequences: list[dict[str, Any]] = []
    for step in steps:
        prompt, output = step["prompt"], step["output"]
        fit = [s for s in sequences if prompt[: len(s["ids"])] == s["ids"]]
        if fit:
            sequence = max(fit, key=lambda s: len(s["ids"]))
        else:
            sequence = {"ids": [], "ranges": [], "logprobs": [], "spans": []}
            sequences.append(sequence)
        start = len(prompt)
        sequence["ids"] = prompt + output
        if step.get("foreign"):
            continue
        sequence["ranges"].append((start, start + len(output)))
        sequence["logprobs"] += step["logprobs"]
        whole = [{"start": 0, "end": len(output), "version": step.get("version", 0)}]
        for span in step.get("versions") or whole:
            sequence["spans"].append((start + span["start"], start + span["end"], span["version"]))
    return sequences


def digest(sequences: list[dict[str, Any]]) -> str:
    sha = hashlib.sha256()
    for s in sequences:
        ids, ranges, spans, logprobs = s["ids"], s["ranges"], s["spans"], s["logprobs"]
        sha.update(struct.pack(f"<Q{len(ids)}i", len(ids), *ids))
        sha.update(struct.pack("<Q", len(ranges)))
        for pair in ranges:
            sha.update(struct.pack("<2Q", *pair))
        sha.update(struct.pack(f"<{len(logprobs)}f", *logprobs))
        sha.update(struct.pack("<Q", len(spans)))
        for span in spans:
            sha.update(struct.pack("<3Q", *span))
    return f"sha256:{sha.hexdigest()}"


def safetensors(job: str, number: int, groups: dict[str, Any]) -> bytes:
    """The payload of a batch."""
    members = [
        (g, p, m) for g, (_, g_) in enumerate(groups.items()) for p, m in g_["members"].items()
    ]
    spans = [s for _, _, m in members for seq in m["sequences"] for s in seq["spans"]]
    versions = sorted({span[2] for span in spans})
    columns: dict[str, list[Any]] = {n: [] for n in ("ids", "at", "sampled", "lp", "v", "owner")}
    count = 0
    for index, (group, _, member) in enumerate(members):
        for nth, sequence in enumerate(member["sequences"]):
            columns["at"].append(len(columns["ids"]))
            columns["ids"] += sequence["ids"]
            columns["lp"] += sequence["logprobs"]
            columns["owner"] += [group, index, nth]
            for start, end in sequence["ranges"]:
                columns["sampled"] += [count, start, end]
            for start, end, version in sequence["spans"]:
                columns["v"] += [count, start, end, versions.index(version)]
            count += 1
    columns["at"].append(len(columns["ids"]))
    meta = {
        "job": job,
        "batch": number,
        "groups": list(groups),
        "members": [{"program": p, "sample": m["sample"]} for _, p, m in members],
        "versions": versions,
    }
    rewards = [float("nan") if m["reward"] is None else m["reward"] for _, _, m in members]
    text = json.dumps(meta).encode()
    tensors = [
        ("ids", "I32", "i", columns["ids"], 1),
        ("sequence_start", "I64", "q", columns["at"], 1),
        ("sampled", "I64", "q", columns["sampled"], 3),
        ("logprobs", "F32", "f", columns["lp"], 1),
        ("versions", "I64", "q", columns["v"], 4),
        ("owner", "I64", "q", columns["owner"], 3),
        ("reward", "F64", "d", rewards, 1),
        ("meta", "U8", "B", list(text), 1),
    ]
    header, data = {}, b""
    for name, dtype, code, values, width in tensors:
        packed = struct.pack(f"<{len(values)}{code}", *values)
        shape = [len(values)] if width == 1 else [len(values) // width, width]
        offsets = [len(data), len(data) + len(packed)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += packed
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + data


class Job:
    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: dict[str, Any] = dict(DEFAULTS)
        self.queue: dict[str, dict[str, Any]] = {}
        self.served: set[str] = set()
        self.programs: dict[str, str] = {}
        self.dropped: set[str] = set()
        self.batches: dict[int, dict[str, Any]] = {}
        self.next_batch, self.checkpoint, self.lineage, self.submitted = 1, 0, 0, 0
        self.version: int | None = 0
        self.trained: set[int] = set()

    def view(self) -> dict[str, Any]:
        begun = [g for g in self.queue.values() if g["members"]]
        ready = [g for g in begun if self.is_ready(g)]
        counts = {"queued": len(self.queue) - len(begun), "running": len(begun) - len(ready)}
        names = ("settings", "lineage", "version", "next_batch", "checkpoint")
        fields = {name: getattr(self, name) for name in names}
        return {"job": self.name, **fields, **counts, "ready": len(ready), "held": 0, "waits": []}

    def is_ready(self, group: dict[str, Any]) -> bool:
        settings = self.settings
        return len(group["members"]) == group["size"] and all(
            m["end"] in TRAINED
            and (not settings["rewarded"] or m["reward"] is not None)
            and (settings["capture"] == "none" or m["sample"] is not None)
            for m in group["members"].values()
        )

    @staticmethod
    def oldest(group: dict[str, Any]) -> int:
        return min(int(m["version"]) for m in group["members"].values())

    def put_back(self, key: str) -> None:
        group = self.queue.pop(key)
        self.dropped |= set(group["members"])
        self.queue = {key: {**group, "members": {}, "failures": 0}, **self.queue}

    def submit(self, groups: list[dict[str, Any]]) -> None:
        for group in groups:
            key = group["group"]
            if key not in self.queue and key not in self.served:
                size = group.get("size") or self.settings["group_size"]
                content = group.get("content")
                fresh = {"size": size, "content": content, "members": {}, "failures": 0}
                self.queue[key] = fresh
                self.submitted += 1

    def member(self, program: str) -> dict[str, Any]:
        if program in self.dropped:
            raise Refused(409, "member_dropped", f"program `{program}` was cut or replaced")
        group = self.queue.get(self.programs.get(program, ""))
        if group is None:
            raise Refused(404, "member_unknown")
        member: dict[str, Any] = group["members"][program]
        return member

    def answer(self, program: str, key: str, surplus: bool) -> dict[str, Any]:
        group = self.queue.get(key) or {"content": None, "members": {}}
        version = group["members"].get(program, {"begun": self.version or 0})["begun"]
        named = {"program": program, "group": key, "content": group["content"]}
        return {**named, "version": version, "surplus": surplus}

    def begin(self, program: str, key: str | None) -> dict[str, Any]:
        if program in self.dropped:
            raise Refused(409, "member_dropped")
        if program in self.programs and self.programs[program] in self.queue:
            return self.answer(program, self.programs[program], False)
        if key is not None:
            self.submit([{"group": key}])
        floor = self.next_batch - 1 - self.settings["lag_max"]
        if self.version is None or self.version < floor:
            raise Refused(202, f"weights: version {max(0, floor)} is needed")
        limit = (self.settings["pipeline"] + 1) * self.settings["batch_groups"]
        begun = sum(1 for g in self.queue.values() if g["members"])
        # Batches that come before the first one with a place.
        filled = begun // self.settings["batch_groups"]
        for name, group in self.queue.items():
            if key in (None, name) and len(group["members"]) < group["size"]:
                if not group["members"] and begun >= limit:
                    break
                if not group["members"] and self.version < floor + filled:
                    raise Refused(202, f"weights: version {floor + filled} is needed")
                member = dict.fromkeys(("end", "reward", "sample", "report"))
                group["members"][program] = {
                    **member,
                    "begun": self.version,
                    "version": self.version,
                    "sequences": [],
                }
                self.programs[program] = name
                return self.answer(program, name, False)
        else:
            if key is not None:
                return self.answer(program, key, True)
        raise Refused(202, "trainer: it has to take a batch")

    def end(self, program: str, report: dict[str, Any]) -> None:
        member = self.member(program)
        if member["end"] is not None:
            if member["report"] != report:
                raise Refused(409, "member_conflict")
            return
        member["report"], member["end"] = report, report["end"]
        if report["end"] not in TRAINED:
            self.lose(program)
            return
        member["reward"] = report.get("reward")
        if (sample := report.get("sample")) is not None:
            member["sequences"] = assemble(sample["steps"])
            member["sample"] = digest(member["sequences"])
            versions = [s[2] for q in member["sequences"] for s in q["spans"]]
            member["version"] = min([member["version"], *versions])

    def lose(self, program: str) -> None:
        key = self.programs[program]
        group = self.queue[key]
        del group["members"][program]
        self.dropped.add(program)
        group["failures"] += 1
        if group["failures"] > self.settings["failures_max"]:
            self.put_back(key)

    def expire(self) -> None:
        floor = self.next_batch - 1 - self.settings["lag_max"]
        for key in [n for n, g in self.queue.items() if g["members"]]:
            if self.oldest(self.queue[key]) < floor:
                self.put_back(key)

    def batch(self, k: int) -> dict[str, Any]:
        if k <= self.checkpoint:
            raise Refused(410, "batch_released")
        if k > self.next_batch:
            raise Refused(409, "batch_ahead")
        if k == self.next_batch:
            self.expire()
            order = enumerate(self.queue.items())
            ready = [(self.oldest(g), n, key) for n, (key, g) in order if self.is_ready(g)]
            if len(ready) < self.settings["batch_groups"]:
                raise Refused(202, f"members: {len(ready)} groups are ready")
            keys = [key for _, _, key in sorted(ready)[: self.settings["batch_groups"]]]
            self.batches[k] = {key: self.queue.pop(key) for key in sorted(keys)}
            self.served |= set(keys)
            self.next_batch += 1
            self.expire()
        return self.batches[k]

    def batch_view(self, k: int) -> dict[str, Any]:
        groups = []
        for key, group in self.batch(k).items():
            members = [
                {
                    "program": p,
                    "end": m["end"],
                    "reward": m["reward"],
                    "version": m["version"],
                    "tokens": sum(len(s["logprobs"]) for s in m["sequences"]),
                    "turns": 1,
                    "sample": m["sample"],
                    "info": m["report"].get("info"),
                }
                for p, m in group["members"].items()
            ]
            version = self.oldest(group)
            groups.append(
                {
                    "group": key,
                    "content": group["content"],
                    "version": version,
                    "lag": k - 1 - version,
                    "members": members,
                }
            )
        return {
            "job": self.name,
            "batch": k,
            "ready": True,
            "lineage": self.lineage,
            "trained_on": k - 1,
            "trained": k in self.trained,
            "groups": groups,
        }

    def resume(self, k: int) -> None:
        if not self.checkpoint <= k < self.next_batch:
            raise Refused(409, "batch_ahead")
        self.lineage, self.version = self.lineage + 1, None
        self.trained = {n for n in self.trained if n <= k}
        for key in [n for n, g in self.queue.items() if g["members"]]:
            if any(m["version"] > k for m in self.queue[key]["members"].values()):
                self.put_back(key)

    def tell(self, version: int) -> None:
        if version >= self.next_batch or version < (self.version or 0):
            raise Refused(409, "version_conflict", f"version {version} can't follow")
        self.version = version


class StandIn:
    """The daemon. `requests` has method and path of each request."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.requests: list[tuple[str, str]] = []

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._mock)

    def _mock(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().split("?")[0]
        status, body = self.handle(request.method, path, dict(request.url.params), request.read())
        return httpx.Response(status, content=body)

    def handle(self, method: str, path: str, query: Any, body: bytes) -> tuple[int, bytes]:
        self.requests.append((method, path))
        try:
            answer = self._route(method, path, json.loads(body) if body else {})
        except Refused as refused:
            if refused.status == 202:
                return 202, json.dumps(
                    {"ready": False, "waits": [{"message": refused.code}]}
                ).encode()
            error = {"message": refused.message, "code": refused.code}
            return refused.status, json.dumps({"error": error}).encode()
        return 200, answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def _route(self, method: str, path: str, body: Any) -> Any:
        parts = [unquote(part) for part in path.removeprefix("/api/v1/").split("/")]
        if parts[0] != "jobs":
            raise Refused(404, "unknown_path")
        name, *rest = parts[1:]
        if method == "PUT" and not rest:
            self.jobs.setdefault(name, Job(name)).settings = {**DEFAULTS, **body}
        if name not in self.jobs:
            raise Refused(404, "job_unknown", f"no job `{name}` is declared")
        job = self.jobs[name]
        match (method, *rest):
            case ("PUT" | "GET",):
                return job.view()
            case ("DELETE",):
                del self.jobs[name]
            case ("POST", "groups"):
                job.submit(body["groups"])
            case ("POST", "members"):
                return job.begin(body["program"], body.get("group"))
            case ("PUT", "members", program):
                job.end(program, body)
            case ("PUT", "members", program, "reward"):
                if "failed" in body:
                    job.lose(program)
                else:
                    job.member(program)["reward"] = body["reward"]
            case ("GET", "batches", k):
                return job.batch_view(int(k))
            case ("GET", "batches", k, "payload"):
                return safetensors(name, int(k), job.batch(int(k)))
            case ("POST", "batches", k, "trained"):
                job.trained.add(int(k))
            case ("POST", "versions"):
                if body.get("lineage", job.lineage) != job.lineage:
                    raise Refused(409, "version_conflict", "this lineage is over")
                job.tell(body["version"])
            case ("POST", "checkpoints"):
                job.checkpoint = max(job.checkpoint, body["batch"])
                job.batches = {k: b for k, b in job.batches.items() if k > job.checkpoint}
            case ("POST", "resume"):
                if body.get("lineage", job.lineage) == job.lineage:
                    job.resume(body["batch"])
                return job.view()
            case _:
                raise Refused(404, "unknown_path")
        return {}
