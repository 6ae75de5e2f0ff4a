#!/usr/bin/env python3
"""Drives a sandbox with SWE-ReX's client.

The environment has SWEREX_URL, which has a path, and SWEREX_TOKEN. Ends with 0 if all is well.
Needs swe-rex.
"""
import asyncio, logging, os, pathlib, tempfile, time, uuid
from swerex.deployment.remote import RemoteDeployment
from swerex.exceptions import (BashIncorrectSyntaxError, CommandTimeoutError, NonZeroExitCodeError,
                               SessionDoesNotExistError, SessionExistsError)
from swerex.runtime.abstract import (BashAction, BashInterruptAction, CloseBashSessionRequest, Command,
                                     CreateBashSessionRequest, ReadFileRequest, UploadRequest, WriteFileRequest)
from swerex.runtime.remote import RemoteRuntime

URL, TOKEN = os.environ["SWEREX_URL"].rstrip("/"), os.environ.get("SWEREX_TOKEN", "")
D = os.environ.get("SWEREX_TMP", "/tmp/swerex_check") + "/" + uuid.uuid4().hex[:8]
S = "s" + uuid.uuid4().hex[:6]
n = 0
logging.disable(logging.CRITICAL)  # the client logs each error of the server
def ok(what):
    global n; n += 1; print(f"ok {n:2} {what}", flush=True)

async def raises(exc, coro):
    try:
        await coro
    except exc as e:
        return e
    raise AssertionError(f"{exc.__name__} was not raised")

