"""Uses a daemon through E2B's own Python package. Nothing here is treadle's: the package finds the
daemon by E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY. Prints ALL PASSED at the end."""

import json
import os
import time
import urllib.request
import uuid

import e2b
from e2b import CommandExitException, NotFoundException, Sandbox, SandboxQuery

FOLDER = "/home/user/e2b test"
TAG = "t" + uuid.uuid4().hex[:10]
METADATA = {"tag": TAG, "sp ace": "a&b=c/ü"}


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind}")


def value(one):
    """Old versions have enumerations where new ones have text."""
    return getattr(one, "value", one)


def fetch(url, data=None, headers=None):
    with urllib.request.urlopen(urllib.request.Request(url, data, headers or {})) as answer:
        return answer.read()


def found(sandbox):
    assert sandbox.sandbox_id and sandbox.is_running() is True
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id and value(info.state) == "running"
    assert info.metadata == METADATA, info.metadata
    assert info.end_at > info.started_at and info.started_at.tzinfo


def commands(sandbox):
    run = sandbox.commands.run
    out, err, at = [], [], []

    def on_stdout(text):
        out.append(text)
        at.append(time.time())

    script = "echo one; sleep 0.5; echo two; echo bad >&2"
    result = run(script, on_stdout=on_stdout, on_stderr=err.append)
    assert "".join(out) == result.stdout == "one\ntwo\n", result
    assert "".join(err) == result.stderr == "bad\n" and result.exit_code == 0 and not result.error
    assert at[-1] - at[0] > 0.3, "it was not streamed"

    error = raises(CommandExitException, lambda: run("echo o; echo e >&2; exit 7"))
    assert (error.exit_code, error.stdout, error.stderr) == (7, "o\n", "e\n")
    sandbox.files.make_dir(FOLDER)
    result = run("pwd; echo $GLOBAL $LOCAL", cwd=FOLDER, envs={"LOCAL": "l 1"})
    assert result.stdout == f"{FOLDER}\ng1 l 1\n", result.stdout
    raises(e2b.SandboxException, lambda: run("true", cwd="/no/such/folder"))
    assert run("id -un", user="root").stdout == "root\n"
    assert run("id -un; cd; pwd").stdout == "user\n/home/user\n"
    long = run("head -c 3000000 /dev/zero | tr '\\0' x; printf 'é€'").stdout
    assert long == "x" * 3_000_000 + "é€"
    raises(e2b.TimeoutException, lambda: run("sleep 30", timeout=1))


def processes(sandbox):
    commands = sandbox.commands
    handle = commands.run("cat; echo done", background=True, stdin=True, timeout=0)
    known = [process for process in commands.list() if process.pid == handle.pid]
    assert known and known[0].cmd == "/bin/bash", known
    assert known[0].args == ["-l", "-c", "cat; echo done"], known
    commands.send_stdin(handle.pid, "hello\n")
    other = commands.connect(handle.pid, timeout=20)
    if hasattr(commands, "stream_input"):
        commands.stream_input(handle.pid, ["more\n", "and more\n"])
    if hasattr(commands, "close_stdin"):
        commands.close_stdin(handle.pid)
        result = handle.wait()
        assert result.stdout.startswith("hello\n") and result.stdout.endswith("done\n"), result
        assert other.wait().exit_code == 0 and other.pid == handle.pid
    else:
        handle.kill()

    # A client that goes away leaves its command running.
    left = commands.run("for i in 1 2 3; do sleep 0.2; echo $i; done", background=True, timeout=0)
    left.disconnect()
    assert commands.connect(left.pid).wait().stdout.endswith("3\n")

    killed = commands.run("sleep 100", background=True)
    assert killed.kill() is True
    assert raises(CommandExitException, killed.wait).exit_code != 0
    assert commands.kill(999999) is False
    raises(NotFoundException, lambda: commands.connect(999999))
    error = raises(e2b.SandboxException, lambda: sandbox.pty.create(e2b.PtySize(rows=24, cols=80)))
    assert "pty" in str(error), error


def files(sandbox):
    files = sandbox.files
    path = f"{FOLDER}/a b/ü.txt"
    written = files.write(path, "héllo")
    assert (written.path, written.name, value(written.type)) == (path, "ü.txt", "file"), written
    assert files.read(path) == "héllo"
    blob = bytes(range(256)) * 4096
    files.write(f"{FOLDER}/bin", blob)
    assert bytes(files.read(f"{FOLDER}/bin", format="bytes")) == blob
    assert b"".join(files.read(f"{FOLDER}/bin", format="stream")) == blob
    files.write(f"{FOLDER}/empty", "")
    assert files.read(f"{FOLDER}/empty") == ""
    several = [("m1", "1"), ("sub/m2", b"2")]
    several = [{"path": f"{FOLDER}/{name}", "data": data} for name, data in several]
    assert [one.path for one in files.write_files(several)] == [one["path"] for one in several]
    with open(__file__, "rb") as file:
        files.write(f"{FOLDER}/stream", file)
    with open(__file__, encoding="utf-8") as file:
        assert files.read(f"{FOLDER}/stream") == file.read()
    try:
        files.write(f"{FOLDER}/packed", "zip" * 1000, gzip=True)
        assert files.read(f"{FOLDER}/packed", gzip=True) == "zip" * 1000
    except TypeError:
        pass  # Old versions have no gzip.
    # What was written is the user's.
    sandbox.commands.run("echo more >> m1", cwd=FOLDER)
    assert files.read(f"{FOLDER}/m1") == "1more\n"
    raises(e2b.SandboxException, lambda: files.write(FOLDER, "a folder is no file"))


