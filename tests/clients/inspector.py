"""The official inspector, in its command-line mode, lists and calls every tool: inspector.py stdio|http PROGRAM MODULES"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from calls import ON_HOST, Offer, arguments, offers, wrong
from servers import WAIT_LIMIT, Wrong, check, directory, environment, serve

# Nobody can be asked through it. Each call is a client of its own, and over stdio has a server of its own.
OPTIONS = ["--yes", "--session", "inspected"]
# Ends of the inspector that are its own word on what it saw.
IS_ERROR = 5


class Inspector:
    """The inspector, and how it reaches the server."""

    def __init__(self, modules: Path, home: Path, reach: list[str]) -> None:
        launcher = modules / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        self.command = ["node", str(launcher), "--cli", "--format", "json", "--quiet"]
        self.home = home
        self.reach = reach

    def run(self, *options: str) -> tuple[int, dict]:
        """Its exit status, and what it printed."""
        command = [*self.command, *options, *self.reach]
        ran = subprocess.run(
            command, env=os.environ | {"HOME": str(self.home)}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=2 * WAIT_LIMIT,
        )  # fmt: skip
        try:
            return ran.returncode, json.loads(ran.stdout)["result"]
        except (ValueError, KeyError):
            said = f"{ran.stdout}{ran.stderr}"
            raise Wrong(f"{' '.join(command)} ended with {ran.returncode}:\n{said}") from None

    def get(self, *options: str) -> dict:
        """What it printed of a success."""
        status, result = self.run(*options)
        check(status == 0, f"the inspector ended with {status} for {options}: {str(result)[:2000]}")
        return result


def every_tool(inspector: Inspector, offer: Offer) -> None:
    """Lists the tools, their schemas held against what other clients can read, and calls each."""
    names = {tool["name"] for tool in inspector.get("--method", "tools/list", "--strict")["tools"]}
    check(names == offer.names(), f"offered are {sorted(names)}, and calls.py has others")
    results = {}
    for call in offer.calls:
        params = json.dumps(arguments(call, results))
        result = inspector.get("--method", "tools/call", "--tool-name", call.tool, "--tool-args-json", params)
        results[call.tool] = result["structuredContent"]
        trouble = wrong(call, results[call.tool])
        check(trouble is None, f"{call.tool} {params}: {trouble}")
    print(f"  {len(names)} tools listed, {len(offer.calls)} calls", flush=True)


def a_failure(inspector: Inspector) -> None:
    """It tells a call that failed from one that did not."""
    arguments = json.dumps({"file_path": "no/such"})
    status, _ = inspector.run("--method", "tools/call", "--tool-name", "read_file", "--tool-args-json", arguments)
    check(status == IS_ERROR, f"a failed call ended with {status}")


def everything_else(inspector: Inspector) -> None:
    """Resources, their templates and prompts."""
    counts = []
    for method, field in [("resources", "resources"), ("resources/templates", "resourceTemplates"), ("prompts",) * 2]:
        found = inspector.get("--method", f"{method}/list")[field]
        check(bool(found), f"{method}/list gives nothing")
        counts.append(f"{len(found)} {field}")
    print(f"  {', '.join(counts)} listed", flush=True)


def inspect(modules: Path, transport: str, offer: Offer, home: Path, reach: list[str]) -> None:
    """All of it."""
    print(f"the inspector over {transport}, {' '.join(offer.options)}", flush=True)
    inspector = Inspector(modules, home, reach)
    every_tool(inspector, offer)
    if offer is ON_HOST:
        a_failure(inspector)
        everything_else(inspector)


def main() -> None:
    transport, program, modules = sys.argv[1:]
    for offer in offers():
        options = [*offer.options, *OPTIONS]
        with directory() as home, contextlib.ExitStack() as stack:
            # It gives a server almost nothing of its environment.
            variables = [f"{name}={value}" for name, value in environment(home / "data").items()]
            reach = ["--", "env", *variables, program, "mcp", *options]
            if transport == "http":
                server = stack.enter_context(serve(program, *options))
                header = f"Authorization: Bearer {server.token}"
                reach = ["--transport", "http", "--server-url", server.mcp, "--header", header]
            inspect(Path(modules), transport, offer, home, reach)


main()
