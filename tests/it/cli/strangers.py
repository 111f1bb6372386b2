"""Sends requests to a unix socket, each on a connection of its own: a JSON list on standard input, of [method, path, body].

Prints a JSON list of [status, text]."""

import json
import socket
import sys


def answered(method, path, body):
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(text)}\r\n"
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(60)
        server.connect(sys.argv[1])
        try:
            server.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + text)
        except BrokenPipeError:
            # It has answered.
            pass
        answer = b""
        # A stream has no end.
        while b"text/event-stream" not in answer and (more := server.recv(1 << 16)):
            answer += more
    return [int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2].decode(errors="replace")]


print(json.dumps([answered(*request) for request in json.load(sys.stdin)]))
