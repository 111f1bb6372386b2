"""The calls that clients make: each tool at least once, in an order in which each can succeed."""

import os
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A call, what its structured result has to hold, and what a person who is asked answers."""

    tool: str
    arguments: dict[str, Any]
    holds: dict[str, Any] = field(default_factory=dict)
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offer:
    """What a server offers, by its options, and the calls of all that."""

    options: list[str]
    calls: list[Call]

    def names(self) -> set[str]:
        return {call.tool for call in self.calls}


# Stands for the number of the process that `process_start` started.
STARTED = "the started process"


CALLS = [
    Call("write_file", {"file_path": "notes/list.txt", "content": "alpha\nbeta\ngamma\n"}),
    Call("read_file", {"file_path": "notes/list.txt"}, {"content": "alpha\nbeta\ngamma\n", "total_lines": 3}),
    Call("edit_file", {"file_path": "notes/list.txt", "old_string": "beta", "new_string": "delta"}),
    Call("ls", {"path": "/notes"}),
    Call("glob", {"pattern": "**/*.txt"}),
    Call("grep", {"pattern": "^d", "path": "/"}),
    Call("shell_execute", {"command": "cat notes/list.txt"}, {"exit_code": 0, "stdout": "alpha\ndelta\ngamma\n"}, ("once",)),
    Call("execute_script", {"script": "cd notes\ncat list.txt\n"}, {"exit_code": 0, "stdout": "alpha\ndelta\ngamma\n"}, ("once",)),
    Call("process_start", {"command": ["cat"], "input": True}, {}, ("once",)),
    Call("process_write", {"process": STARTED, "text": "hello\n"}, {"bytes": 6, "closed": False}),
    Call("process_read", {"process": STARTED, "wait_seconds": 60}, {"stdout": "hello\n", "next": 6, "left": 0}),
    Call("process_list", {}),
    Call("process_signal", {"process": STARTED, "signal": "TERM"}, {"signal": 15}),
    Call("process_read", {"process": STARTED, "from": 6, "wait_seconds": 60, "until_end": True}, {"stdout": ""}),
    Call("which", {"program": "nosuch-program"}, {"path": None}),
    Call("env", {}, {"shell": "/bin/sh"}),
    Call("evaluate_python", {"code": "print(6 * 7)"}, {"stdout": "42\n"}),
    Call("session_log", {"limit": 5}),
    Call("session_state", {"slice": "VirtualFileSystem", "pointer": "/notes~1list.txt"}),
    Call("session_emit", {"kind": "note.made", "data": {"lines": 3}}),
    Call("sql", {"query": "SELECT count(*) FROM \"note.made\" WHERE lines = 3"}, {"rows": [[1]], "truncated": False}),
    Call("session_diff", {"path": "notes"}),
    Call("session_bisect", {"command": "! grep delta notes/list.txt"}),
    Call("session_bisect", {"slice": "count(VirtualFileSystem) > 0"}),
    Call("session_cancel", {}),
    Call("session_clone", {"name": "clone"}, {"name": "clone"}),
    Call("session_merge", {"child": "clone"}),
    Call("dispatch_subagents", {"children": [{"name": "sub", "calls": [{"tool": "ls"}]}]}),
    Call("rm", {"path": "notes"}),
    # Before the call, what it deleted, and its end.
    Call("session_rewind", {"to": -3}),
    Call("read_file", {"file_path": "notes/list.txt"}, {"content": "alpha\ndelta\ngamma\n"}),
    # The rewind took the deletion back, so the edit is the latest call that is not undone.
    Call("session_undo", {}, {"left": [], "redoes": False}),
    Call("read_file", {"file_path": "notes/list.txt"}, {"content": "alpha\nbeta\ngamma\n"}),
]

CONTAINER_CALLS = [
    Call("podman_shell", {"action": "start"}, {"exit_code": None, "timed_out": False}),
    Call("podman_shell", {"action": "exec", "command": "id -u"}, {"stdout": "65534\n"}, ("once",)),
    Call("podman_shell", {"action": "stop"}),
]

ON_HOST = Offer(["--backend", "host", "--tools", "files,shell,python,sessions", "--allow", "grep"], CALLS)
IN_CONTAINER = Offer(["--backend", "podman", "--tools", "podman_shell"], CONTAINER_CALLS)


def offers() -> list[Offer]:
    """What can be offered on this machine."""
    if "CONTAINER_HOST" in os.environ:
        return [ON_HOST, IN_CONTAINER]
    print("note: no container engine; podman_shell is not called")
    return [ON_HOST]


def arguments(call: Call, results: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call after others, with their latest results by tool."""
    started = results.get("process_start", {}).get("process")
    return {name: started if value == STARTED else value for name, value in call.arguments.items()}


def wrong(call: Call, result: dict[str, Any]) -> str | None:
    """What of a result is not as it should be."""
    for name, value in call.holds.items():
        if result.get(name) != value:
            return f"{name} is {result.get(name)!r} and not {value!r}"
    return None
