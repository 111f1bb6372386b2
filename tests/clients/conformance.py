"""The official conformance suite against the server over HTTP: conformance.py PROGRAM NODE_MODULES

What can't be passed is in conformance.yml, with the reason. A scenario in it that passes is a failure, too.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from servers import TOKEN, check, directory, serve

OPTIONS = ["--backend", "memory", "--tools", "files,shell,python,sessions"]
HERE = Path(__file__).parent
# The suite gives up on a server by itself; this is for a suite that hangs.
LIMIT = 170


def main() -> None:
    program, modules = sys.argv[1:]
    suite = Path(modules) / "@modelcontextprotocol/conformance/dist/index.js"
    with serve(program, *OPTIONS) as server, directory() as results:
        command = [
            "node", "--import", str(HERE / "token.mjs"), str(suite), "server", "--url", server.mcp, "--suite", "all",
            "--expected-failures", str(HERE / "conformance.yml"), "--output-dir", str(results),
        ]  # fmt: skip
        env = os.environ | {"CLIENTS_TOKEN": TOKEN}
        print("the conformance suite over http", flush=True)
        ran = subprocess.run(
            command, env=env, cwd=Path(modules).parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=LIMIT,
        )  # fmt: skip
        check(ran.returncode == 0, f"the suite ended with {ran.returncode}:\n{ran.stdout}")
    summary = ran.stdout[ran.stdout.index("=== SUMMARY ===") :]
    passed, failed = (len(re.findall(f"^{mark} ", summary, re.MULTILINE)) for mark in "✓✗")
    check(passed > 0, f"the suite ran nothing:\n{ran.stdout}")
    print(f"  {passed} scenarios passed, {failed} failed as conformance.yml says")


main()
