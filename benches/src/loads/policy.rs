//! The longest texts through the command policy, beside one pass over their bytes.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use foldspace::backends::ShellCommand;
use foldspace::tools::{CommandPolicy, MAX_SCRIPT_CHARS};

use super::Size;
use crate::sample::{median, micros};
use crate::table::{Table, number};

/// Texts by what they are made of, repeated up to the limit.
const UNITS: [(&str, &str); 6] = [
    ("plain commands", "git status && ls -la src | grep x; "),
    ("quoted words", "echo 'a b' \"c $d\"; "),
    ("functions that hold themselves", "f() { echo $(f); }; "),
    ("nested substitutions", "echo $( "),
    ("wrappers in wrappers", "sudo env timeout 5 "),
    ("shells that read", "echo rm | sh | "),
];

/// Counts with the characters of a script.
const INTERPRETER: &str = "/bin/sh";

/// Measures a check of each text, as a command and as a script.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let head = [
        "text",
        "command of 4,096 characters",
        "of one pass",
        "script of 65,536 characters, with its interpreter",
        "of one pass",
    ];
    let mut table = Table::new("Policy: the longest texts, microseconds for a check", &head);
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    let times = size.of(5, 101);
    for (name, unit) in UNITS {
        let mut cells = vec![name.to_owned()];
        for limit in [policy.max_chars, MAX_SCRIPT_CHARS] {
            let text: String = unit.chars().cycle().take(limit - INTERPRETER.len()).collect();
            let command = match limit == MAX_SCRIPT_CHARS {
                true => ShellCommand::script(INTERPRETER, &text),
                false => ShellCommand::shell(&text),
            };
            let check = taken(times, || drop(black_box(policy.check(&command, &BTreeSet::new()))));
            let pass = taken(times, || {
                black_box(black_box(&text).chars().filter(|c| c.is_control()).count());
            });
            cells.extend([number(check), number(check / pass)]);
        }
        if let Ok(cells) = <[String; 5]>::try_from(cells) {
            table.row(cells);
        }
    }
    Ok(vec![table])
}

/// The median of some runs, in microseconds.
fn taken(times: usize, mut run: impl FnMut()) -> f64 {
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        run();
        all.push(micros(start.elapsed()));
    }
    median(&all)
}
