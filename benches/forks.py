#!/usr/bin/env python3
"""Measures forks in bulk: processor time and memory of the server for each fork, of several programs in turn.

    benches/forks.py PROGRAM... [--files N] [--count N] [--backend memory|host]

Prints, for each program: one request for `count` forks, requests for one fork each at one position, and the first call
in forks. Linux only: the figures come from /proc."""

import argparse
import http.client
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

arguments = argparse.ArgumentParser()
arguments.add_argument("programs", nargs="+")
arguments.add_argument("--files", type=int, default=10_000)
arguments.add_argument("--count", type=int, default=1_000)
arguments.add_argument("--backend", default="memory")
given = arguments.parse_args()


class Server:
    def __init__(self, program, directory):
        environment = {"FOLDSPACE_DATA": str(directory / "data"), "PATH": os.environ["PATH"], "FOLDSPACE_TOKEN": "0" * 32}
        command = [program, "serve", "--http", "127.0.0.1:0", "--allow-root", str(directory)]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        line = next(line for line in self.process.stdout if "127.0.0.1:" in line)
        port = int(line.split("127.0.0.1:")[1].split()[0].rstrip("/,"))
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def post(self, path, **body):
        headers = {"Authorization": "Bearer " + "0" * 32, "Content-Type": "application/json"}
        self.connection.request("POST", path, json.dumps(body), headers)
        answer = self.connection.getresponse()
        read = answer.read()
        assert answer.status < 300, read
        return json.loads(read)

    def use(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        milliseconds = (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
        return milliseconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1024, time.perf_counter() * 1000


def measured(server, what, count, work):
    before = server.use()
    done = work()
    processor, memory, wall = (after - then for after, then in zip(server.use(), before))
    print(f"  {what}: {processor / count:.2f} ms of processor, {memory / count:.1f} KiB, {wall / count:.2f} ms each", flush=True)
    return done


for program in given.programs:
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "source"
        for number in range(given.files):
            (source / f"d{number % 100}").mkdir(parents=True, exist_ok=True)
            (source / f"d{number % 100}/f{number}").write_text(f"line {number}\n" * 5)
        server = Server(program, Path(place))
        print(f"{program}, {given.backend}, {given.files} files", flush=True)
        server.post("/v1/sessions", name="base", backend=given.backend)
        server.post("/v1/sessions/base/mounts", mounts=[{"host_path": str(source)}])
        write = {"tool": "write_file", "params": {"file_path": "new", "content": "x"}}
        server.post("/v1/sessions/base/calls", **write)
        forks = "/v1/sessions/base/forks"
        children = measured(
            server, f"{given.count} forks in one request", given.count, lambda: server.post(forks, count=given.count)
        )["children"]
        some = children[: min(100, given.count)]
        measured(server, "requests for a fork there", 100, lambda: [server.post(forks, at=some[0]["at"]) for _ in range(100)])
        first = lambda: [server.post(f"/v1/sessions/{fork['session']}/calls", **write) for fork in some]  # noqa: E731
        measured(server, "first call in a fork", len(some), first)
        server.process.terminate()
        server.process.wait()
