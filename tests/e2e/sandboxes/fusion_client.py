#!/usr/bin/env python3
"""Runs code by way of SandboxFusion's clients: plain requests, sandbox_fusion, and verl's own.

The environment has FUSION_URL, below which is /run_code. Ends with 0 if all is well.
Needs requests, sandbox-fusion, and verl without what it needs: one file of it is read.
"""
import base64, importlib.util, os, pathlib, sys, time, requests
import sandbox_fusion as sf

BASE = os.environ["FUSION_URL"].rstrip("/"); URL = BASE + "/run_code"
VERL = next(
    file for folder in sys.path
    if (file := pathlib.Path(folder, "verl/utils/reward_score/sandbox_fusion/utils.py")).exists())
RUN_KEYS = {"status", "execution_time", "return_code", "stdout", "stderr"}
n = 0
def ok(what):
    global n; n += 1; print(f"ok {n:2} {what}", flush=True)
def rc(**k):
    r = requests.post(URL, json={"language": "python", **k}, timeout=60)
    assert r.status_code == 200, (r.status_code, r.text)
    j = r.json()
    assert {"status", "message", "compile_result", "run_result", "executor_pod_name", "files"} <= set(j), j
    for part in ("compile_result", "run_result"):
        assert j[part] is None or RUN_KEYS <= set(j[part]), j
    return j
b64 = lambda s: base64.b64encode(s).decode()

j = rc(code="print(123)"); r = j["run_result"]
assert (j["status"], j["message"], j["compile_result"], j["files"]) == ("Success", "", None, {}), j
assert (r["status"], r["return_code"], r["stdout"], r["stderr"]) == ("Finished", 0, "123\n", "") and r["execution_time"] > 0, r
ok("python Success, compile_result null")
j = rc(code="import sys; print(repr(sys.stdin.read()))", stdin="a\nb"); assert j["run_result"]["stdout"] == "'a\\nb'\n", j; ok("stdin exact")
j = rc(code="import sys; print(repr(sys.stdin.read()))"); assert j["run_result"]["stdout"] == "''\n", j; ok("stdin null = EOF")
j = rc(code="import sys; print('x', file=sys.stderr); sys.exit(3)"); r = j["run_result"]
assert (j["status"], r["status"], r["return_code"], r["stderr"]) == ("Failed", "Finished", 3, "x\n"), j; ok("non-zero exit: Failed + Finished")
j = rc(code="assert 1 == 2"); assert j["status"] == "Failed" and "AssertionError" in j["run_result"]["stderr"]; ok("python exception")
t = time.time(); j = rc(code="import time; print('early', flush=True); time.sleep(20)", run_timeout=1); r = j["run_result"]
assert (j["status"], j["message"], r["status"], r["return_code"]) == ("Failed", "", "TimeLimitExceeded", None), j
assert r["stdout"] == "early\n" and 0.9 < r["execution_time"] < 5 and time.time() - t < 10, j; ok("timeout: partial stdout kept, return_code null")
j = rc(code="import os; os.kill(os.getpid(), 9)"); assert (j["status"], j["run_result"]["status"]) == ("Failed", "Finished"), j
assert j["run_result"]["return_code"] in (-9, 137), j; ok("killed by a signal")
j = rc(code="print(open('d/e/f').read(), end='')", files={"d/e/f": b64("é!".encode()), "skip": None})
assert j["run_result"]["stdout"] == "é!", j; ok("files (base64, relative path, null skipped)")
j = rc(code="open('o.bin','wb').write(bytes(range(256))); open('/tmp/fusion_o','w').write('s')", fetch_files=["o.bin", "/tmp/fusion_o", "missing"])
assert set(j["files"]) == {"o.bin", "/tmp/fusion_o"} and base64.b64decode(j["files"]["o.bin"]) == bytes(range(256)), j; ok("fetch_files, missing left out")
j = rc(language="bash", code="read a; echo $a-$(pwd | wc -w); exit 5", stdin="65535"); r = j["run_result"]
assert (j["status"], r["return_code"], r["stdout"]) == ("Failed", 5, "65535-1\n"), j; ok("bash with stdin")
j = rc(language="bash", code="if ["); assert j["status"] == "Failed" and "syntax error" in j["run_result"]["stderr"], j; ok("bash syntax error")
if not os.environ.get("NO_CPP"):
    cpp = '#include <iostream>\nint main(){int n; std::cin >> n; std::cout << n*2 << std::endl; return 0;}'
    j = rc(language="cpp", code=cpp, stdin="21"); c, r = j["compile_result"], j["run_result"]
    assert (j["status"], c["status"], c["return_code"], r["stdout"]) == ("Success", "Finished", 0, "42\n"), j; ok("cpp")
    j = rc(language="cpp", code="int main(){ object i = ?; }"); c = j["compile_result"]
    assert (j["status"], c["status"], j["run_result"]) == ("Failed", "Finished", None) and c["return_code"] != 0 and c["stderr"], j; ok("cpp compile error: run_result null")
    j = rc(language="cpp", code="int main(){ for(;;); }", run_timeout=1); assert j["run_result"]["status"] == "TimeLimitExceeded", j; ok("cpp run timeout")
    j = rc(language="cpp", code="int main(){}", compile_timeout=0.001)
    assert (j["status"], j["compile_result"]["status"], j["run_result"]) == ("Failed", "TimeLimitExceeded", None), j; ok("cpp compile timeout")
