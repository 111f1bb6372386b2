"""Events and slices of your own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import foldspace
import foldspace.sync
import pytest
from foldspace import Session

PLAN = {"kinds": ["plan.step"], "fold": "latest_by", "key": "/id"}


@dataclass
class Note:
    text: str
    weight: float = 1.0


async def test_own_events_are_folded_at_every_position(session: Session) -> None:
    first = await session.emit("plan.step", {"id": 1, "status": "open"})
    declared = await session.declare("Plan", PLAN)
    assert (declared["version"], declared["value"]) == (1, {"1": {"id": 1, "status": "open"}})
    assert (await session.declare("Plan", PLAN))["since"] == declared["since"]
    begun, last = await session.emit_all([("plan.step", {"id": 1, "status": "done"}), ("plan.step", {"id": 2})])
    assert last == begun + 1 == declared["since"] + 2
    assert await session.state("Plan", pointer="/1/status") == "done"
    assert await session.at(declared["since"]).state("Plan", pointer="/1/status") == "open"
    assert [event["kind"] for event in await session.log(first)] == ["plan.step", "SliceDeclared", "plan.step", "plan.step"]
    assert [slice["name"] for slice in await session.declared()] == ["Plan"]
    await session.undeclare("Plan")
    with pytest.raises(foldspace.NotFoundError):
        await session.state("Plan")


async def test_own_events_that_are_wrong_record_nothing(session: Session) -> None:
    head = len(await session.log())
    for kind, data in [("WriteFile", {}), ("", {}), ("big", {str(n): n for n in range(200_000)})]:
        with pytest.raises(foldspace.UnusableError):
            await session.emit(kind, data)
    with pytest.raises(foldspace.NotFoundError):
        await session.emit("of.call", call=1)
    with pytest.raises(foldspace.UnusableError):
        await session.declare("Usage", PLAN)
    assert len(await session.log()) == head
    twice = {"call_id": "step 1"}
    assert await session.emit("once", 1, **twice) == await session.emit("once", 1, **twice) == head + 1


async def test_slice_has_the_type_of_its_class(session: Session) -> None:
    notes = session.slice(fold="append", max=2)(Note)
    for weight in (1.0, 2.0, 3.0):
        await notes.emit(text="a", weight=weight)
    assert await notes.get() == [Note("a", 2.0), Note("a", 3.0)]
    latest = session.slice(fold="latest", kind="own.Note", name="LatestNote")(Note)
    assert await latest.get() == Note("a", 3.0)
    (child,) = await session.fork()
    assert await child.state("Note", pointer="/1/weight") == 3.0


async def test_slice_checks_by_its_pydantic_model(session: Session) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Step(pydantic.BaseModel):
        id: int
        at: datetime

    steps = session.slice(fold="latest_by", key="/id")(Step)
    made = Step(id="1", at="2026-01-01T00:00:00Z")
    await steps.emit(made)
    assert await steps.get() == {"1": made}
    with pytest.raises(pydantic.ValidationError):
        await steps.emit(id="one", at=made.at)


def test_slice_of_the_synchronous_client(sync_client: foldspace.sync.Client) -> None:
    session = sync_client.create("own", backend="memory")

    @session.slice(fold="latest_by", key="/text")
    @dataclass
    class Step:
        text: str
        done: bool = False

    Step.emit(Step("a"))
    Step.emit(text="a", done=True)
    assert Step.get() == {"a": Step("a", True)}


async def test_sql_returns_rows_as_dictionaries(client: foldspace.Client, session: Session) -> None:
    await session.emit_all([("plan.step", {"id": n, "status": "open"}) for n in (1, 2)])
    query = f"SELECT id, status FROM \"plan.step\" WHERE session = '{session.name}' ORDER BY id"
    assert await client.sql(query) == [{"id": 1, "status": "open"}, {"id": 2, "status": "open"}]
    assert len(await client.sql(query, limit=1)) == 1
    with pytest.raises(foldspace.UnusableError):
        await client.sql("SELECT nothing")
