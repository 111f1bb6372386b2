//! Calls of other agents, made with the tools available here.

mod outcome;
mod patch;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Map, Value, json};

pub(super) use outcome::ForeignOutcome;
use patch::{PatchChange, patch_of, patched};
pub(crate) use table::ForeignTool;
pub use table::runs_commands;

use crate::engine::event::{CallFinished, CallStatus};
use crate::engine::path::EntryPath;
use crate::tools::builtin::files::TEXT_MAX;

/// Maximum characters of a command; longer code is passed as standard input.
const COMMAND_MAX: usize = 4_000;
/// Time limit of a command: minimum and maximum in seconds, and multiple of its recorded duration.
const SECONDS: (f64, f64, f64) = (60.0, 600.0, 10.0);
/// Names of a parameter in different agents' tools.
const COMMAND: [&str; 6] = ["command", "cmd", "keystrokes", "script", "input", "code"];
const DIRECTORY: [&str; 4] = ["workdir", "working_directory", "dir_path", "directory"];
const FILE: [&str; 3] = ["file_path", "filePath", "path"];
const CONTENTS: [&str; 3] = ["content", "file_text", "contents"];
const OLD: [&str; 5] = ["old_string", "oldString", "old_str", "old_text", "before"];
const NEW: [&str; 6] = ["new_string", "newString", "new_str", "new_text", "after", "insert_text"];
const IN_BACKGROUND: [&str; 2] = ["run_in_background", "is_background"];
/// Line of Codex about a command that is still running.
const RUNS_ON: &str = "Process running with session ID";

/// A run of another program, as of the start of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignRun {
    /// The format of its transcript; empty for an observed run, which has its files recorded.
    pub format: String,
    /// The directory of its files, if it is known.
    pub directory: Option<String>,
    /// The initial directory of its commands.
    cwd: Option<String>,
}

/// A call of a tool available here.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnCall {
    pub(super) tool: &'static str,
    pub(super) params: Value,
}

/// Returns the path of a file below a run's directory; `None` for another file. Without a directory the root is the
/// machine's.
pub(crate) fn path_below(directory: Option<&str>, shown: &str) -> Option<EntryPath> {
    let below = match (directory, shown.starts_with('/')) {
        (Some(directory), true) => {
            let below = shown.strip_prefix(directory.trim_end_matches('/'))?;
            if below.is_empty() { below } else { below.strip_prefix('/')? }
        }
        (None, true) => &shown[1..],
        (_, false) if shown == "." => "",
        (_, false) => shown.strip_prefix("./").unwrap_or(shown),
    };
    EntryPath::from_bytes(below.as_bytes()).ok()
}

impl ForeignRun {
    pub(super) fn note(&mut self, facts: &Map<String, Value>) {
        if let Some(cwd) = facts.get("cwd").and_then(Value::as_str) {
            self.directory.get_or_insert_with(|| cwd.to_owned());
            self.cwd = Some(cwd.to_owned());
        }
    }

    /// Returns equivalent calls, or the reason why the call lacks an equivalent. `read` returns the present text of a
    /// file, and `most` is the maximum time of a command.
    pub(super) fn own_calls(
        &self,
        (tool, params): (&str, &Value),
        end: Option<&CallFinished>,
        read: &dyn Fn(&EntryPath) -> Option<String>,
        most: Duration,
    ) -> Result<Vec<OwnCall>, String> {
        let tool = ForeignTool::named(tool).ok_or("it has no equivalent tool")?;
        // In other formats a command that ran has an exit code, and no error.
        let may_have_run = tool.changes_when_failing() && self.format == "atif";
        if end.is_some_and(|end| end.status == CallStatus::Error) && !may_have_run {
            return Err("it failed, or was refused, so it changed nothing".to_owned());
        }
        match tool {
            ForeignTool::Reads => Err("it only reads".to_owned()),
            ForeignTool::Shell | ForeignTool::Python => {
                if IN_BACKGROUND.iter().any(|name| params[*name] == true) || end.is_some_and(|end| runs_on(&end.result))
                {
                    return Err("it ran in the background".to_owned());
                }
                let micros = end.map_or(0, |end| end.micros);
                self.command(params, tool, read, limit_of(micros).min(most.as_secs_f64()))
            }
            ForeignTool::Writes => written(&self.path(params)?, text(params, &CONTENTS)),
            ForeignTool::Edits => self.edited(params, read),
            ForeignTool::Patches => {
                let patch = params.as_object().and_then(|fields| fields.values().find_map(patch_in));
                self.patched(patch.ok_or("its patch is invalid")?, read)
            }
            ForeignTool::Deletes => Ok(vec![removed(&self.path(params)?)]),
        }
    }

