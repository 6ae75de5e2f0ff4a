#!/usr/bin/env python3
"""Runs mini-swe-agent's own program against an OpenAI-compatible API; prints a JSON summary.

    mini_swe.py BASE_URL MODEL [--header NAME=VALUE]... [--steps N] [--tool-calls] [--body FILE]
                [--actions-of URL]

The program is unchanged: what differs from the configuration that it ships is said by its options.
It acts in a temporary folder, looks up no prices and connects to nothing but BASE_URL, which ends
in `/v1`. FILE is a JSON object whose fields are added to each request. With `--actions-of URL`, a
llama.cpp server, a model with random weights writes valid actions. Without, none of its answers is
one, and the program sends no such answer again. Needs mini-swe-agent.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

SECONDS_MAX = 300
BEFORE_WORDS, AFTER_WORDS, WORDS = "```mswea_bash_command\necho", "\n```", 4
# Ends an answer like the end of a turn does, but no template writes it into a history.
END_OF_TEXT = "<|endoftext|>"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs mini-swe-agent and prints a JSON summary.")
    parser.add_argument("base_url", help="an OpenAI API, with /v1")
    parser.add_argument("model")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--body", type=Path, help="a JSON object, added to each request")
    parser.add_argument(
        "--tool-calls", action="store_true", help="ask for tool calls, not for text"
    )
    parser.add_argument("--actions-of", metavar="URL", help="the llama.cpp server behind BASE_URL")
    parser.add_argument("--task", default="Find the fault.")
    return parser.parse_args()


def post(url: str, body: dict[str, Any]) -> Any:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def valid_actions(engine: str) -> dict[str, Any]:
    """Fields of a request by which a llama.cpp server writes an action that echoes a few words.

    Each token is the one that the tokenizer makes of the text, so that a history that repeats the
    text has the tokens that were sampled. Only the words are the model's choice.
    """

    def tokens(text: str) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": True}
        return list(post(f"{engine}/tokenize", body)["tokens"])

    def sequence(ids: list[int]) -> str:
        return " ".join(f"<[{token}]>" for token in ids)

    syllables = [f" {consonant}{vowel}" for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = [ids for ids in map(tokens, syllables) if len(ids) == 1]
    action = [sequence(tokens(BEFORE_WORDS)), *["word"] * WORDS, sequence(tokens(AFTER_WORDS))]
    grammar = f"root ::= {' '.join(action)}\nword ::= {' | '.join(map(sequence, words))}\n"
    return {"grammar": grammar, "logit_bias": [[token, False] for token in tokens(END_OF_TEXT)]}


def added(given: argparse.Namespace) -> dict[str, Any]:
    """Fields that are added to each request."""
    body: dict[str, Any] = json.loads(given.body.read_text()) if given.body else {}
    return body | (valid_actions(given.actions_of) if given.actions_of else {})


def config(given: argparse.Namespace, body: dict[str, Any], folder: str) -> list[str]:
    """Options of `mini`, one key and value each."""
    request = {
        "custom_llm_provider": "openai",
        "api_base": given.base_url,
        "api_key": "none",
        "max_tokens": given.max_tokens,
        "seed": given.seed,
        "extra_headers": dict(header.split("=", 1) for header in given.header),
        "extra_body": body,
    }
    settings = {
        "model.model_class": "litellm" if given.tool_calls else "litellm_textbased",
        "model.model_kwargs": request,
        "model.cost_tracking": "ignore_errors",
        "agent.step_limit": given.steps,
        "agent.cost_limit": 0,
        "agent.max_consecutive_format_errors": 0,
        "environment.cwd": folder,
    }
    specs = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    shipped = "mini.yaml" if given.tool_calls else "mini_textbased.yaml"
    return [part for spec in [shipped, *specs] for part in ("-c", spec)]


def environment(home: str) -> dict[str, str]:
    """The process's variables: nothing of the caller's but the way to programs."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "MSWEA_GLOBAL_CONFIG_DIR": home,
        "MSWEA_CONFIGURED": "true",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
        # Without it litellm asks GitHub for prices when it is imported.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONDONTWRITEBYTECODE": "1",
        # A short traceback, if there is one.
        "TYPER_STANDARD_TRACEBACK": "1",
    }


def run(given: argparse.Namespace, body: dict[str, Any], home: str, work: str) -> dict[str, Any]:
    """Runs the program; gives its trajectory."""
    trajectory = Path(home) / "trajectory.json"
    command = [sys.executable, "-m", "minisweagent.run.mini", *config(given, body, work)]
    command += ["--model", given.model, "--task", given.task, "--output", str(trajectory)]
    command += ["--yolo", "--exit-immediately"]
    done = subprocess.run(
        command,
        env=environment(home),
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0 or not trajectory.exists():
        sys.exit(f"mini-swe-agent failed with {done.returncode}\n{done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(trajectory.read_text())
    return found


def summary(trajectory: dict[str, Any]) -> dict[str, Any]:
    info, messages = trajectory["info"], trajectory["messages"]
    extras = [message.get("extra", {}) for message in messages]
    return {
        "version": info["mini_version"],
        "exit_status": info["exit_status"],
        "calls": info["model_stats"]["api_calls"],
        "format_errors": sum(extra.get("interrupt_type") == "FormatError" for extra in extras),
        "actions": [action["command"] for extra in extras for action in extra.get("actions", [])],
        "messages": [
            {key: message.get(key) for key in ("role", "content")} for message in messages
        ],
    }


def main() -> None:
    given = options()
    body = added(given)
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as work:
        told = summary(run(given, body, home, work))
        print(json.dumps({**told, "added": body}, indent=1))


if __name__ == "__main__":
    main()
