"""schemathesis makes requests by the OpenAPI description of the HTTP API, and finds no fault: api.py PROGRAM

Most of the sessions, tools, slices and so on that it names are there, so that its requests get further than a 404.
It makes the same requests in each run.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import requests
from servers import WAIT_LIMIT, Server, Wrong, check, directory, serve

# Requests for each operation by chance, beside those for each limit and each wrong type.
EXAMPLES = 20
# It takes a minute; a server that hangs would take for ever.
LIMIT = 140
CHECKS = [
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "response_headers_conformance", "ignored_auth", "unsupported_method",
]  # fmt: skip
STREAM = "/v1/sessions/{session}/events/stream"
# They would wait for what never comes, or begin a thousand sessions with each request.
LONG = (STREAM, "/v1/sessions/{session}/watch", "/v1/sessions/{session}/forks")
# Where names come from: of a field, or of the description's parameter.
NAMES = {
    "path.session": "sessions", "path.call": "calls", "path.path": "files", "path.slice": "slices",
    "query.at": "positions", "query.from": "positions", "query.to": "positions", "query.path": "files",
    "body.tool": "tools", "body.child": "children", "body.to": "positions",
}  # fmt: skip


def fill(server: Server) -> dict[str, list]:
    """Makes sessions with something in them, and tells what there is to ask for."""
    http = requests.Session()
    http.headers["Authorization"] = f"Bearer {server.token}"

    def post(path: str, body: dict) -> dict:
        answer = http.post(f"{server.url}/v1/sessions{path}", json=body, timeout=WAIT_LIMIT)
        check(answer.ok, f"POST {path} {body} gave {answer.status_code} {answer.text}")
        return answer.json()

    there = {
        "sessions": ["first", "second"], "spare": [f"spare-{number}" for number in range(50)],
        "files": ["a.txt", "b/c.txt"], "slices": ["VirtualFileSystem", "ToolCalls", "Usage"],
        "positions": [*range(8), "-1", "0s", "10m", "2020-01-01"], "calls": [], "children": ["first-1"],
    }  # fmt: skip
    for name in there["sessions"] + there["spare"]:
        post("", {"name": name})
    for name in there["sessions"]:
        for file in there["files"]:
            params = {"file_path": file, "content": f"{name}\n"}
            there["calls"].append(post(f"/{name}/calls", {"tool": "write_file", "params": params})["call"])
    post("/first/children", {"name": "first-1"})
    there["tools"] = [tool["name"] for tool in http.get(f"{server.url}/v1/tools", timeout=WAIT_LIMIT).json()]
    return there


def config(there: dict[str, list]) -> str:
    """The configuration of schemathesis, in which JSON texts are TOML as well."""
    lines = [
        "seed = 5", f"request-timeout = {WAIT_LIMIT}", "continue-on-failure = true",
        "[generation]", "deterministic = true", 'database = "none"', f"max-examples = {EXAMPLES}",
        "[dictionaries]", *(f"{name}.values = {json.dumps(values)}" for name, values in there.items()),
        "[parameters]",
        *(f'"{place}" = {{ dictionary = "{name}", probability = 0.8 }}' for place, name in NAMES.items()),
        "# What is removed is nothing that is asked for.",
        "[[operations]]", 'include-path = "/v1/sessions/{session}"', 'include-method = "DELETE"',
        'parameters = { "path.session" = { dictionary = "spare", probability = 0.8 } }',
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def stream(server: Server) -> None:
    """Follows events, goes away, and comes again: nothing is missed."""
    url = f"{server.url}{STREAM.format(session='first')}"
    seen: list[int] = []
    for _ in range(3):
        headers = {"Authorization": f"Bearer {server.token}"}
        if seen:
            headers["Last-Event-ID"] = str(seen[-1])
        with requests.get(url, headers=headers, stream=True, timeout=WAIT_LIMIT) as answer:
            check(answer.headers["content-type"].startswith("text/event-stream"), f"the stream is {answer.headers}")
            ids = (int(line[3:]) for line in answer.iter_lines(decode_unicode=True) if line.startswith("id:"))
            seen += [next(ids), next(ids)]
    check(seen == [1, 2, 3, 4, 5, 6], f"streamed were {seen}")
    print("  a stream of events that was left twice had them all")


def generate(server: Server, place: Path, phases: str, *excluded: str) -> int:
    """Makes requests; how many there were."""
    command = [
        "schemathesis", "--config-file", "schemathesis.toml", "run", f"{server.url}/openapi.json", "--no-color",
        "--phases", phases, "--checks", ",".join(CHECKS), "--header", f"Authorization: Bearer {server.token}",
        *(word for path in excluded for word in ("--exclude-path", path)),
    ]  # fmt: skip
    try:
        ran = subprocess.run(
            command, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=LIMIT,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace")
        raise Wrong(f"it did not end within {LIMIT} s:\n{said[-4000:]}") from None
    # What was wrong comes at the end, with the request that shows it.
    check(ran.returncode == 0, f"it ended with {ran.returncode}:\n{ran.stdout[-20000:]}")
    (count,) = re.findall(r"([0-9]+) generated", ran.stdout)
    return int(count)


def main() -> None:
    (program,) = sys.argv[1:]
    print("schemathesis over http", flush=True)
    with serve(program) as server, directory() as place:
        (place / "schemathesis.toml").write_text(config(fill(server)))
        stream(server)
        single = generate(server, place, "coverage,fuzzing", *LONG)
        # It would take tools for something of a session's.
        chained = generate(server, place, "stateful", *LONG, "/v1/tools")
    print(f"  {single} requests, and {chained} that follow from others: no fault")


main()
