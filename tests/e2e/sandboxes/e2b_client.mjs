// Uses a daemon through E2B's own JavaScript package. Nothing here is treadle's: the package finds the
// daemon by E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY. Prints ALL PASSED at the end.
// E2B_PACKAGE is the package's folder.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const home = join(process.env.E2B_PACKAGE, 'dist/index.mjs')
const { Sandbox, CommandExitError, NotFoundError, TimeoutError, SandboxError } = await import(pathToFileURL(home))

const FOLDER = '/home/user/e2b test'
const TAG = 'j' + Math.random().toString(36).slice(2, 12)
const METADATA = { tag: TAG, 'sp ace': 'a&b=c/ü' }

async function rejects(kind, call) {
  try {
    await call()
  } catch (error) {
    assert(error instanceof kind, `expected ${kind.name}, got ${error?.name}: ${error?.message}`)
    return error
  }
  assert.fail(`expected ${kind.name}`)
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function found(sandbox) {
  assert(sandbox.sandboxId)
  assert.equal(await sandbox.isRunning(), true)
  const info = await sandbox.getInfo()
  assert.equal(info.state, 'running')
  assert.deepEqual(info.metadata, METADATA)
  assert(info.endAt > info.startedAt)
}

async function commands(sandbox) {
  const run = (script, options) => sandbox.commands.run(script, options)
  const [out, err, at] = [[], [], []]
  let result = await run('echo one; sleep 0.5; echo two; echo bad >&2', {
    onStdout: (text) => { out.push(text); at.push(Date.now()) },
    onStderr: (text) => { err.push(text) },
  })
  assert.deepEqual([out.join(''), result.stdout], ['one\ntwo\n', 'one\ntwo\n'])
  assert.deepEqual([err.join(''), result.stderr, result.exitCode], ['bad\n', 'bad\n', 0])
  assert(at.at(-1) - at[0] > 300, 'it was not streamed')

  const error = await rejects(CommandExitError, () => run('echo o; echo e >&2; exit 7'))
  assert.deepEqual([error.exitCode, error.stdout, error.stderr], [7, 'o\n', 'e\n'])
  await sandbox.files.makeDir(FOLDER)
  result = await run('pwd; echo $GLOBAL $LOCAL', { cwd: FOLDER, envs: { LOCAL: 'l 1' } })
  assert.equal(result.stdout, `${FOLDER}\ng1 l 1\n`)
  await rejects(SandboxError, () => run('true', { cwd: '/no/such/folder' }))
  assert.equal((await run('id -un', { user: 'root' })).stdout, 'root\n')
  assert.equal((await run('id -un')).stdout, 'user\n')
  const long = await run("head -c 3000000 /dev/zero | tr '\\0' x; printf 'é€'")
  assert.equal(long.stdout, 'x'.repeat(3_000_000) + 'é€')
  await rejects(TimeoutError, () => run('sleep 30', { timeoutMs: 1000 }))
}

async function processes(sandbox) {
  const { commands } = sandbox
  const handle = await commands.run('cat; echo done', { background: true, stdin: true, timeoutMs: 0 })
  const known = (await commands.list()).find((process) => process.pid === handle.pid)
  assert.deepEqual([known?.cmd, known?.args], ['/bin/bash', ['-l', '-c', 'cat; echo done']])
  const other = await commands.connect(handle.pid, { timeoutMs: 20_000 })
  await commands.sendStdin(handle.pid, 'hello\n')
  if (commands.closeStdin) {
    await commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'hello\ndone\n')
    assert.equal((await other.wait()).stdout, 'hello\ndone\n')
  } else {
    await handle.kill()
    await Promise.allSettled([handle.wait(), other.wait()])
  }

  // A client that goes away leaves its command running.
  const script = 'for i in 1 2 3; do sleep 0.2; echo $i; done'
  const left = await commands.run(script, { background: true, timeoutMs: 0 })
  await left.disconnect()
  assert((await (await commands.connect(left.pid)).wait()).stdout.endsWith('3\n'))

  const killed = await commands.run('sleep 100', { background: true })
  const ended = rejects(CommandExitError, () => killed.wait())
  assert.equal(await killed.kill(), true)
  assert.notEqual((await ended).exitCode, 0)
  assert.equal(await commands.kill(999999), false)
  await rejects(NotFoundError, () => commands.connect(999999))
  const refusal = await rejects(SandboxError, () => sandbox.pty.create({ rows: 24, cols: 80, onData() {} }))
  assert(refusal.message.includes('pty'), refusal.message)
}

