#!/usr/bin/env python3
"""Lists the contents of a release.

release/about.py version                         prints the version, which all packages must have
release/about.py contents TARGET DIRECTORY       writes foldspace.cdx.json (an SBOM) and LICENSES-THIRD-PARTY.txt
release/about.py provenance TARGET FILE...       prints where these files come from, as in-toto and SLSA have it

They read Cargo.lock and the packages that cargo has downloaded. SOURCE_DATE_EPOCH is the time in an SBOM.
"""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The packages of the programs, as release/build selects them.
PROGRAMS = (["-p", "foldspace", "--features", "full"], ["-p", "foldspace-evaluator"])
LICENCE_FILE = re.compile(r"(?i)(un)?licen[cs]e|copying|notice|copyright")
MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def version() -> str:
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def check_versions() -> None:
    """Ends the program if a package has another version than the workspace."""
    manifests = ["typescript/package.json", "integrations/claude-plugin/.claude-plugin/plugin.json",
                 "integrations/codex-plugin/.codex-plugin/plugin.json",
                 "integrations/gemini-extension/gemini-extension.json"]
    found = {path: json.loads((ROOT / path).read_text())["version"] for path in manifests}
    found["python/pyproject.toml"] = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]["version"]
    found["src/evaluator/Cargo.toml"] = tomllib.loads((ROOT / "src/evaluator/Cargo.toml").read_text())["package"]["version"]
    wrong = [f"{path} has version {there}, not {version()}" for path, there in found.items() if there != version()]
    if wrong:
        sys.exit("\n".join(wrong))