    fn path(&self, params: &Value) -> Result<EntryPath, String> {
        self.entry(text(params, &FILE))
    }

    fn entry(&self, shown: &str) -> Result<EntryPath, String> {
        let path = path_below(self.directory.as_deref(), shown).filter(|path| !path.is_root());
        path.ok_or_else(|| "its file is not below the run's directory".to_owned())
    }

    fn command(
        &self,
        params: &Value,
        tool: ForeignTool,
        read: &dyn Fn(&EntryPath) -> Option<String>,
        seconds: f64,
    ) -> Result<Vec<OwnCall>, String> {
        if params["is_input"] == true || params["is_input"] == "true" {
            return Err("it was input of a program".to_owned());
        }
        let given = COMMAND.iter().map(|name| &params[*name]).find(|value| !value.is_null()).unwrap_or(&Value::Null);
        if let Some(patch) = patch_in(given) {
            return self.patched(patch, read);
        }
        let (interpreter, code) = match given {
            Value::Array(words) => (words.clone(), None),
            Value::String(text) if params["keystrokes"].is_string() && !text.ends_with('\n') => {
                return Err("it sent keystrokes".to_owned());
            }
            Value::String(text) if tool == ForeignTool::Python => (vec![json!("python3")], Some(text.as_str())),
            Value::String(text) => (vec![json!("bash")], Some(text.as_str())),
            _ => (Vec::new(), None),
        };
        if interpreter.is_empty() || code.is_some_and(|code| code.trim().is_empty()) {
            return Err("it has no command".to_owned());
        }
        let stated = Some(text(params, &DIRECTORY)).filter(|directory| !directory.is_empty());
        let stated = stated.or(self.cwd.as_deref()).filter(|_| self.directory.is_some());
        let mut cwd = match stated {
            // The tool also accepts directories below /tmp.
            Some(directory) if path_below(self.directory.as_deref(), directory).is_none() => directory.to_owned(),
            Some(directory) => path_below(self.directory.as_deref(), directory).map_or(String::new(), |at| at.rooted()),
            None => String::new(),
        };
        let mut words = interpreter;
        let mut stdin = String::new();
        if let Some(code) = code {
            let (moved, code) = self.without_leading_cd(code);
            cwd = moved.unwrap_or(cwd);
            match code.chars().count() <= COMMAND_MAX {
                true => words.extend([json!("-c"), json!(code)]),
                // The shell reads the group as a whole before it runs, so no program in it consumes the script.
                false if tool == ForeignTool::Shell => stdin = format!("{{\n{code}\n}} < /dev/null\n"),
                false => stdin = code,
            }
        } else if let [_, flag, Value::String(script)] = &words[..]
            && flag.as_str().is_some_and(|flag| flag.starts_with('-') && flag.ends_with('c'))
        {
            let (moved, script) = self.without_leading_cd(script);
            cwd = moved.unwrap_or(cwd);
            words[2] = json!(script);
        }
        let mut params = json!({ "command": words, "timeout_seconds": seconds });
        for (name, value) in [("cwd", cwd), ("stdin", stdin)] {
            if !value.is_empty() {
                params[name] = json!(value);
            }
        }
        Ok(vec![OwnCall { tool: "shell_execute", params }])
    }

    /// Returns the workspace's directory that a script first changes to, and the script without that change. The run's
    /// own directory has another path here.
    fn without_leading_cd(&self, script: &str) -> (Option<String>, String) {
        let found = || {
            let rest = script.trim_start().strip_prefix("cd ")?.trim_start();
            let (target, rest) = match rest.chars().next()? {
                quote @ ('"' | '\'') => rest[1..].split_once(quote)?,
                _ => rest.split_at(rest.find([' ', '\n', '\t', ';', '&', '|']).unwrap_or(rest.len())),
            };
            let directory = self.directory.as_deref().filter(|_| target.starts_with('/'))?;
            Some((path_below(Some(directory), target)?.rooted(), format!("cd .{rest}")))
        };
        found().map_or_else(|| (None, script.to_owned()), |(cwd, script)| (Some(cwd), script))
    }

