"""deepagents: its tools in a sandbox, and its agent with a scripted model."""

from __future__ import annotations

import foldspace.sync
import pytest
from deepagents import create_deep_agent
from foldspace.deepagents import FoldspaceSandbox
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage


@pytest.fixture
def sandbox(sync_session: foldspace.sync.Session) -> FoldspaceSandbox:
    return FoldspaceSandbox(sync_session)


@pytest.fixture
def root(sync_session: foldspace.sync.Session) -> str:
    return sync_session.absolute.root()


def test_execute_gives_output_and_exit_code(sandbox: FoldspaceSandbox) -> None:
    told = sandbox.execute("echo out; echo err >&2; exit 3")
    assert (told.output, told.exit_code, told.truncated) == ("out\nerr\n", 3, False)


def test_execute_ends_at_its_timeout(sandbox: FoldspaceSandbox) -> None:
    told = sandbox.execute("echo begun; sleep 20", timeout=1)
    assert told.exit_code == 124
    assert told.output.startswith("begun\n")


def test_execute_truncates_output(sync_session: foldspace.sync.Session) -> None:
    told = FoldspaceSandbox(sync_session, max_output_bytes=10).execute("seq 100")
    assert told.truncated
    assert told.output == "1\n2\n3\n4\n5\n"


def test_upload_and_download(sandbox: FoldspaceSandbox, root: str) -> None:
    outside = f"/tmp/foldspace-{sandbox.id}"
    files = [(f"{root}/a/b.bin", b"\xff\x00"), (outside, b"tmp\n"), ("relative", b"")]
    assert [each.error for each in sandbox.upload_files(files)] == [None, None, "invalid_path"]
    wanted = [f"{root}/a/b.bin", outside, f"{root}/missing", f"{root}/a", "/nowhere/at/all"]
    answers = sandbox.download_files(wanted)
    assert [each.content for each in answers] == [b"\xff\x00", b"tmp\n", None, None, None]
    assert [each.error for each in answers[2:]] == ["file_not_found", "is_directory", "file_not_found"]
    sandbox.execute(f"rm {outside}")


def test_upload_through_a_link(sandbox: FoldspaceSandbox, root: str) -> None:
    sandbox.execute("mkdir real; ln -s real link; echo old > file; ln -s file to-file")
    sandbox.upload_files([(f"{root}/link/x", b"1"), (f"{root}/to-file", b"new")])
    assert sandbox.session.files.read("real/x") == b"1"
    assert sandbox.session.files.read("file") == b"new"
    assert sandbox.download_files([f"{root}/link/x"])[0].content == b"1"


def test_tools_of_the_base_class(sandbox: FoldspaceSandbox, root: str) -> None:
    assert sandbox.write(f"{root}/src/a.py", "one = 1\ntwo = 2\n").error is None
    assert sandbox.edit(f"{root}/src/a.py", "two = 2", "two = 3").error is None
    assert "two = 3" in str(sandbox.read(f"{root}/src/a.py").file_data)
    assert [each["path"] for each in sandbox.ls(f"{root}/src").entries or []] == [f"{root}/src/a.py"]
    assert [each["line"] for each in sandbox.grep("two", path=root).matches or []] == [2]
    assert [each["path"] for each in sandbox.glob("**/*.py", path=root).matches or []]


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **given):
        return self


def call(name: str, **args) -> AIMessage:
    return AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"}])


def test_agent_works_in_the_session(sandbox: FoldspaceSandbox, root: str) -> None:
    messages = [
        call("write_file", file_path=f"{root}/hello.py", content="print('hello')\n"),
        call("execute", command=f"cd {root} && python3 hello.py"),
        AIMessage(content="done"),
    ]
    agent = create_deep_agent(model=Scripted(messages=iter(messages)), backend=sandbox)
    told = agent.invoke({"messages": [{"role": "user", "content": "say hello"}]})
    outputs = [message.content for message in told["messages"] if message.type == "tool"]
    assert any("hello\n" in output for output in outputs), outputs
    assert sandbox.session.files.read("hello.py") == b"print('hello')\n"
