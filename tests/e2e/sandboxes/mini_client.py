#!/usr/bin/env python3
"""mini-swe-agent repairs a function, its commands run in a sandbox by way of SWE-ReX's client.

The environment has SWEREX_URL and SWEREX_TOKEN, and of the model MODEL_NAME and MODEL_BASE, the base
of an OpenAI API; MODEL_BASE=scripted is a model in this process that knows the answers. With TEXT=1
the model writes commands into its text. With REQUIRE_FIX=1, or the scripted model, the function is to
be right in the end. Needs mini-swe-agent and swe-rex.
"""
import asyncio, json, logging, os, threading, time, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1"); os.environ.setdefault("MSWEA_CONFIGURED", "true")
os.environ.setdefault("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT", "2")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else import of litellm asks GitHub
import litellm
litellm.suppress_debug_info = True
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import get_config_from_spec
from minisweagent.environments.extra.swerex_docker import SwerexDockerEnvironment
from minisweagent.models import get_model
from pydantic import BaseModel
from swerex.runtime.abstract import Command, ReadFileRequest, WriteFileRequest
from swerex.runtime.remote import RemoteRuntime

class RemoteConfig(BaseModel):
    url: str
    token: str = ""
    cwd: str = "/"
    timeout: int = 30

class SwerexRemoteEnvironment(SwerexDockerEnvironment):
    """environment_class: SwerexRemoteEnvironment, with keys url, token, cwd, timeout."""
    def __init__(self, **kwargs):
        self.config = RemoteConfig(**kwargs)
        self.deployment = self  # execute() of the parent class calls self.deployment.runtime.execute(...)
        self.runtime = RemoteRuntime(auth_token=self.config.token, host=self.config.url, timeout=5.0)
        asyncio.run(self.runtime.wait_until_alive(timeout=30))
    def get_template_vars(self, **kwargs):  # mini.yaml needs these four; the docker class does not give them
        r = asyncio.run(self.runtime.execute(Command(command="uname -s; uname -r; uname -v; uname -m", shell=True)))
        return {**super().get_template_vars(**kwargs), **dict(zip(("system", "release", "version", "machine"), r.stdout.split("\n")))}

STEPS = ["cat calc.py test_calc.py; python3 -B test_calc.py",
         "sed -i 's/return a - b/return a + b/' calc.py",
         "python3 -B test_calc.py && cat calc.py",
         "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat calc.py"]

class Scripted(BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def reply(self, obj):
        b = json.dumps(obj).encode()
        self.send_response(200); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(b))); self.end_headers(); self.wfile.write(b)
    def do_GET(self): self.reply({"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "local"}]})
    def do_POST(self):  # stateless: the step is the number of assistant messages so far
        q = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        i = min(sum(m["role"] == "assistant" for m in q["messages"]), len(STEPS) - 1)
        m = {"role": "assistant", "content": f"THOUGHT: step {i + 1}."}
        if q.get("tools"):
            m["tool_calls"] = [{"id": f"call_{i}", "type": "function",
                                "function": {"name": "bash", "arguments": json.dumps({"command": STEPS[i]})}}]
        else:
            m["content"] += f"\n\n```mswea_bash_command\n{STEPS[i]}\n```"
        self.reply({"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion", "created": int(time.time()), "model": q["model"],
                    "choices": [{"index": 0, "message": m, "finish_reason": "tool_calls" if q.get("tools") else "stop"}],
                    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}})

def serve(port=0):
    s = ThreadingHTTPServer(("127.0.0.1", port), Scripted)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{s.server_port}/v1"

def main():
    base = os.environ["MODEL_BASE"]
    require = os.environ.get("REQUIRE_FIX", "1" if base == "scripted" else "0") == "1"
    base = serve() if base == "scripted" else base
    logging.disable(logging.CRITICAL)
    text = os.environ.get("TEXT") == "1"
    work = os.environ.get("SWEREX_TMP", "/tmp") + "/mini_" + uuid.uuid4().hex[:8]
    cfg = get_config_from_spec("mini_textbased.yaml" if text else "mini.yaml")
    agent_cfg = {k: cfg["agent"][k] for k in ("system_template", "instance_template")}
    env = SwerexRemoteEnvironment(url=os.environ["SWEREX_URL"].rstrip("/"), token=os.environ.get("SWEREX_TOKEN", ""), cwd=work)
    def put(name, text): asyncio.run(env.runtime.write_file(WriteFileRequest(path=f"{work}/{name}", content=text)))
    put("calc.py", "def add(a, b):\n    return a - b\n")
    put("test_calc.py", "from calc import add\nassert add(2, 3) == 5, add(2, 3)\nprint('test passed')\n")
    model = get_model(os.environ.get("MODEL_NAME", "scripted"), {**cfg["model"],
        "model_class": "litellm_textbased" if text else "litellm", "cost_tracking": "ignore_errors",
        "model_name": "", "model_kwargs": {"drop_params": True, "custom_llm_provider": "openai", "api_base": base,
                                           "api_key": os.environ.get("MODEL_KEY", "none"), "temperature": 0.0, "max_tokens": 512}})
    agent = DefaultAgent(model, env, **agent_cfg, step_limit=int(os.environ.get("STEP_LIMIT", "8")), cost_limit=0.0)
    out = agent.run("add() in calc.py returns a wrong result. Fix it so that `python3 -B test_calc.py` passes.")
    for m in agent.messages[2:]:
        print(f"[{m['role']}]", str(m.get("content"))[:200].replace("\n", " | "), [a["command"] for a in m.get("extra", {}).get("actions", [])])
    r = asyncio.run(env.runtime.execute(Command(command="python3 -B test_calc.py", shell=True, cwd=work)))
    calc = asyncio.run(env.runtime.read_file(ReadFileRequest(path=f"{work}/calc.py"))).content
    fixed = r.exit_code == 0 and r.stdout == "test passed\n"
    print(f"exit_status={out.get('exit_status')} model_calls={agent.n_calls} fixed={fixed} calc.py={calc!r}")
    assert out.get("exit_status") in ("Submitted", "LimitsExceeded", "RepeatedFormatError"), out
    if require:
        assert out["exit_status"] == "Submitted" and fixed and "return a + b" in out["submission"], out
    print("PASSED")

if __name__ == "__main__":
    main()
