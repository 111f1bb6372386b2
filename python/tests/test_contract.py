"""The client and the API's description agree."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

from foldspace.errors import BY_KIND

HERE = Path(__file__).parent.parent
API = json.loads((HERE.parent / "docs" / "openapi.json").read_text())
# What the client has no use for.
UNUSED = {
    ("get", "/openapi.json"),
    # For load balancers.
    ("get", "/readyz"),
    ("get", "/v1/sessions/{session}/section"),
    ("get", "/v1/sessions/{session}/state/{slice}"),
    ("get", "/v1/sessions/{session}/terminal"),
    # What moves a session between hosts.
    ("post", "/v1/sessions/{session}/host"),
    # What agents' hooks, and `foldspace attach`, ask for.
    ("get", "/v1/attached"),
    ("post", "/v1/attached"),
    ("post", "/v1/attached/detach"),
    ("post", "/v1/hooks"),
    # What the page in a browser uses.
    ("get", "/v1/sessions/{session}/ports/{port}"),
    ("get", "/v1/sessions/{session}/calls/{call}/frames"),
    ("get", "/v1/sessions/{session}/calls/{call}/recorded/{stream}"),
    ("post", "/v1/sign-in"),
    ("post", "/v1/ui"),
}


def operations() -> set[tuple[str, str]]:
    return {(method, path) for path, methods in API["paths"].items() for method in methods if method != "parameters"}


def requests_of_the_client() -> set[tuple[str, str]]:
    """Returns the methods and paths that stand in the client's code."""
    found: set[tuple[str, str]] = set()
    for module in (HERE / "foldspace").glob("_*.py"):
        tree = ast.parse(module.read_text())
        names = {
            target.id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for function in ast.walk(tree):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found |= requests_of(function, names)
    return found


def requests_of(function: ast.AST, names: dict[str, str]) -> set[tuple[str, str]]:
    own = dict(names)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (text := text_of(node.value, own)):
            own[node.targets[0].id] = text
    found: set[tuple[str, str]] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [text_of(each, own) for each in node.args[:2]]
        if called in ("document", "response") and len(texts) == 2 and all(texts):
            found.add((texts[0].lower(), texts[1]))
        elif called == "resumed" and texts[1:] and texts[1]:
            found.add(("get", texts[1]))
    return found


def text_of(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left, names) + text_of(node.right, names)
    return ""


def test_requests_are_operations_of_the_api() -> None:
    assert requests_of_the_client() - operations() == set()


def test_every_operation_is_reached() -> None:
    assert operations() - requests_of_the_client() == UNUSED


def test_models_and_sync_client_are_as_generated() -> None:
    checked = subprocess.run([sys.executable, HERE / "generate.py", "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_every_kind_of_problem_has_a_class() -> None:
    rows = (HERE.parent / "src" / "http" / "problem.rs").read_text()
    kinds = re.findall(r'^    \w+ "(\w+)" [A-Z_]+ "', rows, re.MULTILINE)
    assert len(kinds) > 10
    assert set(kinds) - set(BY_KIND) == set()


def test_every_reason_of_a_failed_call_has_a_class() -> None:
    text = API["components"]["schemas"]["CallOutcome"]["properties"]["reason"]["description"]
    reasons = re.findall(r"`(\w+)`", text)
    assert "failed" in reasons
    assert set(reasons) - set(BY_KIND) == set()