async function files(sandbox) {
  const { files } = sandbox
  const path = `${FOLDER}/a b/ü.txt`
  const written = await files.write(path, 'héllo')
  assert.deepEqual([written.path, written.name, written.type], [path, 'ü.txt', 'file'])
  assert.equal(await files.read(path), 'héllo')
  const blob = Buffer.alloc(1 << 20, Uint8Array.from({ length: 256 }, (_, byte) => byte))
  await files.write(`${FOLDER}/bin`, new Blob([blob]))
  assert(blob.equals(Buffer.from(await files.read(`${FOLDER}/bin`, { format: 'bytes' }))))
  const pieces = []
  for await (const piece of await files.read(`${FOLDER}/bin`, { format: 'stream' })) pieces.push(piece)
  assert(blob.equals(Buffer.concat(pieces)))
  await files.write(`${FOLDER}/empty`, '')
  assert.equal(await files.read(`${FOLDER}/empty`), '')
  const several = [['m1', '1'], ['sub/m2', '2']].map(([name, data]) => ({ path: `${FOLDER}/${name}`, data }))
  assert.deepEqual((await files.write(several)).map((one) => one.path), several.map((one) => one.path))
  await files.write(`${FOLDER}/stream`, new Blob(['st', 'ream']).stream())
  assert.equal(await files.read(`${FOLDER}/stream`), 'stream')
  await files.write(`${FOLDER}/packed`, 'zip'.repeat(1000), { gzip: true })
  assert.equal(await files.read(`${FOLDER}/packed`, { gzip: true }), 'zip'.repeat(1000))
  // What was written is the user's.
  await sandbox.commands.run('echo more >> m1', { cwd: FOLDER })
  assert.equal(await files.read(`${FOLDER}/m1`), '1more\n')
}

async function folders(sandbox) {
  const { files } = sandbox
  const names = Object.fromEntries((await files.list(FOLDER)).map((entry) => [entry.name, entry.type]))
  assert.deepEqual([names['a b'], names.bin, names.m2], ['dir', 'file', undefined])
  assert((await files.list(FOLDER, { depth: 2 })).some((entry) => entry.name === 'm2'))
  const info = await files.getInfo(`${FOLDER}/bin`)
  assert.deepEqual([info.size, info.path, info.type], [1 << 20, `${FOLDER}/bin`, 'file'])
  assert.equal(await files.exists(`${FOLDER}/bin`), true)
  assert.equal(await files.exists(`${FOLDER}/none`), false)
  await rejects(NotFoundError, () => files.read(`${FOLDER}/none`))
  await rejects(NotFoundError, () => files.list(`${FOLDER}/none`))
  assert.equal(await files.makeDir(`${FOLDER}/x/y`), true)
  assert.equal(await files.makeDir(`${FOLDER}/x/y`), false)
  assert.equal((await files.rename(`${FOLDER}/m1`, `${FOLDER}/m9`)).path, `${FOLDER}/m9`)
  await files.remove(`${FOLDER}/sub`)
  assert.equal(await files.exists(`${FOLDER}/sub`), false)

  const seen = []
  const watch = await files.watchDir(FOLDER, (event) => { seen.push(event.name) })
  await files.write(`${FOLDER}/watched`, '1')
  for (let tries = 0; tries < 100 && !seen.includes('watched'); tries++) await pause(50)
  assert(seen.includes('watched'), 'nothing was seen')
  await watch.stop()
}