def folders(sandbox):
    files = sandbox.files
    names = {entry.name: value(entry.type) for entry in files.list(FOLDER)}
    assert names["a b"] == "dir" and names["bin"] == "file" and "m2" not in names, names
    assert "m2" in [entry.name for entry in files.list(FOLDER, depth=2)]
    info = files.get_info(f"{FOLDER}/bin")
    assert (info.size, info.name, value(info.type)) == (1 << 20, "bin", "file"), info
    assert (info.owner, info.permissions) == ("user", "-rw-r--r--") and info.modified_time
    assert files.exists(f"{FOLDER}/bin") and not files.exists(f"{FOLDER}/none")
    for call in (files.read, files.list, files.get_info):
        raises(NotFoundException, lambda call=call: call(f"{FOLDER}/none"))
    assert files.make_dir(f"{FOLDER}/x/y") is True and files.make_dir(f"{FOLDER}/x/y") is False
    assert files.rename(f"{FOLDER}/m1", f"{FOLDER}/m9").path == f"{FOLDER}/m9"
    files.remove(f"{FOLDER}/sub")
    assert not files.exists(f"{FOLDER}/m1") and not files.exists(f"{FOLDER}/sub")

    watch = files.watch_dir(FOLDER)
    files.write(f"{FOLDER}/watched", "1")
    assert "watched" in [event.name for event in watch.get_new_events()]
    watch.stop()


def urls(sandbox):
    url = sandbox.download_url(f"{FOLDER}/bin", use_signature_expiration=60)
    assert len(fetch(url)) == 1 << 20
    try:
        fetch(url.replace("signature=v1_", "signature=v1_x"))
    except urllib.error.HTTPError as error:
        assert error.code in (401, 502), error
    else:
        raise AssertionError("a wrong signature must be refused")


def course(sandbox):
    sandbox.set_timeout(600)
    left = sandbox.get_info().end_at.timestamp() - time.time()
    assert 500 < left < 700, left
    sandbox.files.write(f"{FOLDER}/keep", "kept")
    pause = getattr(sandbox, "pause", None) or sandbox.beta_pause
    pause()
    assert value(sandbox.get_info().state) == "paused" and sandbox.is_running() is False
    query = SandboxQuery(metadata={"tag": TAG}, state=[e2b.SandboxState.PAUSED])
    paused = Sandbox.list(query=query).next_items()
    assert sandbox.sandbox_id in [one.sandbox_id for one in paused]
    again = Sandbox.connect(sandbox.sandbox_id, timeout=300)
    assert again.is_running() and again.files.read(f"{FOLDER}/keep") == "kept"
    return again


def fork(sandbox):
    if hasattr(sandbox, "fork"):
        copy = sandbox.fork(timeout=120)[0]
        assert isinstance(copy, Sandbox), copy
    else:
        url = f"{os.environ['E2B_API_URL']}/sandboxes/{sandbox.sandbox_id}/fork"
        headers = {"X-API-KEY": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
        answer = json.loads(fetch(url, b'{"timeout": 120}', headers))
        copy = Sandbox.connect(answer[0]["sandbox"]["sandboxID"])
    try:
        assert copy.sandbox_id != sandbox.sandbox_id
        assert copy.files.read(f"{FOLDER}/keep") == "kept"
        copy.files.write(f"{FOLDER}/keep", "changed")
        assert sandbox.files.read(f"{FOLDER}/keep") == "kept"
        sandbox.files.write(f"{FOLDER}/later", "1")
        assert not copy.files.exists(f"{FOLDER}/later")
        pages, ids = Sandbox.list(query=SandboxQuery(metadata=METADATA), limit=1), []
        while pages.has_next:
            ids += [one.sandbox_id for one in pages.next_items()]
        assert sorted(ids) == sorted([sandbox.sandbox_id, copy.sandbox_id]), ids
        nothing = SandboxQuery(metadata={"tag": "none"})
        assert not Sandbox.list(query=nothing).next_items()
    finally:
        copy.kill()


def end(sandbox):
    assert sandbox.kill() is True and sandbox.kill() is False
    assert sandbox.is_running() is False
    raises(NotFoundException, lambda: Sandbox.get_info(sandbox.sandbox_id))
    raises(NotFoundException, lambda: Sandbox.connect(sandbox.sandbox_id))
    raises(e2b.TimeoutException, lambda: sandbox.commands.run("true"))


def snapshot(sandbox):
    made = sandbox.create_snapshot()
    assert made.snapshot_id, made
    sandbox.files.write(f"{FOLDER}/keep", "after")
    copy = Sandbox.create(made.snapshot_id, timeout=120)
    try:
        assert copy.files.read(f"{FOLDER}/keep") == "kept"
        pages = sandbox.list_snapshots()
        assert [one.snapshot_id for one in pages.next_items()] == [made.snapshot_id]
        assert not pages.has_next
        assert Sandbox.delete_snapshot(made.snapshot_id) is True
        assert Sandbox.delete_snapshot(made.snapshot_id) is False
        assert copy.files.read(f"{FOLDER}/keep") == "kept"
    finally:
        copy.kill()
        sandbox.files.write(f"{FOLDER}/keep", "kept")


def main():
    sandbox = Sandbox.create(timeout=300, metadata=METADATA, envs={"GLOBAL": "g1"})
    try:
        for part in (found, commands, processes, files, folders, urls):
            part(sandbox)
        sandbox = course(sandbox)
        fork(sandbox)
        snapshot(sandbox)
    except BaseException:
        sandbox.kill()
        raise
    end(sandbox)
    print("ALL PASSED")


main()