for bad in ({"language": "klingon", "code": ""}, {"language": "python"}):
    r = requests.post(URL, json=bad, timeout=10); assert r.status_code == 422 and "detail" in r.json(), r.text
ok("bad language / missing code -> 422")

res = sf.run_code(sf.RunCodeRequest(code="print(input())", language="python", stdin="z"), endpoint=BASE + "/", max_attempts=1)
assert res.status == sf.RunStatus.Success and res.run_result.stdout == "z\n" and res.run_result.status == sf.CommandRunStatus.Finished
ok("sandbox_fusion client run_code")
m = sf.SummaryMapping(Success="S", Failed="F", CompileFailed="CF", RunFailed="RF", RunTimeout="RT")
s = [sf.summary_run_code_result(sf.run_code(sf.RunCodeRequest(language="python", run_timeout=1, code=c), endpoint=BASE, max_attempts=1), m)
     for c in ("pass", "1/0", "while 1: pass")]
assert s == ["S", "RF", "RT"], s; ok("sandbox_fusion summary mapping")
spec = importlib.util.spec_from_file_location("verl_utils", VERL); v = importlib.util.module_from_spec(spec); spec.loader.exec_module(v)
def cc(code, ins, outs, **k):
    res, meta = v.check_correctness(URL, {"inputs": ins, "outputs": outs, **k.pop("io", {})}, code, **{"timeout": 10, **k})
    return res, [x["status"] for x in meta]
echo = "import sys\nd = sys.stdin.read()\nprint('out' + d if d == 'in1' else 'bad', end='')"
assert cc(echo, ["in1", "in2"], ["outin1\n", "outin2"]) == ([True, False], ["success", "wrong_answer"]); ok("verl correct / wrong answer")
assert cc("raise ValueError(1)", ["a"], ["b"]) == ([-2], ["runtime_error"]); ok("verl runtime error -2")
assert cc("import time; time.sleep(9)", ["a"], ["b"], timeout=2) == ([-3], ["timeout"]); ok("verl timeout -3")
assert cc("def add(a, b):\n    return a + b", ["1\n2"], ["3"], io={"fn_name": "add"}) == ([True], ["success"]); ok("verl fn_name wrapper")
if not os.environ.get("NO_CPP"):
    assert cc("a=b", ["a", "b"], ["a", "b"], language="cpp") == ([-4, -4], ["compile_error"] * 2); ok("verl compile error -4")
ins = [f"i{k}" for k in range(40)]; t = time.time()
assert cc("print(input())", ins, ins, timeout=15)[0] == [True] * 40; ok(f"verl 40 concurrent cases in {time.time()-t:.1f}s")
print("ALL PASSED")
