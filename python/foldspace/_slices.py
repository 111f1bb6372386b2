"""Slices of your own with a type."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ._session import Session

T = TypeVar("T")


class TypedSlice(Generic[T]):
    """A declared slice whose events and values have a type; ``Session.slice`` makes it."""

    def __init__(self, session: Session, item: type[T], name: str, rule: dict[str, Any], merge: Any) -> None:
        self._session, self._item, self._rule, self._merge = session, item, rule, merge
        self._is_declared = False
        self._name = name

    @property
    def name(self) -> str:
        """The name of the slice."""
        return self._name

    def __call__(self, *args: Any, **fields: Any) -> T:
        """Makes an item, as the class does."""
        return self._item(*args, **fields)

    async def declare(self) -> None:
        """Declares the slice, unless that is done."""
        if not self._is_declared:
            await self._session.declare(self._name, self._rule, merge=self._merge)
            self._is_declared = True

    async def emit(self, item: T | None = None, /, **fields: Any) -> int:
        """Records an item, or one with these fields, and returns the position of its event."""
        await self.declare()
        return await self._session.emit(self._rule["kinds"][0], to_json(self._item(**fields) if item is None else item))

    async def get(self, at: Any = None) -> Any:
        """Returns the value: a list of items, a dict of items by their keys, or the latest item (None without one)."""
        await self.declare()
        source = self._session if at is None else self._session.at(at)
        value = await source.state(self._name)
        if self._rule["fold"] == "append":
            return [of_json(self._item, each) for each in value]
        if self._rule["fold"] == "latest_by":
            return {key: of_json(self._item, each) for key, each in value.items()}
        return None if value is None else of_json(self._item, value)


def to_json(item: Any) -> Any:
    """Returns an item as JSON."""
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return dataclasses.asdict(item)
    dump = getattr(item, "model_dump", None)
    if dump:
        return dump(mode="json")
    return vars(item) if hasattr(item, "__dict__") else item


def of_json(item: type[T], value: Any) -> T:
    """Returns the item of a JSON value."""
    validate = getattr(item, "model_validate", None)
    made: T = validate(value) if validate else item(**value) if isinstance(value, dict) else value
    return made