def written(at: datetime.datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of_source() -> str:
    at = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct"))
    return written(datetime.datetime.fromtimestamp(at, datetime.UTC))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def expression(licence: str) -> str:
    """Returns a licence as SPDX writes it today: older packages separate alternatives by a slash."""
    return re.sub(r"\s*/\s*", " OR ", licence)


class Crates:
    """The packages that the programs for a target contain: no tests, no build scripts, no macros."""

    def __init__(self, target: str) -> None:
        metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version", "1", "--features", "full",
                                     "--filter-platform", target))
        linked = set[tuple[str, ...]]()
        for program in PROGRAMS:
            edges = ["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]
            tree = output("cargo", "tree", "--locked", "--target", target, *program, *edges)
            linked |= {tuple(line.split()[:2]) for line in tree.splitlines() if line}
        self.packages = {package["id"]: package for package in metadata["packages"]
                         if (package["name"], f"v{package['version']}") in linked}
        self.uses = {node["id"]: [id for id in node["dependencies"] if id in self.packages]
                     for node in metadata["resolve"]["nodes"] if node["id"] in self.packages}
        lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
        self.checksums = {(one["name"], one["version"]): one.get("checksum") for one in lock}
        if len(self.packages) != len(linked):
            sys.exit(f"cargo tree names {len(linked)} packages, cargo metadata has {len(self.packages)} of them")

    def own(self, package: dict) -> bool:
        return package["source"] is None

    def sorted(self) -> list[dict]:
        return sorted(self.packages.values(), key=lambda package: (package["name"], package["version"]))


def purl(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def of_page() -> list[dict]:
    files = json.loads((ROOT / "web/vendor/manifest.json").read_text())["files"]
    return [package for file in files for package in file.get("packages", [])]


def libc(target: str) -> dict:
    """The C library that a static program contains."""
    name, licence = ("musl", "MIT") if "musl" in target else ("glibc", "LGPL-2.1-or-later")
    return {"type": "library", "bom-ref": name, "name": name, "licenses": [{"expression": licence}]}


def sbom(crates: Crates, target: str) -> dict:
    components = []
    for package in crates.sorted():
        component = {"type": "library", "bom-ref": purl(package), "name": package["name"],
                     "version": package["version"], "purl": purl(package),
                     "licenses": [{"expression": expression(package["license"])}]}
        if checksum := crates.checksums[package["name"], package["version"]]:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    for package in of_page():
        id = f"pkg:npm/{urllib.parse.quote(package['name'], safe='/')}@{package['version']}"
        components.append({"type": "library", "bom-ref": id, "name": package["name"], "version": package["version"],
                           "purl": id, "licenses": [{"expression": package["licence"]}]})
    rust = output("rustc", "--version").split()[1]
    components.append({"type": "library", "bom-ref": "rust-std", "name": "rust-std", "version": rust,
                       "licenses": [{"expression": "MIT OR Apache-2.0"}]})
    components.append(libc(target))
    uses = [{"ref": purl(crates.packages[id]), "dependsOn": sorted(purl(crates.packages[on]) for on in used)}
            for id, used in sorted(crates.uses.items())]
    about = {"type": "application", "bom-ref": "foldspace", "name": "foldspace", "version": version(),
             "licenses": [{"expression": "MIT OR Apache-2.0"}]}
    linked = {one for use in uses for one in use["dependsOn"]}
    tops = sorted(one["bom-ref"] for one in components if one["bom-ref"] not in linked)
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
            "metadata": {"timestamp": moment_of_source(), "component": about,
                         "properties": [{"name": "target", "value": target}]},
            "components": components, "dependencies": [{"ref": "foldspace", "dependsOn": tops}, *uses]}


def licence_texts(package: dict) -> list[str]:
    """Returns the texts in a package, those of bundled C code included."""
    place = Path(package["manifest_path"]).parent
    files = [path for path in sorted(place.rglob("*")) if LICENCE_FILE.match(path.name) and path.is_file()
             and not {"tests", "benches", "examples"} & set(path.relative_to(place).parts)]
    # A file of that name may be code.
    texts = [path.read_text(errors="replace").strip() for path in files
             if path.suffix.lower() in ("", ".md", ".txt", ".html") or path.stem.isupper()]
    if texts:
        return texts
    licence = expression(package["license"])
    if "Apache-2.0" in licence:
        return [(ROOT / "LICENSE-APACHE").read_text().strip()]
    if licence == "MIT":
        authors = ", ".join(re.sub(r"\s*<.*?>", "", author) for author in package["authors"])
        return [f"Copyright (c) {authors or 'the authors of ' + package['name']}\n\n{MIT}".strip()]
    sys.exit(f"{package['name']} has no text of its licence ({licence})")


def licences(crates: Crates, target: str) -> str:
    by_text, seen = dict[str, list[str]](), dict[str, str]()
    for package in crates.sorted():
        if not crates.own(package):
            title = f"{package['name']} {package['version']} ({expression(package['license'])})"
            # Many texts differ only in how their lines are broken.
            texts = {seen.setdefault(" ".join(text.split()), text): None for text in licence_texts(package)}
            for text in texts:
                by_text.setdefault(text, []).append(title)
    apache = (ROOT / "LICENSE-APACHE").read_text().strip()
    by_text.setdefault(apache, []).append("The standard library of Rust (MIT OR Apache-2.0)")
    if "musl" in target:
        by_text[f"Copyright © 2005-2020 Rich Felker, et al.\n\n{MIT}".strip()] = ["musl (MIT)"]
    for path in sorted((ROOT / "web/vendor").glob("*.licences.txt")):
        by_text[path.read_text().strip()] = [f"The page: {path.name.removesuffix('.licences.txt')}"]
    parts = ["The programs foldspace and foldspace-evaluator contain the following software. The source of each Rust\n"
             "package is published under its name and version."]
    for text, titles in by_text.items():
        parts.append("\n".join(["=" * 78, *titles, "-" * 78, "", text]))
    return "\n\n".join(parts) + "\n"


def provenance(target: str, files: list[str]) -> dict:
    commit = output("git", "rev-parse", "HEAD").strip()
    if output("git", "status", "--porcelain", "--untracked-files=no"):
        print("release/about.py: the work tree has changes that are not committed", file=sys.stderr)
        commit += "-modified"
    tools = {"rustc": output("rustc", "--version").strip(), "cargo": output("cargo", "--version").strip()}
    source = {"name": "foldspace", "digest": {"gitCommit": commit}}
    if repository := os.environ.get("FOLDSPACE_REPOSITORY"):
        source["uri"] = f"git+{repository}"
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": Path(file).name, "digest": {"sha256": sha256(Path(file).read_bytes())}} for file in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:foldspace:release-build:v1",
                "externalParameters": {"command": ["release/build", target], "target": target},
                "internalParameters": {**tools, "rustflags": os.environ.get("RUSTFLAGS", "")},
                "resolvedDependencies": [
                    source,
                    {"name": "Cargo.lock", "digest": {"sha256": sha256((ROOT / "Cargo.lock").read_bytes())}},
                ],
            },
            "runDetails": {
                "builder": {"id": os.environ.get("FOLDSPACE_BUILDER", "urn:foldspace:builder:local")},
                "metadata": {"finishedOn": written(datetime.datetime.now(datetime.UTC))},
            },
        },
    }


def main(arguments: list[str]) -> None:
    match arguments:
        case ["version"]:
            check_versions()
            print(version())
        case ["contents", target, directory]:
            crates = Crates(target)
            text = json.dumps(sbom(crates, target), indent=1, ensure_ascii=False)
            Path(directory, "foldspace.cdx.json").write_text(text + "\n")
            Path(directory, "LICENSES-THIRD-PARTY.txt").write_text(licences(crates, target))
        case ["provenance", target, *files] if files:
            print(json.dumps(provenance(target, files), indent=1))
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
