// The JavaScript SDK of E2B: node e2b.mjs MODULES BACKEND, with E2B_* set

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const [modules, backend] = process.argv.slice(2)
const { Sandbox, CommandExitError, NotFoundError, InvalidArgumentError, AuthenticationError, TimeoutError } =
    createRequire(`${modules}/`)('e2b')

async function eventually(holds, what) {
    for (let n = 0; n < 1200; n++) {
        if (await holds()) return
        await new Promise((wake) => setTimeout(wake, 50))
    }
    assert.fail(`it does not hold within 60 s: ${what}`)
}

async function files(sandbox) {
    const made = await sandbox.files.write('notes/a.txt', 'hé\n')
    assert.equal(made.path, '/home/user/notes/a.txt')
    assert.equal(await sandbox.files.read('/home/user/notes/a.txt'), 'hé\n')
    const raw = new Uint8Array(1 << 20).map((_, n) => n % 251)
    await sandbox.files.write('raw.bin', raw.buffer)
    assert.deepEqual(await sandbox.files.read('raw.bin', { format: 'bytes' }), raw)
    const pieces = []
    for await (const piece of await sandbox.files.read('raw.bin', { format: 'stream' })) pieces.push(piece)
    assert.deepEqual(new Uint8Array(Buffer.concat(pieces)), raw)
    assert.equal((await (await sandbox.files.read('raw.bin', { format: 'blob' })).arrayBuffer()).byteLength, 1 << 20)
    await sandbox.files.write([0, 1, 2].map((n) => ({ path: `many/${n}`, data: `${n}` })))
    await sandbox.files.write('octets', 'bytes', { useOctetStream: true })
    assert.equal(await sandbox.files.read('octets'), 'bytes')
    const listed = await sandbox.files.list('.', { depth: 2 })
    assert.ok(listed.some((entry) => entry.path === '/home/user/many/2' && entry.size === 1 && entry.type === 'file'))
    assert.equal((await sandbox.files.getInfo('raw.bin')).size, 1 << 20)
    assert.equal((await sandbox.files.rename('raw.bin', 'moved.bin')).path, '/home/user/moved.bin')
    assert.equal(await sandbox.files.exists('raw.bin'), false)
    await sandbox.files.remove('many')
    assert.equal(await sandbox.files.exists('many/1'), false)
    assert.equal(await sandbox.files.makeDir('dir'), true)
    assert.equal(await sandbox.files.makeDir('dir'), false)
    await assert.rejects(sandbox.files.read('nothing'), NotFoundError)
    await assert.rejects(sandbox.files.getInfo('nothing'), NotFoundError)
    if (backend === 'container') assert.match(await sandbox.files.read('/etc/passwd'), /root/)
    else await assert.rejects(sandbox.files.read('/etc/passwd'), InvalidArgumentError)
    const seen = []
    const handle = await sandbox.files.watchDir('dir', (event) => seen.push(`${event.type} ${event.name}`))
    await sandbox.files.write('dir/one', '1')
    await sandbox.files.remove('dir/one')
    await eventually(() => seen.length === 4, 'changes are seen')
    assert.deepEqual(seen, ['create one', 'chmod one', 'write one', 'remove one'])
    await handle.stop()
    const answer = await fetch(await sandbox.downloadUrl('notes/a.txt', { useSignatureExpiration: 60_000 }))
    assert.equal(await answer.text(), 'hé\n')
    const form = new FormData()
    form.append('file', new Blob(['by a form']), 'form.txt')
    assert.equal((await fetch(await sandbox.uploadUrl('form.txt'), { method: 'POST', body: form })).status, 200)
    assert.equal(await sandbox.files.read('form.txt'), 'by a form')
    console.log('  files: text, bytes, streams, blobs, many, list, info, rename, remove, watch, signed URLs')
}

