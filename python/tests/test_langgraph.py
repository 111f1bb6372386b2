"""The checkpointer: LangGraph's conformance suite, and files that go along."""

from __future__ import annotations

import operator
import uuid
from typing import Annotated, TypedDict

import foldspace.sync
from foldspace.langgraph import POSITION, FoldspaceSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks
from langgraph.graph import END, START, StateGraph


async def test_conformance_suite_passes(sync_client: foldspace.sync.Client) -> None:
    @checkpointer_test(name="foldspace")
    async def saver():
        yield FoldspaceSaver(sync_client, name=f"checkpoints-{uuid.uuid4().hex}")

    report = await validate(saver, progress=ProgressCallbacks.quiet())
    report.print_report()
    assert report.passed_all()
    assert report.conformance_level() == "FULL"


class State(TypedDict):
    lines: Annotated[list[str], operator.add]


def graph(session: foldspace.sync.Session, saver: FoldspaceSaver):
    def write(name: str):
        def node(state: State) -> dict[str, list[str]]:
            session.run(f"echo {name} >> notes.txt", check=True)
            return {"lines": [name]}

        return node

    builder = StateGraph(State)
    builder.add_node("first", write("first"))
    builder.add_node("second", write("second"))
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile(checkpointer=saver)


def test_time_travel_takes_the_files_along(
    sync_client: foldspace.sync.Client, sync_session: foldspace.sync.Session
) -> None:
    saver = FoldspaceSaver(sync_client, sync_session)
    compiled = graph(sync_session, saver)
    config = {"configurable": {"thread_id": "a thread / with: signs"}}
    assert compiled.invoke({"lines": []}, config)["lines"] == ["first", "second"]
    assert sync_session.files.read("notes.txt") == b"first\nsecond\n"
    between = next(each for each in compiled.get_state_history(config) if each.next == ("second",))
    assert between.metadata[POSITION]["session"] == sync_session.id

    other = saver.fork(between.config)
    assert other.files.read("notes.txt") == b"first\n"

    saver.rewind(between.config)
    assert sync_session.files.read("notes.txt") == b"first\n"
    assert compiled.invoke(None, between.config)["lines"] == ["first", "second"]
    assert sync_session.files.read("notes.txt") == b"first\nsecond\n"
