import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { backends, world } from "./world.js";

/** Sends back all that it has received, after the end of its input. */
const ECHO = `
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("it is", "up", flush=True)
def serve(peer):
    received = peer.makefile("rb").read()
    peer.sendall(received)
    peer.close()
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]]).start()
`;

async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  await new Promise((done) => listener.close(done));
  return port;
}

function open(address) {
  const [host, port] = address.split(":");
  return connect({ host, port: Number(port), allowHalfOpen: true });
}

async function echoed(address, bytes) {
  const socket = open(address);
  socket.end(bytes);
  const pieces = [];
  for await (const piece of socket) pieces.push(piece);
  return Buffer.concat(pieces);
}

const startEcho = (s, port) =>
  s.startService("echo", ["python3", "-c", ECHO, String(port)], { port, prints: "it is up", restart: true });

for (const backend of backends) {
  test(`services run on ${backend}, and their ports are forwarded`, async (t) => {
    const s = await world(t).create({ backend, autoConfirm: true });
    const port = await freePort();
    const process = await startEcho(s, port);
    const slow = await s.startService("slow", "exec sleep $FOR", { env: { FOR: "600" }, prints: "up", after: ["echo"], readySeconds: 0.2 });
    assert.equal((await s.showCall(slow.number)).result.ready, false);
    const listed = (await s.services()).map(({ name, process, running, port, after, restart }) => [name, process, running, port, after, restart]);
    assert.deepEqual(listed, [["echo", process.number, true, port, [], true], ["slow", slow.number, true, null, ["echo"], false]]);
    await assert.rejects(s.startService("other", "echo oops; exit 3", { prints: "up" }), { kind: "refused", message: /oops/ });
    await s.stopService("slow");
    await assert.rejects(s.stopService("slow"), { kind: "not_found" });
    const forwarded = await s.forward(port);
    const pieces = [1, 2, 3, 4, 5].map((n) => Buffer.alloc(1_000_000, n));
    assert.deepEqual(await Promise.all(pieces.map((piece) => echoed(forwarded.address, piece))), pieces);
    await forwarded.close();
    // A rewind ends it, and the next connection starts it again.
    const before = await s.head();
    await s.files.write("a", "x");
    await s.rewind(before);
    assert.deepEqual((await s.services()).map(({ running }) => running), [false]);
    const again = await s.forward(port);
    assert.equal(String(await echoed(again.address, "again")), "again");
    await again[Symbol.asyncDispose]();
    await s.stopService("echo");
    assert.deepEqual(await s.services(), []);
  });
}

test("a forwarded port of a container ends with its connections", { skip: !backends.includes("podman") }, async (t) => {
  const s = await world(t).create({ backend: "podman", autoConfirm: true });
  await startEcho(s, 8000);
  const localPort = await freePort();
  const forwarded = await s.forward(8000, { localPort });
  assert.equal(forwarded.address, `127.0.0.1:${localPort}`);
  await assert.rejects(s.forward(8000, { localPort }), { code: "EADDRINUSE" });
  await s.stopService("echo");
  await assert.rejects(s.forward(8000), { kind: "refused" });
  assert.equal((await echoed(forwarded.address, "lost").catch(() => "")).length, 0);
  await startEcho(s, 8000);
  assert.equal(String(await echoed(forwarded.address, "again")), "again");
  const socket = open(forwarded.address).resume();
  await once(socket, "connect");
  const ended = once(socket, "end");
  await forwarded.close();
  await ended;
  socket.destroy();
  const refused = await once(open(forwarded.address), "connect").catch((error) => error);
  assert.equal(refused.code, "ECONNREFUSED");
  await s.stopService("echo");
});

test("a session without commands has no ports", async (t) => {
  const s = await world(t).create({ backend: "memory" });
  await assert.rejects(s.forward(8000), { kind: "refused", message: /runs no commands/ });
});
