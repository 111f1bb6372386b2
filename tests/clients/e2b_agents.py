"""The sandbox client that openai-agents has for E2B: e2b_agents.py BACKEND, with E2B_* set. No model is asked."""

import asyncio
import io
import os
import sys
from pathlib import Path

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import Manifest
from agents.sandbox.entries import File
from servers import check, leave


async def work(persistence: str) -> None:
    client = E2BSandboxClient()
    options = E2BSandboxClientOptions(
        sandbox_type="e2b", timeout=600, workspace_persistence=persistence, envs={"ALWAYS": "always"}
    )
    manifest = Manifest(root="/workspace", entries={"given.txt": File(content=b"given\n")})
    session = await client.create(manifest=manifest, options=options)
    async with session:
        ran = await session.exec("cat given.txt; echo $ALWAYS; echo err >&2; exit 3")
        check((ran.stdout, ran.stderr, ran.exit_code) == (b"given\nalways\n", b"err\n", 3), f"it ran: {ran}")
        await session.write(Path("made/raw.bin"), io.BytesIO(bytes(range(256))))
        check((await session.read(Path("made/raw.bin"))).read() == bytes(range(256)), "bytes are read back")
        check([entry.path for entry in await session.ls(Path("made"))] != [], "entries are listed")
        check(await session.running(), "it runs")
        shell = await session.pty_exec_start("cat", shell=False, tty=True, yield_time_s=0.5)
        told = await session.pty_write_stdin(session_id=shell.process_id, chars="typed\n", yield_time_s=1)
        check(b"typed" in told.output, f"the terminal showed {told}")
        archive = (await session.persist_workspace()).read()
        check(archive != b"", "a workspace is kept")
        # A tar it would write to /tmp first, which is no part of the workspace.
        if persistence == "snapshot":
            await session.rm(Path("made"), recursive=True)
            await session.hydrate_workspace(io.BytesIO(archive))
            check((await session.read(Path("made/raw.bin"))).read() == bytes(range(256)), "a workspace comes back")
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    await client.delete(session)
    check(state.sandbox_id != "", "a state is kept")
    print(f"  files, commands, a terminal, and a workspace kept as {persistence}")


def main() -> None:
    (backend,) = sys.argv[1:]
    print(f"openai-agents' client for E2B on {backend}", flush=True)
    for persistence in ("tar", "snapshot"):
        asyncio.run(work(persistence))


main()
leave()
