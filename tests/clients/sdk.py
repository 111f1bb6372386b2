"""A whole session by the official Python SDK: sdk.py stdio|http PROGRAM

Once by the newest version of the protocol, once by the newest that begins with `initialize`.
"""

import asyncio
import contextlib
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import jsonschema
from calls import ON_HOST, Offer, arguments, offers, wrong
from mcp import Client, MCPDeprecationWarning, MCPError, StdioServerParameters, UriTemplate, types
from mcp.client.streamable_http import streamable_http_client
from mcp.types import version
from servers import WAIT_LIMIT, Wrong, check, directory, environment, serve

MODES = {version.LATEST_MODERN_VERSION: "auto", version.LATEST_HANDSHAKE_VERSION: "legacy"}


@dataclass
class Talk:
    """A client, who is behind it, and what the server told it unasked."""

    scratch: Path
    offer: Offer
    client: Client = field(init=False)
    answers: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    updated: set[str] = field(default_factory=set)

    async def answer(self, _context, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answers a question whether a command may run."""
        self.questions.append(params.message)
        schema = params.requested_schema
        jsonschema.Draft202012Validator.check_schema(schema)
        check(bool(self.answers), f"nobody expected to be asked: {params.message}")
        answer = self.answers.pop(0)
        if answer in ("decline", "cancel"):
            return types.ElicitResult(action=answer)
        jsonschema.validate({"answer": answer}, schema)
        return types.ElicitResult(action="accept", content={"answer": answer})

    async def hear(self, message: object) -> None:
        """Takes a notification."""
        if isinstance(message, Exception):
            raise Wrong(f"the SDK could not read what it got: {message!r}")
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updated.add(str(message.params.uri))

    async def call(self, tool: str, arguments: dict, *answers: str, **options) -> types.CallToolResult:
        """Calls a tool; whoever is asked gives these answers."""
        self.answers = list(answers)
        return await asyncio.wait_for(self.client.call_tool(tool, arguments, **options), WAIT_LIMIT)

    async def run(self, command: str, *answers: str, **options) -> types.CallToolResult:
        """Runs a command."""
        return await self.call("shell_execute", {"command": command, "timeout_seconds": 100}, *answers, **options)


async def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until something holds."""
    end = time.monotonic() + WAIT_LIMIT
    while not holds():
        check(time.monotonic() < end, f"waited {WAIT_LIMIT} s until {what}")
        await asyncio.sleep(0.02)


def text(result: types.CallToolResult) -> str:
    """What a model reads of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def tools_listed(talk: Talk) -> dict[str, types.Tool]:
    """Every tool is described as a model needs it."""
    found = (await talk.client.list_tools()).tools
    for tool in found:
        check(bool(tool.description) and tool.annotations is not None, f"{tool.name} is not described")
        for schema in (tool.input_schema, tool.output_schema):
            check(schema is not None and schema.get("type") == "object", f"a schema of {tool.name} is no object's")
            jsonschema.Draft202012Validator.check_schema(schema)
    return {tool.name: tool for tool in found}


async def every_tool(talk: Talk) -> None:
    """Each gives what its output schema says, and what is to be there."""
    known = await tools_listed(talk)
    check(known.keys() == talk.offer.names(), f"offered are {sorted(known)}, and calls.py has others")
    results = {}
    for call in talk.offer.calls:
        params = arguments(call, results)
        jsonschema.validate(params, known[call.tool].input_schema)
        result = await talk.call(call.tool, params, *call.answers)
        check(not result.is_error and bool(text(result)), f"{call.tool} {params} gave {text(result)!r}")
        results[call.tool] = result.structured_content
        jsonschema.validate(result.structured_content, known[call.tool].output_schema)
        trouble = wrong(call, result.structured_content)
        check(trouble is None, f"{call.tool} {params}: {trouble}")
    print(f"  {len(known)} tools listed, {len(talk.offer.calls)} calls, all results fit their schemas")


async def failures(talk: Talk) -> None:
    """What is wrong with a call is told, and the connection goes on."""
    missing = await talk.call("read_file", {"file_path": "no/such"})
    check(missing.is_error is True and "no/such" in text(missing), f"a missing file: {missing}")
    wanted = [("read_file", {}), ("read_file", {"file_path": 7}), ("ls", {"path": "/", "more": 1}), ("no_tool", {})]
    for tool, arguments in wanted:
        try:
            result = await talk.call(tool, arguments)
            check(result.is_error is True and bool(text(result)), f"{tool} took {arguments}")
        except MCPError as error:
            check(error.code == types.INVALID_PARAMS, f"{tool} {arguments}: {error}")
    print("  failures are told")


async def progress(talk: Talk) -> None:
    """What a command prints comes while it runs: it ends only after its first line was heard of."""
    gate = talk.scratch / "gate"
    said: list[str] = []
    reached: list[float] = []

    async def hear(progress: float, _total: float | None, message: str | None) -> None:
        reached.append(progress)
        said.append(message or "")
        if "first" in "".join(said):
            gate.touch()

    command = f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo second"
    result = await talk.run(command, "once", progress_callback=hear)
    gate.unlink()
    check(not result.is_error, f"the command failed: {text(result)}")
    check("".join(said) == "first\nsecond\n", f"progress said {said}")
    check(reached == sorted(set(reached)), f"progress does not rise: {reached}")
    print(f"  {len(said)} progress notifications of what a command printed")


async def cancellation(talk: Talk) -> None:
    """A command whose call is taken back is killed, and the session goes on."""
    noted = talk.scratch / "pid"
    running = asyncio.create_task(talk.run(f"echo $$ >{noted}.new; mv {noted}.new {noted}; sleep 1000", "once"))
    await until(lambda: noted.exists() or running.done(), "the command runs")
    check(not running.done(), f"the command ended by itself: {running}")
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    process = Path("/proc") / noted.read_text().strip()
    await until(lambda: not process.exists(), "the command is dead")
    noted.unlink()
    after = await talk.run("echo alive", "once")
    check(after.structured_content["stdout"] == "alive\n", f"after it: {after}")
    print("  a cancelled command was killed")


async def questions(talk: Talk) -> None:
    """A person is asked, and each answer does what it says."""
    for refusal in ("deny", "decline", "cancel"):
        result = await talk.run("touch refused", refusal)
        check(result.is_error is True and bool(text(result)), f"{refusal}: {result}")
    asked = len(talk.questions)
    for answers in (["once"], ["once"], ["session"], [], []):
        result = await talk.run("touch allowed", *answers)
        check(not result.is_error and not talk.answers, f"{answers}: {result}, left are {talk.answers}")
    check(len(talk.questions) == asked + 3, f"asked were {talk.questions[asked:]}")
    check("touch allowed" in talk.questions[-1], f"asked was {talk.questions[-1]}")
    found = await talk.call("glob", {"pattern": "*e*d"})
    check("allowed" in text(found) and "refused" not in text(found), f"there is {text(found)}")
    print(f"  {len(talk.questions)} questions to a person, answered")


async def read(talk: Talk, uri: str) -> str:
    """A resource's text."""
    (contents,) = (await talk.client.read_resource(uri)).contents
    check(isinstance(contents, types.TextResourceContents), f"{uri} is no text")
    return contents.text


async def resources(talk: Talk) -> None:
    """Everything that is listed can be read, a file at any position, and completion finds it."""
    for content in ("one\n", "two\n"):
        await talk.run(f"printf '{content}' >'watched file.txt'", "once")
    listed = (await talk.client.list_resources()).resources
    for resource in listed:
        await talk.client.read_resource(resource.uri)
    (uri,) = [resource.uri for resource in listed if resource.name == "watched file.txt"]
    check(await read(talk, uri) == "two\n", f"{uri} has other text")
    templates = (await talk.client.list_resource_templates()).resource_templates
    (files,) = [template.uri_template for template in templates if "path" in template.uri_template]
    name = UriTemplate.parse(files).match(uri)["session"]
    place = {"session": name, "path": "watched file.txt"}
    check(UriTemplate.parse(files).expand(place) == uri, f"{files} does not give {uri}")
    back = 0
    while (past := await read(talk, UriTemplate.parse(files).expand(place | {"at": f"-{back}"}))) == "two\n":
        back += 1
    check(back > 0 and past == "one\n", f"{back} events ago the text was {past!r}")
    ref = types.ResourceTemplateReference(uri=files)
    found = await talk.client.complete(ref, {"name": "path", "value": "watch"}, {"session": name})
    check(found.completion.values == ["watched file.txt"], f"completion gives {found.completion.values}")
    print(f"  {len(listed)} resources read, {len(templates)} templates")
    await subscription(talk, uri)


async def subscription(talk: Talk, uri: str) -> None:
    """Whoever subscribed to a resource is told when it changes."""
    command = "echo changed >>'watched file.txt'"
    if talk.client.protocol_version in version.MODERN_PROTOCOL_VERSIONS:
        async with talk.client.listen(resource_subscriptions=[uri]) as changes:
            await talk.run(command, "once")
            event = await asyncio.wait_for(anext(changes), WAIT_LIMIT)
            check(event.uri == uri, f"told was {event}")
    else:
        await talk.client.subscribe_resource(uri)
        await talk.run(command, "once")
        await until(lambda: uri in talk.updated, f"{uri} is said to have changed")
        await talk.client.unsubscribe_resource(uri)
    print("  a change was told to who had subscribed")


async def prompts(talk: Talk) -> None:
    """The workspace is described for a model."""
    listed = (await talk.client.list_prompts()).prompts
    check(bool(listed), "there is no prompt")
    for prompt in listed:
        found = await talk.client.get_prompt(prompt.name)
        said = "".join(m.content.text for m in found.messages if isinstance(m.content, types.TextContent))
        check(len(said) > 100 and "read_file" in said, f"prompt {prompt.name} says {said!r}")
    print(f"  {len(listed)} prompt read")


ALL = [every_tool, failures, progress, cancellation, questions, resources, prompts]


@contextlib.asynccontextmanager
async def over_stdio(program: str, offer: Offer, scratch: Path) -> AsyncIterator[StdioServerParameters]:
    """A server of the client's own."""
    yield StdioServerParameters(command=program, args=["mcp", *offer.options], env=environment(scratch / "data"))


@contextlib.asynccontextmanager
async def over_http(program: str, offer: Offer, _scratch: Path):
    """A server that runs already."""
    with serve(program, *offer.options) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(WAIT_LIMIT)) as http:
            yield streamable_http_client(server.mcp, http_client=http)


async def session(transport: str, program: str, offer: Offer, wanted: str) -> None:
    """All of it, over one connection."""
    way = {"stdio": over_stdio, "http": over_http}[transport]
    with directory() as scratch:
        talk = Talk(scratch, offer)
        async with way(program, offer, scratch) as server:
            connected = Client(
                server, mode=MODES[wanted], elicitation_callback=talk.answer, message_handler=talk.hear,
                read_timeout_seconds=WAIT_LIMIT, cache=None,
            )  # fmt: skip
            async with connected as talk.client:
                got = talk.client.protocol_version
                check(got == wanted, f"version {wanted} was wanted, and it is {got}")
                print(f"the Python SDK over {transport}, protocol of {got}, {' '.join(offer.options)}", flush=True)
                for step in ALL if offer is ON_HOST else [every_tool]:
                    await step(talk)


def first(group: BaseExceptionGroup) -> BaseException:
    error = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main() -> None:
    transport, program = sys.argv[1:]
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    for offer in offers():
        for wanted in MODES:
            try:
                asyncio.run(session(transport, program, offer, wanted))
            except* Wrong as group:
                # The first one; those around it are of tasks that ended with it.
                raise first(group) from None


main()