async function course(sandbox) {
  await sandbox.setTimeout(600_000)
  const left = +(await sandbox.getInfo()).endAt - Date.now()
  assert(left > 500e3 && left < 700e3, `${left}`)
  await sandbox.files.write(`${FOLDER}/keep`, 'kept')
  await (sandbox.pause ? sandbox.pause() : sandbox.betaPause())
  assert.equal((await sandbox.getInfo()).state, 'paused')
  assert.equal(await sandbox.isRunning(), false)
  const query = { metadata: { tag: TAG }, state: ['paused'] }
  const paused = await Sandbox.list({ query }).nextItems()
  assert(paused.some((one) => one.sandboxId === sandbox.sandboxId))
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 300_000 })
  assert.equal(await again.files.read(`${FOLDER}/keep`), 'kept')
  return again
}

async function forked(sandbox) {
  if (sandbox.fork) {
    const [copy] = await sandbox.fork({ timeoutMs: 120_000 })
    if (!(copy instanceof Sandbox)) throw copy
    return copy
  }
  const answer = await fetch(`${process.env.E2B_API_URL}/sandboxes/${sandbox.sandboxId}/fork`, {
    method: 'POST',
    body: '{"timeout":120}',
    headers: { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
  })
  assert.equal(answer.status, 201)
  return Sandbox.connect((await answer.json())[0].sandbox.sandboxID)
}

async function snapshot(sandbox) {
  const { snapshotId } = await sandbox.createSnapshot()
  await sandbox.files.write(`${FOLDER}/keep`, 'after')
  const copy = await Sandbox.create(snapshotId, { timeoutMs: 120_000 })
  try {
    assert.equal(await copy.files.read(`${FOLDER}/keep`), 'kept')
    const listed = await sandbox.listSnapshots().nextItems()
    assert.deepEqual(
      listed.map((one) => one.snapshotId),
      [snapshotId],
    )
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), false)
  } finally {
    await copy.kill()
    await sandbox.files.write(`${FOLDER}/keep`, 'kept')
  }
}

async function fork(sandbox) {
  const copy = await forked(sandbox)
  try {
    assert.notEqual(copy.sandboxId, sandbox.sandboxId)
    assert.equal(await copy.files.read(`${FOLDER}/keep`), 'kept')
    await copy.files.write(`${FOLDER}/keep`, 'changed')
    assert.equal(await sandbox.files.read(`${FOLDER}/keep`), 'kept')
    const pages = Sandbox.list({ query: { metadata: METADATA }, limit: 1 })
    const ids = []
    while (pages.hasNext) ids.push(...(await pages.nextItems()).map((one) => one.sandboxId))
    assert.deepEqual(ids.sort(), [sandbox.sandboxId, copy.sandboxId].sort())
  } finally {
    await copy.kill()
  }
}

async function end(sandbox) {
  const killed = [await sandbox.kill(), await sandbox.kill()]
  // Old versions say nothing.
  if (killed[0] !== undefined) assert.deepEqual(killed, [true, false])
  assert.equal(await sandbox.isRunning(), false)
  await rejects(NotFoundError, () => Sandbox.getInfo(sandbox.sandboxId))
  await rejects(NotFoundError, () => Sandbox.connect(sandbox.sandboxId))
  await rejects(Error, () => sandbox.commands.run('true'))
}

let sandbox = await Sandbox.create({ timeoutMs: 300_000, metadata: METADATA, envs: { GLOBAL: 'g1' } })
try {
  for (const part of [found, commands, processes, files, folders]) await part(sandbox)
  sandbox = await course(sandbox)
  await fork(sandbox)
  await snapshot(sandbox)
} catch (error) {
  await sandbox.kill()
  throw error
}
await end(sandbox)
console.log('ALL PASSED')
process.exit(0)
