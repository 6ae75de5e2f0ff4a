"""Parts of the examples that need no daemon: the account of a shaped run, and the tiny engine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from stand_in import assemble, digest, safetensors

from treadle_rl import StreamEvent
from treadle_rl.records import batch_of

np = pytest.importorskip("numpy")


def batch(groups: dict[str, tuple[int, dict[str, int]]]) -> Any:
    """A batch of groups by key, each with its context and the tokens of its members."""
    listed = [
        {
            "group": key,
            "content": {"context": context},
            "version": 0,
            "lag": 0,
            "members": [{"program": p, "tokens": tokens} for p, tokens in members.items()],
        }
        for key, (context, members) in groups.items()
    ]
    fields = {"job": "j", "batch": 1, "lineage": 0, "trained_on": 0, "trained": False}
    return batch_of(json.dumps({**fields, "groups": listed}).encode())


def event(kind: str, **data: Any) -> StreamEvent:
    return StreamEvent("1", kind, data)


def test_an_account_has_what_was_sampled_trained_and_left_out() -> None:
    from treadle_rl.examples.shaping import Account, Ledger

    ledger = Ledger()
    for program, group, tokens in [
        ("a1", "a", 3),
        ("a2", "a", 5),
        ("b1", "b", 20),
        ("b2", "b", 30),
        ("b3", "b", 7),
        ("c1", "c", 9),
    ]:
        member = ledger.member(program)
        member.group, member.tokens = group, tokens
    # Another process may have sampled a member.
    own = batch({"a": (0, {"a1": 3, "elsewhere": 1}), "b": (1, {"b1": 20})})
    ledger.follow(
        [
            event("dropped", program="a2", end="unselected"),
            event("dropped", program="b2", end="curtailed"),
            event("batch", batch=1, group="a", programs=["a1"], groups=2),
        ]
    )
    assert not ledger.has(1, wait_s=0)
    ledger.take(event("batch", batch=1, group="b", programs=["b1"], groups=2))
    assert ledger.has(1, wait_s=0)
    account = Account()
    account.add(own, ledger.of_groups({"a", "b"}))
    assert account.tokens() == "24 of 66 sampled tokens are trained (36%)"
    assert account.lines() == [
        "  short  sampled    3 of   3.0 tokens, trained    2 of   2.0 tokens",
        "  long   sampled    3 of  19.0 tokens, trained    1 of  20.0 tokens",
        "  curtailed: 1 with 30 tokens, enough of their groups had ended",
        "  running: 1 with 7 tokens, they failed",
        "  unselected: 1 with 5 tokens, others of their groups were selected",
    ]
    assert list(ledger.members) == ["c1"], "what is in no batch yet stays"


def test_hasty_answers_pay_less_where_thoughts_are_needed() -> None:
    from treadle_rl.examples.answers import THINK, Environment, is_over

    environment, arm = Environment(0), THINK - 1

    def paid(context: int, thoughts: int) -> float:
        tokens = [THINK] * thoughts + [arm]
        return environment.reward(context, tokens, environment.rng("p"))

    assert paid(0, 0) == paid(0, 9) and paid(1, 0) == 0
    assert paid(1, 2) == paid(1, 4) / 2 == paid(1, 9) / 2
    endless = [THINK] * 40
    assert is_over(endless) and environment.reward(0, endless, environment.rng("p")) == 0


@pytest.fixture
def engine() -> Iterator[tuple[Any, str]]:
    from treadle_rl.examples.engine import Engine, Server

    own = Engine(token_s=0.001, load_s=0)
    server = Server(0, own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield own, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_answer_goes_on_under_new_weights_and_says_so(
    engine: tuple[Any, str], tmp_path: Path
) -> None:
    from treadle_rl.examples._loop import ARM_0, ARMS, log_softmax
    from treadle_rl.examples.answers import THINK, initial
    from treadle_rl.examples.engine import write_table

    own, url = engine
    thoughtful, other = initial(), initial()
    thoughtful[:, ARMS] = 30.0  # It thinks for ever.
    other[:, ARMS] = -30.0
    write_table(tmp_path / "1", thoughtful)
    write_table(tmp_path / "2", other)
    with pytest.raises(ValueError, match="has other weights"):
        write_table(tmp_path / "2", thoughtful)
    client = httpx.Client(base_url=url, timeout=30)
    load = "/update_weights_from_disk"

    def update(version: int, folder: Path) -> httpx.Response:
        body = {"model_path": str(folder), "weight_version": f"0.{version}"}
        return client.post(load, json=body)

    assert update(1, tmp_path / "1").status_code == 400, "it generates"
    client.post("/pause_generation", json={"mode": "retract"})
    assert update(1, tmp_path / "nowhere").json()["message"].startswith("nothing was loaded")
    assert update(1, tmp_path / "1").status_code == 200
    client.post("/continue_generation", json={})
    answers: list[Any] = []

    def ask() -> None:
        body = {"input_ids": [3], "return_logprob": True}
        answers.append(httpx.post(f"{url}/generate", json=body, timeout=30).json())

    own.token_s = 0.1
    asking, unused = threading.Thread(target=ask), own.rng.bit_generator.state
    asking.start()
    while own.rng.bit_generator.state == unused:
        time.sleep(0.01)
    before = client.post("/weights_checker", json={"action": "checksum"}).json()
    client.post("/pause_generation", json={"mode": "retract"})
    update(2, tmp_path / "2")
    client.post("/continue_generation", json={})
    asking.join()
    assert client.get("/model_info").json()["weight_version"] == "0.2"
    assert client.post("/weights_checker", json={"action": "checksum"}).json() != before
    ids, meta = answers[0]["output_ids"], answers[0]["meta_info"]
    first, second = meta["weight_versions"]
    assert (first["version"], second["version"]) == ("0.1", "0.2")
    assert first["end"] == second["start"] == len(ids) - 1 and ids[:-1] == [THINK] * first["end"]
    for at, (logprob, token, _) in enumerate(meta["output_token_logprobs"]):
        weights = thoughtful if at < first["end"] else other
        row = weights[3].astype(np.float32).astype(np.float64)
        assert logprob == float(np.float32(log_softmax(row)[token - ARM_0]))
    assert client.post("/generate", json={"input_ids": [99]}).status_code == 400
    assert client.get("/props").status_code == 404


def test_a_token_of_another_version_is_found(tmp_path: Path) -> None:
    from treadle_rl.examples._loop import ARM_0, log_softmax
    from treadle_rl.examples.answers import initial
    from treadle_rl.examples.engine import write_table
    from treadle_rl.examples.engines import folder_of, verify

    tables = [initial(), initial() + np.arange(7) / 10]
    for version, table in enumerate(tables):
        write_table(folder_of(tmp_path, version), table)

    def logprob(version: int, column: int) -> float:
        row = tables[version][2].astype(np.float32).astype(np.float64)
        return float(np.float32(log_softmax(row)[column]))

    def write(versions: list[int]) -> None:
        spans = [
            {"start": at, "end": at + 1, "version": version} for at, version in enumerate(versions)
        ]
        output, scores = [ARM_0 + 6, ARM_0 + 1], [logprob(0, 6), logprob(1, 1)]
        step = {"prompt": [2], "output": output, "logprobs": scores, "versions": spans}
        sequences = assemble([step])
        member = {"sequences": sequences, "sample": digest(sequences), "reward": 1.0}
        raw = safetensors("j", 1, {"g": {"members": {"p": member}}})
        (tmp_path / "batch-1.safetensors").write_bytes(raw)

    write([0, 1])
    assert verify(tmp_path, 1) == (
        "2 tokens of 1 answers have the log-probabilities of their versions, 0 to 1, bit by bit; "
        "1 answers went on under new weights, and for 0 ranges two versions are on record"
    )
    for wrong in ([0, 0], [1, 1]):
        write(wrong)
        with pytest.raises(SystemExit, match="on record, and"):
            verify(tmp_path, 1)
