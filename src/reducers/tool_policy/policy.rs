//! The policy for tools as data, and its checks.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths::{PathList, within};
use crate::engine::ValueError;

/// Maximum characters of a tool's name.
const TOOL_CHARS: usize = 100;

/// A session's policy for tools. Setting it replaces an earlier one: each call from then on obeys it, and the policies of
/// the session's ancestors. A call that breaks a rule is refused, and the refusal names the rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolPolicy {
    /// The only tools that calls may use; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<String>>,
    /// Globs of the files that tools may read, at most 100; all files by default. `!` before a glob excludes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<String>>,
    /// Globs of the entries that calls may create, change and remove, at most 100; all entries by default. `!` before a
    /// glob excludes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<String>>,
    /// Tools that must succeed before others, at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<OrderRule>,
    /// Limits for the calls of single tools, at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at_most: Vec<AtMostRule>,
    /// The treatment of changes that a command makes outside of `write`: `undo` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands_outside: Option<OutsideTreatment>,
    /// The treatment of the changes of a call that fails: `keep` by default. `undo` also holds for calls that ask for
    /// `keep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// The text for the model in place of the usual prompt section, at most 16,384 bytes. `{tools}`, `{root}`,
    /// `{commands}` and `{mounts}` stand for these parts of the usual section, `{section}` for all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_text: Option<String>,
}

/// The names of the parts in a section's text.
const PARTS: [&str; 5] = ["section", "tools", "root", "commands", "mounts"];
/// Maximum bytes of a section's text.
const SECTION_BYTES: usize = 16 << 10;

/// Returns a section's text with its parts in place. `part` returns a part by its name, or `None` for a word in braces
/// that is no part.
pub fn filled_section(text: &str, mut part: impl FnMut(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let name = after.split_once('}').filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_lowercase()));
        match name.and_then(|(name, after)| Some((part(name)?, after))) {
            Some((value, after)) => (filled, rest) = (filled + &value, after),
            None => (filled, rest) = (filled + "{", after),
        }
    }
    filled + rest
}

/// A tool that must succeed before another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderRule {
    /// The tool that must succeed first.
    pub first: String,
    /// The tool that is refused until then.
    pub before: String,
    /// True to require it for each existing file that a call of `before` changes: `first` must have succeeded with that
    /// path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_path: bool,
}

/// A limit for the calls of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AtMostRule {
    /// The tool.
    pub tool: String,
    /// The number of calls since the policy was set. A refused call does not count.
    pub n: u64,
}

/// Treatment of changes that a command makes outside of the paths it may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutsideTreatment {
    /// They are undone before the outcome is recorded.
    Undo,
    /// They stay, and the result names them.
    Report,
}

/// Treatment of the changes of a call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// They stay, and are recorded.
    #[default]
    Keep,
    /// They are undone before the outcome is recorded: the files are as before the call.
    Undo,
}

impl OnFailure {
    #[doc(hidden)]
    pub fn is_keep(&self) -> bool {
        *self == Self::Keep
    }
}

impl ToolPolicy {
    /// Checks the rules. `is_tool` returns true for an existing tool.
    ///
    /// # Errors
    /// [`ValueError`] with the rule: too many rules, an invalid glob, an unknown tool, or rules that contradict.
    pub fn check(&self, is_tool: impl Fn(&str) -> bool) -> Result<(), ValueError> {
        if *self == Self::default() {
            return Err(ValueError::new("the policy has no rules; remove it instead"));
        }
        let lists = [("order", self.order.len()), ("at_most", self.at_most.len())];
        for (name, count) in lists.into_iter().chain(self.tools.as_ref().map(|tools| ("tools", tools.len()))) {
            within(name, count)?;
        }
        for (name, globs) in [("read", &self.read), ("write", &self.write)] {
            globs.as_ref().map_or(Ok(()), |globs| PathList::new(name, globs).map(drop))?;
        }
        for tool in self.tools.iter().flatten() {
            known("tools", tool, &is_tool)?;
        }
        if let Some(text) = &self.section_text {
            check_section(text)?;
        }
        if self.write.is_none() && self.commands_outside.is_some() {
            return Err(ValueError::new("commands_outside has no effect without `write`"));
        }
        self.check_order(&is_tool)?;
        let mut limited = BTreeMap::new();
        for (number, AtMostRule { tool, .. }) in (1..).zip(&self.at_most) {
            let rule = format!("at_most rule {number}");
            known(&rule, tool, &is_tool)?;
            self.check_usable(&rule, tool)?;
            if let Some(earlier) = limited.insert(tool, number) {
                return Err(ValueError::new(format!("{rule}: rule {earlier} limits {tool} already")));
            }
        }
        Ok(())
    }

