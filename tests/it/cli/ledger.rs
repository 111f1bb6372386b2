//! `fixtures/ledger`: a C library that two agents build, break and mend in a container.

use serde_json::{Value, json};

use super::fixture;
use crate::rig::{Program, rounds, told};

/// Whether 2400 is a leap year, which it no longer is once it is broken. What can't be built can't tell.
const LEAP: &str = "make -s all >/dev/null 2>&1 || exit 125; test $(build/ledger days 2400-02-01 2400-03-01) = 29";

/// Positions of calls that the script is known to make.
struct Story {
    program: Program,
    /// The program is there, and right.
    good: u64,
    broken: u64,
    /// The files are moved.
    moved: u64,
    mended: u64,
    head: u64,
}

impl Story {
    fn told() -> Option<Self> {
        let program = Program::with_container()?;
        let script = fixture("ledger/script.jsonl");
        let script = script.to_str().unwrap();
        let ran =
            program.run(&["run", script, "--session", "ledger", "--backend", crate::engine::kind().name(), "--yes"]);
        assert!(ran.ends_with("[exit 0]"), "{ran}");
        let calls = program.json_lines(&["log", "ledger", "--calls"]);
        assert!(calls.len() >= 200, "{}", calls.len());
        let of = |field: &str, text: &str| {
            let has = |call: &&Value| call["params"][field].as_str().is_some_and(|found| found.contains(text));
            calls.iter().find(has).unwrap_or_else(|| panic!("no call has {text} in {field}"))["call"].as_u64().unwrap()
        };
        let (broken, mended) = (of("new_string", "0x111111"), of("old_string", "0x111111"));
        let (good, moved) = (of("file_path", "tools/make_data.py"), of("command", "git mv src/date.c"));
        let head = program.json_lines(&["log", "ledger"]).last().unwrap()["seq"].as_u64().unwrap();
        Some(Self { program, good, broken, moved, mended, head })
    }

    fn bisected(&self, bad: u64, jobs: &str) -> Value {
        let (good, bad) = (self.good.to_string(), bad.to_string());
        self.program.json(&["bisect", "ledger", "--good", &good, "--bad", &bad, "--jobs", jobs, "--sh", "--", LEAP])
    }

    fn exec(&self, session: &str, command: &str) -> String {
        self.program.run(&["exec", session, "--sh", "--", command])
    }

    /// The call that broke it is found, whichever way the probes go; make is not misled by what they leave.
    fn assert_found(&self) {
        let ways = [(self.moved, "2"), (self.mended - 1, "1")];
        for (bad, jobs) in ways.into_iter().take(rounds(1) as usize) {
            let found = self.bisected(bad, jobs);
            let (call, changes) = (&found["bad"][0]["call"], &found["bad"][0]["changes"]);
            assert_eq!((&call["seq"], &call["agent"]), (&json!(self.broken), &json!("ada")), "{found}");
            assert_eq!((&changes[0]["path"], &changes[1]), (&json!("src/date.c"), &Value::Null), "{found}");
            assert!(found["probes"].as_array().unwrap().len() <= 8, "{found}");
        }
    }

    fn assert_blamed(&self) {
        let at = (self.mended - 1).to_string();
        let blamed = self.program.json(&["blame", "ledger", "src/calendar.c", "--at", &at]);
        let is_broken = |line: &&Value| line["line"].as_str().unwrap().contains("0x111111");
        let line = blamed["lines"].as_array().unwrap().iter().find(is_broken).unwrap();
        let wrote = |change: &&Value| change["seq"] == line["seq"];
        let change = blamed["changes"].as_array().unwrap().iter().find(wrote).unwrap();
        assert_eq!((&change["call"], &change["path"]), (&json!(self.broken), &json!("src/date.c")), "{change}");
    }

    fn assert_the_same_again(&self) {
        let output = self.program.output(&["--json", "rerun", "ledger"]);
        let lines = String::from_utf8(output.stdout.clone()).unwrap();
        let summary: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert!(output.status.success(), "{}", told(&output));
        let counts = (&summary["same"], &summary["diverged"], &summary["skipped"]);
        assert_eq!(counts, (&json!(true), &json!(0), &json!(0)), "{summary}");
    }

    /// Back to before it broke and forward again, and make does what it should at both.
    fn assert_goes_back_and_forth(&self) {
        let program = &self.program;
        program.printed(&["rewind", "ledger", "--to", &(self.broken - 1).to_string()]);
        assert!(program.printed(&["cat", "ledger", "src/date.c"]).contains("year % 400 == 0"));
        assert_eq!(self.exec("ledger", LEAP), "\n[exit 0]");
        program.printed(&["rewind", "ledger", "--to", &(self.mended - 1).to_string()]);
        assert_eq!(self.exec("ledger", LEAP), "\n[exit 1]");
        program.printed(&["rewind", "ledger", "--to", &self.head.to_string()]);
        assert_eq!(program.printed(&["diff", "ledger", &format!("{}..", self.head)]), "");
        assert!(self.exec("ledger", "make -s test").ends_with("8 checks of the program\n[exit 0]"));
    }

    /// Work on the past comes into the present, beside what has become of the same files.
    fn assert_merged(&self) {
        let program = &self.program;
        program.printed(&["clone", "ledger", "--at", &(self.broken - 1).to_string(), "--name", "past"]);
        let work =
            "sed -i 's/int minus = /int is_minus = /; s/minus ? -value/is_minus ? -value/' src/money.c && make -s all";
        assert_eq!(self.exec("past", work), "\n[exit 0]");
        let merged = program.json(&["merge", "past", "--ours", "build", "--ours", ".git"]);
        assert_eq!(merged["outcome"], "merged", "{merged}");
        let money = program.printed(&["cat", "ledger", "src/money.c"]);
        assert!(money.starts_with("/* Sums are whole cents. */") && money.contains("is_minus ? -value"), "{money}");
        assert!(self.exec("ledger", "make -s test").ends_with("8 checks of the program\n[exit 0]"));
        assert_eq!(program.json(&["merge", "past"])["outcome"], "nothing");
        assert!(program.printed(&["cat", "past", "src/date.c"]).contains("year % 400 == 0"));
    }
}

#[test]
fn ledger_story_runs_end_to_end() {
    let Some(story) = Story::told() else { return };
    story.program.printed(&["verify"]);
    story.assert_found();
    story.assert_blamed();
    if rounds(1) > 1 {
        story.assert_the_same_again();
    }
    story.assert_goes_back_and_forth();
    story.assert_merged();
    story.program.printed(&["verify"]);
}
