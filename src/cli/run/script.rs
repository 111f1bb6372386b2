//! Scripts: one call a line.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use foldspace::event::CallStatus;
use foldspace::reducers::Allowances;
use foldspace::store::MAX_AGENT_BYTES;
use foldspace::tools::{ShellRules, unrunnable};
use foldspace::{Tools, WorkspaceSpec};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cli::{Failure, did_you_mean, files, text};

const LINE_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub(in crate::cli) struct CallScript {
    pub(in crate::cli) name: String,
    pub(in crate::cli) place: String,
    pub(in crate::cli) steps: Vec<ScriptStep>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct ScriptStep {
    #[serde(skip)]
    pub(in crate::cli) line: u64,
    pub(in crate::cli) tool: String,
    #[serde(default)]
    pub(in crate::cli) params: Value,
    pub(in crate::cli) agent: Option<String>,
    #[serde(default)]
    pub(in crate::cli) expect: Expect,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum Expect {
    #[default]
    Ok,
    Error,
}

impl Expect {
    pub(in crate::cli) fn is_met(self, status: CallStatus) -> bool {
        match self {
            Self::Ok => status == CallStatus::Ok,
            Self::Error => status == CallStatus::Error,
        }
    }
}

impl CallScript {
    pub(in crate::cli) fn read(path: &Path) -> Result<Self, Failure> {
        let place = match files::is_standard(path) {
            true => "standard input".to_owned(),
            false => text::one_line(&path.display().to_string(), 300),
        };
        let steps = steps(files::reader(path)?, &place)?;
        Ok(Self { name: super::naming::name_of_script(path), place, steps })
    }

    /// Leaves out the lines before `line`.
    pub(in crate::cli) fn skip_to(&mut self, line: u64) -> Result<(), Failure> {
        self.steps.retain(|step| step.line >= line);
        match self.steps.is_empty() {
            true => Err(Failure::usage(format!("{} has no call from line {line} on", self.place))),
            false => Ok(()),
        }
    }

    /// Checks the tool and the parameters of each call that must succeed. `registered` are tools of other programs,
    /// which check their own parameters.
    pub(in crate::cli) fn check(&self, tools: &Tools, registered: &[String]) -> Result<(), Failure> {
        for step in self.steps.iter().filter(|step| step.expect == Expect::Ok) {
            let at = format!("line {} of {}", step.line, self.place);
            match tools.find(&step.tool, None) {
                Some(tool) => {
                    let none = Value::Object(Map::new());
                    let params = if step.params.is_null() { &none } else { &step.params };
                    tool.check(params).map_err(|error| bad_params(&step.tool, &error.to_string()).at(&at))?;
                }
                None if registered.contains(&step.tool) => {}
                None => {
                    let mut known: Vec<&str> = tools.names().collect();
                    known.extend(registered.iter().map(String::as_str));
                    let meant = did_you_mean(&step.tool, known);
                    return Err(Failure::usage(format!("{at}: tool {:?} not found", step.tool))
                        .with_hint(format!("{meant}`foldspace tools` lists all; nothing was run")));
                }
            }
        }
        Ok(())
    }

    /// Checks that the command of each call that must succeed can run in the workspace, with the session's allowances.
    pub(in crate::cli) fn check_commands(
        &self,
        spec: &WorkspaceSpec,
        rules: &ShellRules,
        allowed: &Allowances,
    ) -> Result<(), Failure> {
        for step in self.steps.iter().filter(|step| step.expect == Expect::Ok) {
            if let Some(why) = unrunnable((&step.tool, &step.params), spec, rules, allowed) {
                let hint = match spec {
                    WorkspaceSpec::Memory => "--backend host or --backend container runs commands; nothing was run",
                    _ => "nothing was run",
                };
                let what = format!("line {} of {}: {why}", step.line, self.place);
                return Err(Failure::usage(what).with_hint(hint));
            }
        }
        Ok(())
    }

    /// Returns true if a call is of a tool that isn't among these.
    pub(in crate::cli) fn has_others(&self, tools: &Tools) -> bool {
        self.steps.iter().any(|step| tools.find(&step.tool, None).is_none())
    }
}

fn bad_params(tool: &str, error: &str) -> Failure {
    let mut named = error.split('`').skip(1).step_by(2);
    let meant = match (error.contains("unknown field"), named.next()) {
        (true, Some(given)) => {
            let known: Vec<&str> = named.collect();
            let meant = did_you_mean(given, known.iter().copied());
            let longer = known.iter().find(|known| known.contains(given)).filter(|_| meant.is_empty());
            longer.map_or(meant, |known| format!("did you mean {known}? "))
        }
        _ => String::new(),
    };
    let hint = format!("{meant}`foldspace tools {tool}` shows the parameters; nothing was run");
    Failure::usage(text::one_line(error, 1000)).with_hint(hint)
}

fn steps(input: impl Read, place: &str) -> Result<Vec<ScriptStep>, Failure> {
    let mut input = BufReader::new(input);
    let mut steps = Vec::new();
    for number in 1.. {
        let mut line = Vec::new();
        let read = (&mut input).take(LINE_MAX + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::io("read", place, &error))? == 0 {
            break;
        }
        let step = if line.len() as u64 > LINE_MAX {
            Err(format!("longer than {}", text::size(LINE_MAX)))
        } else {
            step(&line, number)
        };
        steps.extend(step.map_err(|what| bad_line(place, number, &what))?);
    }
    Ok(steps)
}

fn bad_line(place: &str, number: u64, what: &str) -> Failure {
    Failure::usage(format!("line {number} of {place}: {what}"))
        .with_hint("a line is one JSON object: {\"tool\": ..., \"params\": {...}}; nothing was run")
}

fn step(line: &[u8], number: u64) -> Result<Option<ScriptStep>, String> {
    let text =
        std::str::from_utf8(line).map_err(|error| format!("not UTF-8: byte {} is invalid", error.valid_up_to() + 1))?;
    let mark = if number == 1 { '\u{feff}' } else { '\n' };
    let text = text.trim_start_matches(mark).trim();
    if text.is_empty() || text.starts_with('#') || text.starts_with("//") {
        return Ok(None);
    }
    let step: ScriptStep = serde_json::from_str(text).map_err(|error| why(&error))?;
    if !step.params.is_object() && !step.params.is_null() {
        return Err("`params` must be an object".to_owned());
    }
    if step.agent.as_ref().is_some_and(|agent| agent.len() > MAX_AGENT_BYTES) {
        return Err(format!("`agent` has more than {MAX_AGENT_BYTES} bytes"));
    }
    Ok(Some(ScriptStep { line: number, ..step }))
}

fn why(error: &serde_json::Error) -> String {
    let words = error.to_string();
    let what = words.rsplit_once(" at line ").map_or(words.as_str(), |(what, _)| what);
    format!("{} (column {})", text::one_line(what, 300), error.column())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &[u8]) -> Result<Vec<ScriptStep>, String> {
        steps(text, "it").map_err(|failure| match failure {
            Failure::Told { message, .. } => message,
            Failure::Closed => String::new(),
        })
    }

    #[test]
    fn script_skips_comments_and_blank_lines() {
        let script = b"\xef\xbb\xbf# one\n\n  // two\r\n{\"tool\":\"ls\"}\r\n{\"tool\":\"rm\",\"expect\":\"error\",\"agent\":\"a\"}";
        let steps = read(script).unwrap();
        assert_eq!(
            steps.iter().map(|step| (step.line, step.expect)).collect::<Vec<_>>(),
            [(4, Expect::Ok), (5, Expect::Error)]
        );
        assert_eq!(steps[0].params, json!(null));
        assert_eq!(read(b"").unwrap(), []);
    }

    #[test]
    fn script_error_names_its_line() {
        let message = |text: &[u8]| read(text).unwrap_err();
        assert_eq!(message(b"{}"), "line 1 of it: missing field `tool` (column 2)");
        let unknown = message(b"\n{\"tool\":\"ls\",\"parms\":{}}");
        assert!(unknown.starts_with("line 2 of it: unknown field `parms`"), "{unknown}");
        assert_eq!(message(b"#\n\xff"), "line 2 of it: not UTF-8: byte 1 is invalid");
        assert_eq!(message(b"{\"tool\":\"ls\",\"params\":[]}"), "line 1 of it: `params` must be an object");
        assert!(message(b"{\"tool\":\"ls\",\"expect\":\"maybe\"}").contains("unknown variant `maybe`"));
        assert!(message(b"{\"tool\":\"ls\"} {}").contains("trailing characters"));
        let long = format!("{{\"tool\":\"ls\"}}{}", " ".repeat(64 << 20));
        assert_eq!(message(long.as_bytes()), "line 1 of it: longer than 64.0 MiB");
    }
}