async function commands(sandbox) {
    const ran = await sandbox.commands.run('echo out; echo err >&2; echo $GIVEN-$ALWAYS', { envs: { GIVEN: 'here' } })
    assert.deepEqual([ran.stdout, ran.stderr, ran.exitCode], ['out\nhere-always\n', 'err\n', 0])
    await assert.rejects(sandbox.commands.run('exit 3'), (error) => {
        assert.ok(error instanceof CommandExitError)
        return error.exitCode === 3
    })
    const cwd = await sandbox.commands.run('basename $PWD', { cwd: '/home/user/dir' })
    assert.equal(cwd.stdout, 'dir\n')
    const streamed = []
    await sandbox.commands.run('for n in 1 2 3; do echo $n; sleep 0.1; done', { onStdout: (text) => streamed.push(text) })
    assert.equal(streamed.join(''), '1\n2\n3\n')
    await assert.rejects(sandbox.commands.run('sleep 30', { timeoutMs: 1000 }), TimeoutError)
    const process = await sandbox.commands.run('read a; echo got $a; cat', { background: true, stdin: true })
    assert.ok((await sandbox.commands.list()).some((one) => one.pid === process.pid))
    const again = await sandbox.commands.connect(process.pid)
    await sandbox.commands.sendStdin(process.pid, 'one\nrest')
    await sandbox.commands.closeStdin(process.pid)
    assert.equal((await process.wait()).stdout, 'got one\nrest')
    assert.equal((await again.wait()).stdout, 'got one\nrest')
    const killed = await sandbox.commands.run('sleep 60', { background: true })
    assert.equal(await sandbox.commands.kill(killed.pid), true)
    await assert.rejects(killed.wait(), CommandExitError)
    assert.equal(await sandbox.commands.kill(killed.pid), false)
    let shown = ''
    const text = new TextDecoder()
    const shell = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => (shown += text.decode(data)) })
    await sandbox.pty.resize(shell.pid, { cols: 100, rows: 50 })
    await sandbox.pty.sendInput(shell.pid, new TextEncoder().encode('sleep 0.3; stty size; exit\n'))
    await shell.wait()
    assert.match(shown, /50 100\r\n/)
    console.log('  commands: output, exit codes, envs, cwd, streams, limits, background, stdin, kill, connect, terminal')
}

async function lifetimes(sandbox) {
    assert.equal(await sandbox.isRunning(), true)
    assert.deepEqual((await sandbox.getInfo()).metadata, { kind: 'js & more' })
    const found = await Sandbox.list({ query: { metadata: { kind: 'js & more' } } }).nextItems()
    assert.deepEqual(found.map((one) => one.sandboxId), [sandbox.sandboxId])
    await sandbox.files.write('state', 'shared')
    const forks = await sandbox.fork({ count: 5 })
    await Promise.all(forks.map((fork, n) => fork.files.write('state', `${n}`)))
    assert.deepEqual(await Promise.all(forks.map((fork) => fork.files.read('state'))), ['0', '1', '2', '3', '4'])
    assert.equal(await sandbox.files.read('state'), 'shared')
    const snapshot = await sandbox.createSnapshot()
    const listed = await Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }).nextItems()
    assert.deepEqual(listed.map((one) => one.snapshotId), [snapshot.snapshotId])
    const begun = await Sandbox.create(snapshot.snapshotId)
    assert.equal(await begun.files.read('state'), 'shared')
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
    await sandbox.pause()
    const same = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await same.files.read('state'), 'shared')
    await forks[0].setTimeout(1000)
    await eventually(async () => !(await forks[0].isRunning()), 'its time is over')
    await Promise.all([...forks.slice(1), begun].map((one) => one.kill()))
    assert.equal(await begun.isRunning(), false)
    await assert.rejects(Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }), AuthenticationError)
    console.log('  info, list, fork(count=5), snapshots, pause, connect, setTimeout, kill, a wrong key')
}

console.log(`e2b for JavaScript on ${backend}`)
const sandbox = await Sandbox.create({ timeoutMs: 600_000, metadata: { kind: 'js & more' }, envs: { ALWAYS: 'always' } })
try {
    await files(sandbox)
    if (backend !== 'memory') await commands(sandbox)
    await lifetimes(sandbox)
} finally {
    await sandbox.kill()
}