    fn edited(&self, params: &Value, read: &dyn Fn(&EntryPath) -> Option<String>) -> Result<Vec<OwnCall>, String> {
        match params["command"].as_str() {
            Some("view") => return Err("it only reads".to_owned()),
            Some("create") => return written(&self.path(params)?, text(params, &CONTENTS)),
            Some("insert") => {
                let (path, new) = (self.path(params)?, text(params, &NEW));
                let line = params["insert_line"].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(0);
                let Some(before) = read(&path) else { return Ok(vec![replaced(&path, "\n", new, false)]) };
                let at = before.split_inclusive('\n').take(line).map(str::len).sum();
                let (head, tail) = before.split_at(at);
                let end = if new.ends_with('\n') || new.is_empty() { "" } else { "\n" };
                return written(&path, &format!("{head}{new}{end}{tail}"));
            }
            Some("str_replace") | None => {}
            Some(_) => return Err("it has no equivalent edit".to_owned()),
        }
        let one = std::slice::from_ref(params);
        let path = self.path(params)?;
        let mut calls = Vec::new();
        for edit in params["edits"].as_array().map_or(one, Vec::as_slice) {
            let (old, new) = (text(edit, &OLD), text(edit, &NEW));
            let count = edit["expected_replacements"].as_u64().unwrap_or(1);
            let all = edit["replace_all"] == true
                || edit["replaceAll"] == true
                || edit["allow_multiple"] == true
                || count > 1;
            match old {
                "" if new.is_empty() => return Err("it has no equivalent edit".to_owned()),
                "" => calls.extend(written(&path, new)?),
                old => calls.push(replaced(&path, old, new, all)),
            }
        }
        Ok(calls)
    }

    fn patched(
        &self,
        patch: Vec<PatchChange>,
        read: &dyn Fn(&EntryPath) -> Option<String>,
    ) -> Result<Vec<OwnCall>, String> {
        let mut calls = Vec::new();
        for change in patch {
            match change {
                PatchChange::Added { path, text } => calls.extend(written(&self.entry(&path)?, &text)?),
                PatchChange::Deleted { path } => calls.push(removed(&self.entry(&path)?)),
                PatchChange::Updated { path, moved_to, hunks } => {
                    let path = self.entry(&path)?;
                    let Some(after) = read(&path).and_then(|before| patched(&before, &hunks)) else {
                        // This edit fails with the reason.
                        let (old, new) = hunks.first().map(|hunk| hunk.texts()).unwrap_or_default();
                        calls.push(replaced(&path, &old, &new, false));
                        continue;
                    };
                    match moved_to {
                        Some(to) => {
                            calls.extend(written(&self.entry(&to)?, &after)?);
                            calls.push(removed(&path));
                        }
                        None => calls.extend(written(&path, &after)?),
                    }
                }
            }
        }
        Ok(calls)
    }
}

fn text<'v>(params: &'v Value, names: &[&str]) -> &'v str {
    names.iter().find_map(|name| params[*name].as_str()).unwrap_or_default()
}

fn runs_on(result: &Value) -> bool {
    let shown = result["output"].as_str().unwrap_or_default();
    result["backgroundTaskId"].is_string() || shown.lines().take(5).any(|line| line.starts_with(RUNS_ON))
}

fn limit_of(micros: u64) -> f64 {
    let (least, most, times) = SECONDS;
    if micros == 0 { most } else { (Duration::from_micros(micros).as_secs_f64() * times).clamp(least, most) }
}

/// Returns the patch in a parameter: a text, a command `apply_patch`, or an argument of a command.
fn patch_in(value: &Value) -> Option<Vec<PatchChange>> {
    match value {
        Value::String(text) if text.trim_start().starts_with("apply_patch") || text.starts_with("*** Begin") => {
            patch_of(text)
        }
        Value::Array(words) if words.first().is_some_and(|word| word == "apply_patch") => {
            patch_of(words.get(1)?.as_str()?)
        }
        Value::Array(words) => patch_in(words.get(2)?),
        _ => None,
    }
}

fn written(path: &EntryPath, contents: &str) -> Result<Vec<OwnCall>, String> {
    let mut calls = Vec::new();
    let mut rest = contents;
    while calls.is_empty() || !rest.is_empty() {
        let end = rest.char_indices().nth(TEXT_MAX).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        let mode = if calls.is_empty() { "overwrite" } else { "append" };
        let params = json!({ "file_path": path.rooted(), "content": piece, "mode": mode });
        calls.push(OwnCall { tool: "write_file", params });
        rest = after;
    }
    Ok(calls)
}

fn replaced(path: &EntryPath, old: &str, new: &str, all: bool) -> OwnCall {
    let mut params = json!({ "file_path": path.rooted(), "old_string": old, "new_string": new });
    if all {
        params["replace_all"] = json!(true);
    }
    OwnCall { tool: "edit_file", params }
}

fn removed(path: &EntryPath) -> OwnCall {
    OwnCall { tool: "rm", params: json!({ "path": path.rooted() }) }
}