    fn check_order(&self, is_tool: &impl Fn(&str) -> bool) -> Result<(), ValueError> {
        let mut after: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (number, OrderRule { first, before, same_path }) in (1..).zip(&self.order) {
            let rule = format!("order rule {number}");
            let wrong = |what: String| Err(ValueError::new(format!("{rule}: {what}")));
            for tool in [first, before] {
                known(&rule, tool, is_tool)?;
                self.check_usable(&rule, tool)?;
            }
            if self.at_most.iter().any(|limit| limit.tool == *first && limit.n == 0) {
                return wrong(format!("at_most allows no call of {first}, so {before} could never run"));
            }
            if *same_path {
                if COMMANDS.contains(&first.as_str()) || COMMANDS.iter().chain(&READERS).any(|unfit| before == unfit) {
                    return wrong(format!("same_path needs tools that name a path, and {before} has to change it"));
                }
                continue;
            }
            after.entry(first).or_default().push(before);
            let (mut reached, mut next) = (BTreeSet::new(), vec![before.as_str()]);
            while let Some(tool) = next.pop() {
                if tool == first {
                    return wrong(format!("{first} and {before} wait for each other, so neither could run"));
                }
                if reached.insert(tool) {
                    next.extend(after.get(tool).into_iter().flatten());
                }
            }
        }
        Ok(())
    }

    /// Refuses a rule about a tool that the policy excludes.
    fn check_usable(&self, rule: &str, tool: &str) -> Result<(), ValueError> {
        match &self.tools {
            Some(tools) if !tools.contains(tool) => {
                Err(ValueError::new(format!("{rule}: `tools` excludes {tool}; add it there, or leave the rule out")))
            }
            _ => Ok(()),
        }
    }
}

fn check_section(text: &str) -> Result<(), ValueError> {
    let wrong = |what: String| Err(ValueError::new(format!("section_text: {what}")));
    if text.trim().is_empty() || text.len() > SECTION_BYTES {
        return wrong(format!("it has {} bytes; give 1 to {SECTION_BYTES}", text.len()));
    }
    let mut unknown = None;
    filled_section(text, |name| {
        unknown = unknown.take().or_else(|| (!name.is_empty() && !PARTS.contains(&name)).then(|| name.to_owned()));
        None
    });
    match unknown {
        Some(name) => {
            let name: String = name.chars().take(TOOL_CHARS).collect();
            wrong(format!("unknown part {{{name}}}; the parts are {{{}}}", PARTS.join("}, {")))
        }
        None => Ok(()),
    }
}

/// Tools with commands: they name no path.
const COMMANDS: [&str; 4] = ["shell_execute", "execute_script", "evaluate_python", "start_process"];
/// Tools that change no file.
const READERS: [&str; 6] = ["read_file", "ls", "glob", "grep", "which", "env"];

fn known(rule: &str, tool: &str, is_tool: &impl Fn(&str) -> bool) -> Result<(), ValueError> {
    match is_tool(tool) {
        true => Ok(()),
        false => {
            let tool: String = tool.chars().take(TOOL_CHARS).collect();
            Err(ValueError::new(format!("{rule}: unknown tool {tool:?}")))
        }
    }
}