async def main():
    dep = RemoteDeployment(auth_token=TOKEN, host=URL, timeout=5.0)  # no port: host is used verbatim
    await dep.start()
    rt = dep.runtime
    await rt.wait_until_alive(timeout=10); assert (await rt.is_alive()).is_alive; ok("is_alive + wait_until_alive")
    if TOKEN:
        bad = await RemoteRuntime(auth_token="wrong" + TOKEN, host=URL, timeout=5.0).is_alive()
        assert not bad.is_alive and "401" in bad.message, bad; ok("wrong token gives is_alive False with 401")
    await raises(SessionDoesNotExistError, rt.run_in_session(BashAction(command="ls", session=S)))
    ok("no such session -> SessionDoesNotExistError")
    r = await rt.create_session(CreateBashSessionRequest(session=S, startup_timeout=10))
    assert r.session_type == "bash"; ok("create_session")
    await raises(SessionExistsError, rt.create_session(CreateBashSessionRequest(session=S))); ok("SessionExistsError")
    def run(cmd, **k):
        return rt.run_in_session(BashAction(command=cmd, session=S, **{"timeout": 10, **k}))
    r = await run("echo hi"); assert (r.output.strip(), r.exit_code, r.failure_reason) == ("hi", 0, ""), r; ok("echo")
    r = await run(f"mkdir -p {D} && cd {D}; export A=1; B=2; f() {{ echo fn; }}"); assert r.exit_code == 0
    r = await run("pwd; echo $A $B; f"); assert r.output.split() == [D, "1", "2", "fn"], r; ok("cd/export/var/function persist")
    r = await run("echo a\necho b\nfalse", check="silent"); assert (r.output.split(), r.exit_code) == (["a", "b"], 1), r
    ok("multi-line, exit code of the last")
    r = await run("for i in 1 2; do\n  echo $i\ndone"); assert r.output.split() == ["1", "2"], r; ok("multi-line for loop")
    r = await run("cat > h.txt <<EOF\nx $A\nEOF"); r = await run("cat h.txt"); assert r.output.strip() == "x 1"; ok("heredoc")
    r = await run("cat <<EOF\nx\nEOF\necho z\nsleep 0.1 &\nwait"); assert "x\nz\n" in r.output, r; ok("heredoc and background")
    r = await run("echo é; echo err >&2; printf nonl"); assert r.output.split() == ["é", "err", "nonl"], r; ok("utf-8, stderr mixed in")
    r = await run("(exit 7)", check="silent"); assert r.exit_code == 7; ok("check=silent gives exit code 7")
    r = await run("(exit 7)", check="ignore"); assert r.exit_code is None; ok("check=ignore gives None")
    e = await raises(NonZeroExitCodeError, run("echo out; (exit 3)", check="raise", error_msg="MSG"))
    assert str(e).startswith("MSG: Command ") and "exit code 3" in str(e) and "out" in str(e), e; ok("check=raise -> NonZeroExitCodeError")
    e = await raises(BashIncorrectSyntaxError, run('echo "open', check="ignore"))
    assert "unexpected EOF" in e.extra_info["bash_stderr"] and "bash_stdout" in e.extra_info; ok("syntax error, extra_info")
    r = await run("echo $A"); assert r.output.strip() == "1"; ok("session usable after syntax error")
    r = await run("python3 -q", is_interactive_command=True, expect=[">>> "]); assert r.expect_string == ">>> ", r
    r = await run("print(6*7)", is_interactive_command=True, expect=[">>> "]); assert r.output.strip() == "42", r
    r = await run("exit()", is_interactive_quit=True); assert r.exit_code == 0, r
    r = await run("echo back $A"); assert r.output.strip() == "back 1", r; ok("interactive program and quit")
    t = time.time()
    e = await raises(CommandTimeoutError, run("sleep 30", timeout=1, check="silent"))
    assert time.time() - t < 5 and isinstance(e, TimeoutError) and "timeout after 1" in str(e), e; ok("CommandTimeoutError")
    await raises(CommandTimeoutError, run("echo stuck", timeout=1, check="silent")); ok("upstream: session stays busy after timeout")
    r = await rt.run_in_session(BashInterruptAction(session=S)); assert r.exit_code == 0 and r.expect_string, r
    r = await run("echo again $A"); assert r.output.split()[-2:] == ["again", "1"], r
    r = await run("echo clean $A; pwd"); assert r.output.split() == ["clean", "1", D], r; ok("bash_interrupt makes it usable, state kept")
    r = await run("! true", check="silent"); assert r.exit_code == 1; ok("still exact after interrupt")
    r = await rt.execute(Command(command="echo o; echo e >&2; exit 4", shell=True))
    assert (r.stdout, r.stderr, r.exit_code) == ("o\n", "e\n", 4), r; ok("execute shell=True")
    if "merge_output_streams" in Command.model_fields:  # since 1.4.0
        r = await rt.execute(Command(command="echo o; echo e >&2", shell=True, merge_output_streams=True))
        assert (r.stdout, r.stderr) == ("o\ne\n", ""), r; ok("execute merge_output_streams")
    r = await rt.execute(Command(command=["printf", "%s|", "a b", "$HOME"])); assert r.stdout == "a b|$HOME|", r; ok("execute list")
    r = await rt.execute(Command(command="/usr/bin/env", env={"ONLY": "1"})); assert r.stdout == "ONLY=1\n", r; ok("execute env replaces")
    r = await rt.execute(Command(command="pwd", shell=True, cwd=D)); assert r.stdout == D + "\n", r; ok("execute cwd")
    await raises(FileNotFoundError, rt.execute(Command(command="no_such_cmd_x"))); ok("execute: missing program -> FileNotFoundError")
    await raises(CommandTimeoutError, rt.execute(Command(command="sleep 30", shell=True, timeout=1))); ok("execute timeout")
    await raises(NonZeroExitCodeError, rt.execute(Command(command="exit 3", shell=True, check=True))); ok("execute check=True")
    await rt.write_file(WriteFileRequest(path=f"{D}/n/e/w.txt", content="α\nβ")); ok("write_file makes parents")
    assert (await rt.read_file(ReadFileRequest(path=f"{D}/n/e/w.txt"))).content == "α\nβ"; ok("read_file")
    await raises(FileNotFoundError, rt.read_file(ReadFileRequest(path=f"{D}/nope"))); ok("read_file -> FileNotFoundError")
    with tempfile.TemporaryDirectory() as td:
        p = pathlib.Path(td); (p / "d/sub").mkdir(parents=True); (p / "d/a.bin").write_bytes(bytes(range(256))); (p / "d/sub/b").write_text("b")
        await rt.upload(UploadRequest(source_path=str(p / "d/a.bin"), target_path=f"{D}/up/a.bin"))
        await rt.upload(UploadRequest(source_path=str(p / "d"), target_path=f"{D}/updir"))
    c = (await rt.read_file(ReadFileRequest(path=f"{D}/up/a.bin", encoding="latin-1"))).content
    assert len(c) == 256 and c[255] == "ÿ", len(c); ok("upload of a file (binary)")
    r = await rt.execute(Command(command=f"cat {D}/updir/sub/b; wc -c < {D}/updir/a.bin", shell=True)); assert r.stdout.split() == ["b256"], r; ok("upload of a folder")
    assert (await rt.close_session(CloseBashSessionRequest(session=S))).session_type == "bash"; ok("close_session")
    await raises(SessionDoesNotExistError, rt.close_session(CloseBashSessionRequest(session=S))); ok("close twice -> SessionDoesNotExistError")
    await dep.stop(); ok("deployment.stop() = POST /close")

asyncio.run(main())
print("ALL PASSED")
