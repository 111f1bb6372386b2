"""Fails if a public name of the Python client is on no page, or has no docstring: check.py SITE."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import griffe

# Each name is documented in the module that a page shows.
PUBLIC = ["foldspace", "foldspace.errors", "foldspace.types", "foldspace.results"]
ADAPTERS = ["claude_agent_sdk", "deepagents", "google_adk", "harbor", "inspect_ai", "langgraph", "mini", "openai_agents"]
ADAPTERS += ["pydantic_ai", "pytest_plugin", "strands"]


def on_pages(site: Path) -> set[str]:
    """Returns the names in the inventory of a site."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split(" ", 1)[0] for line in zlib.decompress(packed).decode().splitlines()}


def public(module: griffe.Module) -> list[str]:
    """Returns the public names of a module: `__all__`, else what it defines."""
    if module.exports is not None:
        return [str(name) for name in module.exports]
    return [name for name, each in module.members.items() if each.is_public and not each.is_alias]


def without_docstring(each: griffe.Object | griffe.Alias) -> list[str]:
    """Returns the paths of a public object and its public members that have no docstring."""
    found = [] if each.has_docstring else [each.path]
    if each.is_class:
        inherited = {name for base in each.mro() for name in base.members}
        for name, member in each.members.items():
            if not name.startswith("_") and name not in inherited:
                found += without_docstring(member)
    return found


def main(site: Path) -> int:
    """Prints what is missing, and returns the exit code."""
    package = griffe.load("foldspace", search_paths=[str(Path(__file__).parents[2] / "python")], resolve_aliases=True)
    pages, missing = on_pages(site), list[str]()
    for path in PUBLIC + [f"foldspace.{name}" for name in ADAPTERS]:
        module = package if path == "foldspace" else package[path.removeprefix("foldspace.")]
        for name in public(module):
            member = module.members[name]
            if f"{path}.{name}" not in pages:
                missing.append(f"{path}.{name} is on no page")
            missing += [f"{each} has no docstring" for each in without_docstring(member)]
    for each in missing:
        print(f"site: {each}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
