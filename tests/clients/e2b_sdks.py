"""The SDKs of E2B, and what builds on them, against `serve --e2b`: e2b_sdks.py PROGRAM MODULES

On the host, and in containers where CONTAINER_HOST and FOLDSPACE_IMAGE name an engine and an image.
"""

import os
import subprocess
import sys
from pathlib import Path

from servers import TOKEN, check, serve

HERE = Path(__file__).resolve().parent
# A part takes seconds; a server that hangs would take for ever.
LIMIT = 120


def run(url: str, *command: str) -> None:
    # Some releases take no key that begins otherwise.
    given = {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": f"e2b_{TOKEN}"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    ran = subprocess.run(command, cwd=HERE, env=kept | given, stdin=subprocess.DEVNULL, timeout=LIMIT)
    check(ran.returncode == 0, f"{' '.join(command)} ended with {ran.returncode}")


def main() -> None:
    program, modules = sys.argv[1:]
    backends = ["host"]
    if os.environ.get("CONTAINER_HOST") and os.environ.get("FOLDSPACE_IMAGE"):
        backends.append("container")
    else:
        print("note: no container engine is named; E2B's SDKs are checked on the host alone", flush=True)
    for backend in backends:
        with serve(program, "--backend", backend, listen="--e2b") as server:
            run(server.url, sys.executable, "e2b_sync.py", backend)
            run(server.url, sys.executable, "e2b_async.py", backend)
            run(server.url, "node", "e2b.mjs", modules, backend)
            # It works at /workspace, which only containers have.
            if backend == "container":
                run(server.url, sys.executable, "e2b_agents.py", backend)


main()
