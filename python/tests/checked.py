"""Checks each request and document of the tests against the API's description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

API = json.loads((Path(__file__).parent.parent.parent / "docs" / "openapi.json").read_text())


def check_request(method: str, template: str, query: Any, body: Any) -> None:
    """Fails where the description has no such operation, parameter or field."""
    operation = API["paths"][template][method.lower()]
    known = {each["name"] for each in operation.get("parameters", []) if each.get("in") == "query"}
    assert set(query or {}) <= known, f"{method} {template} takes {known}, and not {set(query) - known}"
    if body is not None:
        check(body, operation["requestBody"]["content"]["application/json"]["schema"], f"body of {method} {template}")


def check_answer(method: str, template: str, document: Any) -> None:
    """Fails where the description has another document."""
    for status, answer in API["paths"][template][method.lower()]["responses"].items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        if status.startswith("2") and schema is not None:
            check(document, schema, f"answer to {method} {template}")


def check(document: Any, schema: Any, what: str) -> None:
    whole = {**schema, "components": API["components"]}
    try:
        jsonschema.validate(document, whole)
    except jsonschema.ValidationError as error:
        raise AssertionError(f"{what}: {error.message} at {list(error.absolute_path)}") from error
