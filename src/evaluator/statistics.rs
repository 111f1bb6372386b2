//! The module `statistics`, which the interpreter lacks: its common functions, written in Python.

use std::borrow::Cow;

use monty::MontyRepl;
use monty_types::{MontyException, PrintWriter};

const MODULE: &str = include_str!("statistics.py");

/// Returns the code with assignments in place of imports of `statistics`, which the interpreter then has. Lines keep
/// their numbers.
pub(super) fn imported<'c>(repl: &mut MontyRepl, code: &'c str) -> Result<Cow<'c, str>, MontyException> {
    let mut quotes = 0;
    let mut found = false;
    let lines = code.split('\n').map(|line| {
        let in_text = quotes % 2 == 1;
        quotes += line.matches("\"\"\"").count() + line.matches("'''").count();
        let assigns = assignments(line).filter(|_| !in_text);
        found |= assigns.is_some();
        assigns.map_or(Cow::Borrowed(line), Cow::Owned)
    });
    let lines: Vec<_> = lines.collect();
    if !found {
        return Ok(code.into());
    }
    repl.feed_run(MODULE, Vec::new(), PrintWriter::Disabled)?;
    Ok(lines.join("\n").into())
}

/// Rewrites a line of imports, if one of them is of `statistics`.
fn assignments(line: &str) -> Option<String> {
    let (code, comment) = line.split_once('#').map_or((line, ""), |(code, _)| (code, "#"));
    let indent = &code[..code.len() - code.trim_start().len()];
    if code.contains(['"', '\'', '\\']) || !code.contains("statistics") {
        return None;
    }
    let statements: Option<Vec<String>> = code.split(';').map(|statement| rewritten(statement.trim())).collect();
    let rewritten = format!("{indent}{}{comment}", statements?.join("; "));
    (rewritten.trim_end() != line.trim_end()).then_some(rewritten)
}

/// Rewrites a statement. `None` for one that is no import, or that imports names over several lines.
fn rewritten(statement: &str) -> Option<String> {
    let pair = |item: &str| -> (String, String) {
        let (name, own) = item.split_once(" as ").unwrap_or((item, item));
        (name.trim().to_owned(), own.trim().to_owned())
    };
    if let Some(names) = statement.strip_prefix("from statistics import ") {
        let names = names.trim().trim_start_matches('(').trim_end_matches(')');
        let is_plain = !names.contains(['*', '(']) && statement.contains('(') == statement.contains(')');
        let assigned = names.split(',').map(str::trim).filter(|item| !item.is_empty()).map(pair);
        let assigned: Vec<_> = assigned.map(|(name, own)| format!("{own} = statistics.{name}")).collect();
        return (is_plain && !assigned.is_empty()).then(|| assigned.join("; "));
    }
    let Some(modules) = statement.strip_prefix("import ") else {
        return statement.starts_with("from ").then(|| statement.to_owned());
    };
    let each = modules.split(',').map(|item| match pair(item) {
        (name, own) if name != "statistics" => {
            format!("import {}", if name == own { name } else { item.trim().into() })
        }
        (_, own) if own == "statistics" => "pass".to_owned(),
        (_, own) => format!("{own} = statistics"),
    });
    Some(each.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_become_assignments() {
        for (line, expected) in [
            ("import statistics", Some("pass")),
            ("  import math, statistics as st  # s", Some("  import math; st = statistics#")),
            ("import math; import statistics", Some("import math; pass")),
            ("from statistics import (mean, stdev as s)", Some("mean = statistics.mean; s = statistics.stdev")),
            ("from statistics import (mean,", None),
            ("from statistics import *", None),
            ("x = 'import statistics'", None),
            ("print(statistics)", None),
            ("import math", None),
        ] {
            assert_eq!(assignments(line).as_deref(), expected, "{line}");
        }
    }
}
