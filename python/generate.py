"""Writes foldspace/_models.py from the API's description, and foldspace/sync.py from the asyncio client.

    python generate.py            writes both
    python generate.py --check    fails when one of them is not what would be written
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGE = HERE / "foldspace"
OPENAPI = HERE.parent / "docs" / "openapi.json"

# -- models


def type_of(schema: Any) -> str:
    """Returns the Python type of a JSON schema."""
    if not isinstance(schema, dict) or not schema:
        return "Any"
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[-1]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return union(type_of(each) for each in schema[word])
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return union(type_of_kind(each, schema) for each in kinds)


def type_of_kind(kind: str | None, schema: dict[str, Any]) -> str:
    if kind == "string" and "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if kind == "array":
        return f"list[{type_of(schema.get('items'))}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {type_of(values)}]"
    plain = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
    return plain.get(kind or "", "Any")


def union(types: Any) -> str:
    unique = dict.fromkeys(types)
    if "Any" in unique:
        return "Any"
    return " | ".join(sorted(unique, key=lambda each: each == "None"))


# Objects without a schema in the description, which foldspace/types.py describes.
TYPED = {("limits", "dict[str, Any]"): "Limits"}


def models() -> str:
    """Returns the text of the models: a TypedDict for each schema."""
    schemas = json.loads(OPENAPI.read_text())["components"]["schemas"]
    out = ['"""The documents of the API. Made by generate.py from docs/openapi.json."""', ""]
    out += ["# ruff: noqa: E501", "from __future__ import annotations", "", "from typing import Any, Literal, TypedDict, Union", ""]
    out += ["from typing_extensions import NotRequired", "", "from foldspace.types import Limits", ""]
    aliases: list[str] = []
    for name, schema in schemas.items():
        properties = schema.get("properties")
        if not properties:
            # Names stand in quotation marks: what they name may come later.
            parts = type_of(schema).split(" | ")
            aliases.append(f"{name} = Union[{', '.join(quoted(part) for part in parts)}]")
            continue
        fields = {}
        for field, of in properties.items():
            kind = TYPED.get((field, type_of(of)), type_of(of))
            fields[field] = kind if field in schema.get("required", []) else f"NotRequired[{kind}]"
        doc = first_sentence(schema.get("description", ""))
        out.append("")
        if any(keyword.iskeyword(field) for field in fields):
            body = ", ".join(f"{field!r}: {kind!r}" for field, kind in fields.items())
            out += [f"{name} = TypedDict({name!r}, {{{body}}})", f'"""{doc}"""', ""]
        else:
            out += [f"class {name}(TypedDict):", f'    """{doc}"""', ""]
            for field, kind in fields.items():
                described = " ".join(properties[field].get("description", "").split()).replace("\\", "")
                out += [f"    {field}: {kind}"] + ([f'    """{described}"""'] if described else [])
            out += [""]
    out += [""] + aliases
    return "\n".join(out).rstrip() + "\n"


def quoted(part: str) -> str:
    return part if part in ("str", "int", "float", "bool", "None", "Any") or part.startswith("Literal") else repr(part)


def first_sentence(text: str) -> str:
    text = " ".join(text.split())
    return (text.split(". ")[0].rstrip(".") + ".").replace("\\", "") if text else "A document."


# -- the synchronous client

SOURCES = ("_absolute", "_past", "_slices", "_session", "_files", "_process", "_rollouts", "_client", "_selection")
HEAD = '''"""The same client without asyncio. Made by generate.py from the asyncio client, which has the logic."""

# ruff: noqa: E501
# pyright: reportPrivateUsage=false
from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from foldspace import _absolute, _client, _files, _models, _past, _process, _rollouts, _selection, _session, _slices
from foldspace._background import LOOP, in_thread
from foldspace._models import Annotation, Bisect, CallOutcome, DeclaredSlice, EntryAtPath, Event, Merge, Rerun, Rewind
from foldspace.results import CommandResult, Diff, Entries, Log, Tree
from foldspace.types import Ask, Call, Command, Data, Identified, Limits, Options, Output, PositionLike, Run

T = TypeVar("T")
'''


def synchronous() -> str:
    """Returns the text of the synchronous client."""
    trees = {name: ast.parse((PACKAGE / f"{name}.py").read_text()) for name in SOURCES}
    classes = {
        node.name: module
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and public(node.name) and node.name != "Rules"
    }
    out = [HEAD]
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in classes:
                out.append(one_class(module, node, classes))
            elif isinstance(node, ast.AsyncFunctionDef) and public(node.name) and node.decorator_list:
                out.append(one_context(module, node, classes))
            elif isinstance(node, ast.AsyncFunctionDef) and node.name == "fork_and_select":
                out.append(one_function(module, node, classes))
    return "\n\n".join(out).rstrip() + "\n"


def public(name: str) -> bool:
    return not name.startswith("_")


def one_class(module: str, node: ast.ClassDef, classes: dict[str, str]) -> str:
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    generic = ["Generic[T]"] if any(ast.unparse(base) == "Generic[T]" for base in node.bases) else []
    own = f"{module}.{node.name}" + ("[T]" if generic else "")
    core = "_own" if bases else "_core"
    out = [f"class {node.name}({', '.join(bases + generic)}):" if bases or generic else f"class {node.name}:"]
    out += [f'    """{doc_of(node)}"""', ""]
    if node.name == "Client":
        # The one that users make.
        made = next(item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
        out += [f"    def __init__({ast.unparse(made.args)}) -> None:"]
        out += [f"        self.{core}: {own} = {own}({arguments(made)})", ""]
    else:
        out += [f"    def __init__(self, core: {own}) -> None:"]
        out += ["        super().__init__(core)"] if bases else []
        out += [f"        self.{core}: {own} = core", ""]
    for item, following in zip(node.body, [*node.body[1:], None]):
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if public(item.name) or item.name in ("__call__", "__repr__", "_repr_html_", "__aenter__", "__aexit__"):
                out.append(one_method(item, classes, f"self.{core}"))
        elif isinstance(item, ast.AnnAssign) and isinstance(following, ast.Expr):
            out.append(one_field(item, following, classes, f"self.{core}"))
    return "\n".join(out).rstrip() + "\n"


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    args = node.args
    given = [arg.arg for arg in args.posonlyargs + args.args if arg.arg != "self"]
    if args.vararg:
        given.append(f"*{args.vararg.arg}")
    given += [f"{arg.arg}={arg.arg}" for arg in args.kwonlyargs]
    if args.kwarg:
        given.append(f"**{args.kwarg.arg}")
    return ", ".join(given)


def doc_of(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """Returns the documentation, with examples without asyncio."""
    doc = ast.get_docstring(node, clean=False)
    doc = doc and re.sub(r"\b(await|async) ", "", doc).replace("foldspace.Client(", "foldspace.sync.Client(")
    doc = doc and doc.replace("foldspace.fork_and_select(", "foldspace.sync.fork_and_select(")
    return doc and doc.replace("\\", "\\\\")


def plain(text: str) -> str:
    return text.replace("AsyncIterator[", "Iterator[").replace("AsyncGenerator[", "Generator[")


def one_method(node: ast.FunctionDef | ast.AsyncFunctionDef, classes: dict[str, str], core: str) -> str:
    returns = plain(ast.unparse(node.returns)) if node.returns else "None"
    name = {"__aenter__": "__enter__", "__aexit__": "__exit__"}.get(node.name, node.name)
    is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
    call = f"{core}.{node.name}" if is_property else f"{core}.{node.name}({arguments(node)})"
    yielded = re.fullmatch(r"Generator\[(.*), None\]", returns)
    if yielded and not node.decorator_list:
        returns, call = f"Generator[{yielded[1]}, None, None]", f"LOOP.iterate({call})"
    elif yielded:
        returns, call = f"AbstractContextManager[{yielded[1]}]", f"LOOP.enter({call})"
    elif returns.startswith("Iterator["):
        call = f"LOOP.iterate({call})"
    elif isinstance(node, ast.AsyncFunctionDef):
        call = f"LOOP.wait({call})"
    lines = ["    @property"] if is_property else []
    lines.append(f"    def {name}({plain(ast.unparse(node.args))}) -> {returns}:")
    if doc := doc_of(node):
        lines.append(f'        """{doc}"""')
    if name == "__enter__":
        lines += [f"        {call}", "        return self"]
    else:
        lines.append(f"        return {wrapped(call, returns, classes)}" if returns != "None" else f"        {call}")
    return "\n".join(lines) + "\n"


def one_field(node: ast.AnnAssign, doc: ast.Expr, classes: dict[str, str], core: str) -> str:
    name, kind = ast.unparse(node.target), ast.unparse(node.annotation)
    lines = ["    @property", f"    def {name}(self) -> {kind}:", f'        """{ast.literal_eval(doc.value)}"""']
    return "\n".join([*lines, f"        return {wrapped(f'{core}.{name}', kind, classes)}"]) + "\n"


def wrapped(call: str, returns: str, classes: dict[str, str]) -> str:
    made = re.fullmatch(r"Callable\[\[type\[T\]\], (\w+)\[T\]\]", returns)
    if made:
        return f"lambda item: {made[1]}({call}(item))"
    if returns in classes:
        return f"{returns}({call})"
    stream = re.fullmatch(r"Generator\[(\w+), None, None\]", returns)
    if stream and stream[1] in classes:
        return f"({stream[1]}(each) for each in {call})"
    several = re.fullmatch(r"(?:list|Sequence)\[(\w+)\]", returns)
    if several and several[1] in classes:
        return f"[{several[1]}(each) for each in {call}]"
    return call


def one_context(module: str, node: ast.AsyncFunctionDef, classes: dict[str, str]) -> str:
    returns = plain(ast.unparse(node.returns)) if node.returns else "None"
    inner = returns.removeprefix("Generator[").removesuffix(", None]")
    lines = ["@contextmanager"]
    lines.append(f"def {node.name}({plain(ast.unparse(node.args))}) -> Generator[{inner}, None, None]:")
    lines.append(f'    """{doc_of(node)}"""')
    lines.append(f"    with LOOP.enter({module}.{node.name}({arguments(node)})) as core:")
    lines.append(f"        yield {wrapped('core', inner, classes)}")
    return "\n".join(lines) + "\n"


def one_function(module: str, node: ast.AsyncFunctionDef, classes: dict[str, str]) -> str:
    """Returns a function of a session and of callables, which work in threads."""
    takes = re.sub(r"Awaitable\[(\w+)\]", r"\1", ast.unparse(node.args))
    call = arguments(node)
    for arg in node.args.args:
        kind = ast.unparse(arg.annotation) if arg.annotation else ""
        if kind == "Session":
            call = call.replace(arg.arg, f"{arg.arg}._own", 1)
        elif kind.startswith("Callable[[Session]"):
            call = call.replace(arg.arg, f"lambda fork: in_thread(lambda: {arg.arg}(Session(fork)))", 1)
    returns = ast.unparse(node.returns) if node.returns else "None"
    lines = [f"def {node.name}({takes}) -> {returns}:", f'    """{doc_of(node)}"""']
    lines.append(f"    return {wrapped(f'LOOP.wait({module}.{node.name}({call}))', returns, classes)}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the files, or checks them."""
    wrong = 0
    for path, make in ((PACKAGE / "_models.py", models), (PACKAGE / "sync.py", synchronous)):
        text = make()
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            print(f"{path.name} is not what generate.py writes; run it", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
