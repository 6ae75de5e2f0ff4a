"""The clients against a stand-in of the daemon."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from stand_in import StandIn

import treadle_rl
from treadle_rl import (
    AsyncClient,
    Client,
    Group,
    Job,
    NotReady,
    Sample,
    Settings,
    Step,
    TreadleError,
)

Handler = Callable[[httpx.Request], httpx.Response]


def sample(number: int) -> Sample:
    return Sample([Step(prompt=[1], output=[number, 2], logprobs=[-0.5, -0.25], version=0)])


def small(client: Client, **settings: Any) -> Job:
    job = client.job("math/1")
    job.declare(Settings(**{"group_size": 2, "batch_groups": 2, **settings}))
    job.submit(Group(f"g{n}", {"n": n}) for n in range(4))
    return job


def fill(job: Job, groups: int, worker: str = "w") -> None:
    members = job.members(worker)
    for _ in range(2 * groups):
        member = next(members)
        reward = np.float32(member.content["n"])
        assert member.end(reward=reward, sample=sample(member.content["n"]), info={"a": [1]})


def test_a_run_from_groups_to_checkpoint(client: Client) -> None:
    job = small(client)
    with pytest.raises(NotReady, match="0 groups are ready"):
        job.batch(1, wait_s=0)
    fill(job, 2)
    batch = next(job.batches())
    assert [group.group for group in batch.groups] == ["g0", "g1"]
    assert (batch.batch, batch.lag_max, batch.reward_mean) == (1, 0, 0.5)
    assert batch.groups[1].members[0].info == {"a": [1]}
    payload = batch.payload()
    assert payload.check() == []
    batch.trained()
    job.version(1)
    job.checkpoint(1)
    with pytest.raises(TreadleError) as refused:
        job.batch(1)
    assert (refused.value.status, refused.value.code) == (410, "batch_released")
    assert job.view().checkpoint == 1


def test_a_batch_comes_again_after_a_rollback(client: Client) -> None:
    job = small(client)
    fill(job, 2)
    batch = job.batch(1)
    raw = batch.payload().raw
    batch.trained()
    job.version(1)
    assert job.resume(0) == 1
    with pytest.raises(NotReady, match="weights"):
        job.begin("late", wait_s=0)
    with pytest.raises(TreadleError, match="this lineage is over"):
        job.version(1, lineage=0)
    job.version(0)
    assert job.batch(1).payload().raw == raw
    assert job.batch(1).lineage == 1
    job.forget()
    job.forget()


def test_members_that_are_dropped_are_skipped(client: Client, daemon: StandIn) -> None:
    job = small(client)
    first = job.begin("w-0")
    daemon.jobs["math/1"].lose("w-0")
    assert first.end(reward=1) is False
    members = job.members("w")
    assert next(members).program == "w-1"
    job.stop()
    assert list(members) == []


def test_a_restarted_worker_gets_its_member_again(client: Client, tmp_path: Path) -> None:
    state = tmp_path / "worker"
    members = small(client).members("w", state=state)
    next(members).end(reward=0)
    member = next(members)
    again = next(small(client).members("w", state=state))
    assert (again.program, again.group) == (member.program, member.group) == ("w-1", "g0")


@pytest.mark.parametrize("reward", [math.nan, math.inf, np.float32("nan")])
def test_rewards_that_are_no_numbers_stay_here(
    client: Client, daemon: StandIn, reward: Any
) -> None:
    member = small(client).begin("a")
    sent = len(daemon.requests)
    with pytest.raises(ValueError, match="reward_failed"):
        member.end(reward=reward)
    with pytest.raises(ValueError, match="a failure is not a score"):
        member.end("engine_failed", reward=0)
    with pytest.raises(ValueError, match="1 log-probabilities for 2"):
        member.end(sample=Sample([Step(prompt=[1], output=[1, 2], logprobs=[-1])]), reward=1)
    assert len(daemon.requests) == sent


def test_reports_can_be_sent_again_but_not_changed(client: Client) -> None:
    job = small(client)
    member = job.begin("a")
    ids = np.array([3, 4], dtype=np.int32)
    report = Sample(
        [Step(prompt=ids, output=ids, logprobs=np.array([-1, -2], dtype=np.float32), version=0)]
    )
    assert member.end(reward=1, sample=report) and member.end(reward=1, sample=report)
    with pytest.raises(TreadleError, match="member_conflict"):
        member.end(reward=0, sample=report)
    job.reward("a", 0.5)
    job.reward("a", failed="the judge timed out")
    with pytest.raises(TreadleError, match="member_dropped"):
        job.end("a", reward=1)


def test_groups_are_sent_in_parts(client: Client, daemon: StandIn) -> None:
    job = small(client)
    daemon.requests.clear()
    job.submit(Group(str(n)) for n in range(2_500))
    assert len(daemon.requests) == 3
    assert job.view().queued == 2_504
    job.submit(Group(f"big{n}", "x" * 900_000) for n in range(20))
    assert len(daemon.requests) == 7


def flaky(answers: list[Any], seen: list[httpx.Request]) -> Handler:
    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer[0], json=answer[1], headers=answer[2] if answer[2:] else None)

    return handle


def test_requests_are_repeated_while_the_daemon_is_away() -> None:
    seen: list[httpx.Request] = []
    lost = httpx.ReadError("closed")
    answers = [httpx.ConnectError("refused"), lost, (503, {}), (429, {}, {"retry-after": "0.3"})]
    handle = flaky([*answers, (200, {"job": "j"})], seen)
    with Client("http://daemon", "t", transport=httpx.MockTransport(handle)) as client:
        assert client.job("j").view().job == "j"
        assert len(seen) == 5
    with Client("http://daemon", retry_s=0, transport=httpx.MockTransport(handle)) as client:
        answers[:] = []
        with pytest.raises(TreadleError) as failed:
            handle = flaky([lost], seen)
            client._http._transport = httpx.MockTransport(handle)
            client.job("j").view()
        assert (failed.value.status, failed.value.code) == (0, "unreachable")


def test_only_a_sandbox_that_surely_was_not_made_is_made_again() -> None:
    seen: list[httpx.Request] = []
    answers = [httpx.ConnectError("refused"), (201, {"id": "s"}), httpx.ReadError("closed")]
    ended = {"status": "ended", "outcome": {"outcome": "exited", "code": 0}}
    answers += [(200, {"action": 7}), (200, {"status": "running"}), (200, ended), (404, {})]
    with Client("http://d", "t", transport=httpx.MockTransport(flaky(answers, seen))) as client:
        assert client.create_sandbox(image="system")["id"] == "s"
        with pytest.raises(TreadleError, match="unreachable"):
            client.create_sandbox()
        assert client.run_in_sandbox("s", ["true"], cost={"cpu": 1})["outcome"]["code"] == 0
        client.remove_sandbox("s")
    assert [request.url.path for request in seen[3:6]] == [
        "/api/v1/actions",
        *["/api/v1/actions/7"] * 2,
    ]


class Peer:
    def get_extra_info(self, _: str) -> tuple[str, int]:
        return ("127.0.0.1", 8300)


def prover(knows: str, seen: list[str | None]) -> Handler:
    """A daemon that proves that it knows a token."""

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        if request.url.path != "/api/v1/identity":
            return httpx.Response(200, json={})
        key = hashlib.sha256(knows.encode()).digest()
        text = f"treadle identity\n127.0.0.1\n8300\n{request.url.params['challenge']}"
        proof = hmac.digest(key, text.encode(), "sha256").hex() if knows else None
        return httpx.Response(200, json={"proof": proof}, extensions={"network_stream": Peer()})

    return handle


def test_a_token_from_a_file_goes_only_to_its_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREADLE_TOKEN", raising=False)
    (tmp_path / ".treadle").mkdir()
    (tmp_path / ".treadle/admin-token").write_text("tr_mine\n")
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    for url, knows, sent in [
        ("http://127.0.0.1:8300", "tr_mine", [None, "Bearer tr_mine"]),
        ("http://127.0.0.1:8300", "", [None, None]),
        ("http://10.0.0.1:8300", "tr_mine", [None]),
    ]:
        seen: list[str | None] = []
        with Client(url, transport=httpx.MockTransport(prover(knows, seen))) as client:
            client.job("j").view()
        assert seen == sent
    impostor = httpx.MockTransport(prover("tr_other", []))
    with Client(transport=impostor) as client, pytest.raises(TreadleError, match="token_invalid"):
        client.job("j").view()


def test_the_asynchronous_client_does_the_same(daemon: StandIn) -> None:
    async def run() -> None:
        async with AsyncClient("http://d", "t", transport=daemon.transport()) as client:
            job = client.job("j")
            await job.declare(Settings(group_size=1, batch_groups=2))
            await job.submit([Group("a", 1), Group("b", 2)])
            async for member in job.members("w"):
                await member.end(reward=1, sample=sample(member.content))
                if member.program == "w-1":
                    job.stop()
            async for batch in job.batches():
                assert len(await batch.payload()) == 2
                await batch.trained()
                break
            with pytest.raises(NotReady):
                await job.batch(2, wait_s=0.2)

    asyncio.run(run())


def test_both_clients_have_the_same_methods() -> None:
    pairs = [("Client", "AsyncClient"), ("Job", "AsyncJob"), ("JobMember", "AsyncMember")]
    for one, other in [*pairs, ("JobBatch", "AsyncBatch"), ("Weights", "AsyncWeights")]:
        shown = []
        for kind in (getattr(treadle_rl, one), getattr(treadle_rl, other)):
            methods = inspect.getmembers(kind, inspect.isfunction)
            public = [(n, m) for n, m in methods if not n.startswith("_")]
            shown.append({name: list(inspect.signature(m).parameters) for name, m in public})
        assert shown[0] == shown[1]


def test_affinity_is_sent_as_it_was_given() -> None:
    assert "affinity" not in Settings().body()
    assert Settings(affinity="auto").body()["affinity"] == "auto"
    by_domain = {"math": "h20", "default": "h800"}
    assert Settings(affinity=by_domain).body()["affinity"] == by_domain
