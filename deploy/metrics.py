"""Fails if alerts or dashboard use a metric that docs/operating.md does not list, or if an alert has no test.

    metrics.py RULES      writes the dashboard's queries to RULES, as rules that promtool can check
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
METRIC = re.compile(r"\b(?:foldspace|process)_[a-z_]+\b")
ROW = re.compile(r"^\| `(\w+)`[^|]*\| (gauge|counter|histogram) \|", re.MULTILINE)


def listed() -> set[str]:
    """Returns the names of all series in docs/operating.md."""
    names = set[str]()
    for name, kind in ROW.findall((HERE.parent / "docs/operating.md").read_text()):
        names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return names


def overlaps(panels: list[dict]) -> list[str]:
    """Returns the titles of panels that overlap another panel or extend beyond the 24 columns."""
    taken, found = set[tuple[int, int]](), list[str]()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        if cells & taken or place["x"] + place["w"] > 24:
            found.append(panel["title"])
        taken |= cells
    return found


def main(rules: Path) -> int:
    """Prints the problems and returns the exit code."""
    alerts = [rule for group in yaml.safe_load((HERE / "prometheus/alerts.yaml").read_text())["groups"]
              for rule in group["rules"]]
    tests = (HERE / "prometheus/alerts.test.yaml").read_text()
    dashboard = json.loads((HERE / "grafana/foldspace.json").read_text())
    panels, variables = dashboard["panels"], dashboard["templating"]["list"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    known, wrong = listed(), list[str]()
    used = [rule["expr"] for rule in alerts] + queries + [variable["query"] for variable in variables]
    wrong += [f"docs/operating.md does not list {name}" for name in sorted(set(METRIC.findall(" ".join(used))) - known)]
    wrong += [f"panels overlap: {title}" for title in overlaps(panels)]
    wrong += [f"two panels have the id {panel['id']}" for panel in panels if [p["id"] for p in panels].count(panel["id"]) > 1]
    for rule in alerts:
        wrong += [f"{rule['alert']} has no {part}" for part in ("summary", "action") if not rule["annotations"].get(part)]
        wrong += [] if rule["alert"] in tests else [f"no test of {rule['alert']}"]
    names = {variable["name"] for variable in variables} | {"__rate_interval"}
    wrong += [f"no variable {name}" for name in sorted(set(re.findall(r"\$(\w+)", " ".join(used))) - names)]
    plain = [re.sub(r"\$\w+", "all", query.replace("$__rate_interval", "5m")) for query in queries]
    group = {"name": "dashboard", "rules": [{"record": f"panel:{i}", "expr": query} for i, query in enumerate(plain)]}
    rules.write_text(yaml.safe_dump({"groups": [group]}))
    for each in wrong:
        print(f"deploy: {each}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
