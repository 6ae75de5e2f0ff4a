"""Policies that decide for a daemon, and which job each is bound for (`docs/guides/write-a-policy.md`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ._http import Call, Link, Steps, to_json

World: TypeAlias = Literal[
    "allocation", "eviction", "placement", "prediction", "priority", "reward", "shaping"
]
Role: TypeAlias = Literal["active", "canary", "shadow"]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that is stored. `new` is false if the tenant had it already."""

    name: str
    version: str
    world: str
    digest: str
    new: bool


@dataclass(frozen=True, slots=True)
class Binding:
    """A role of a world that was given or taken.

    `policy` got the role, or else answers now; `active` answers now, `before` did. `job` is `*` for
    all jobs without a binding of their own.
    """

    world: str
    job: str
    role: str
    policy: str
    active: str
    before: str


def _binding_of(answer: Mapping[str, Any]) -> Binding:
    return Binding(**{name: answer[name] for name in Binding.__slots__})


class PolicyCalls:
    """Requests about policies."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def push(self, component: bytes | Path) -> Steps[Policy]:
        data = component.read_bytes() if isinstance(component, Path) else component
        headers = {"content-type": "application/wasm"}
        call = Call("POST", "/api/v1/plugins", body=data, headers=headers)
        answer = (yield from self.link.send(call)).json()
        return Policy(**{name: answer[name] for name in Policy.__slots__})

    def bind(self, fields: Mapping[str, Any]) -> Steps[Binding]:
        given = {name: value for name, value in fields.items() if value is not None}
        reply = yield from self.link.send(Call("PUT", "/api/v1/bindings", body=to_json(given)))
        return _binding_of(reply.json())

    def unbind(self, fields: Mapping[str, str | None]) -> Steps[Binding]:
        query = {name: value for name, value in fields.items() if value is not None}
        reply = yield from self.link.send(Call("DELETE", "/api/v1/bindings", query=query))
        return _binding_of(reply.json())
