//! The policies that bind a session's calls, with all that their decisions need.

mod paths;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use policy::filled_section;
pub use policy::{AtMostRule, OnFailure, OrderRule, OutsideTreatment, ToolPolicy};

use crate::engine::collections::OrdMap;
use crate::engine::counted::counted;
use crate::engine::event::{
    CallFinished, CallReason, CallStarted, CallStatus, CodecError, Common, Event, SessionStarted, ToolPolicySet,
    started_tool,
};
use crate::engine::reducer::Folding;
use crate::engine::{EntryPath, EventRef, Registry, Seq, Slice, State, ValueError};
use paths::PathList;

/// The policies for tools that bind a session: those of its ancestors, and its own. A call obeys all of them.
///
/// A decision about a call depends only on this slice, the files and the call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRules {
    /// Policies of the ancestors, outermost first.
    pub inherited: Vec<PolicyInForce>,
    /// The session's own policy.
    pub own: Option<PolicyInForce>,
    /// Position of the latest event that set or removed a policy; 0 for none.
    pub changed: Seq,
    /// Calls in flight of tools that a rule counts.
    open: BTreeMap<Seq, String>,
}

/// A policy with the calls since it was set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// The policy.
    pub policy: ToolPolicy,
    /// Calls of each tool with a limit, without refused ones.
    pub calls: BTreeMap<String, u64>,
    /// Tools that succeeded and that others wait for.
    pub done: BTreeSet<String>,
    /// Paths that these tools succeeded with, each with its call.
    pub paths: OrdMap<String, OrdMap<String, Seq>>,
}

/// Returns true if the result of a successful call is that of a command that failed.
#[doc(hidden)]
pub fn command_failed(result: &Value) -> bool {
    result["timed_out"] == true || result["exit_code"].as_i64().is_some_and(|code| code != 0)
}

impl PolicyInForce {
    fn of(policy: Value) -> Self {
        // A policy of a newer program binds, too: this one can't read it, and allows no tool.
        let unreadable = |_| ToolPolicy { tools: Some(BTreeSet::new()), ..ToolPolicy::default() };
        let policy = serde_json::from_value(policy).unwrap_or_else(unreadable);
        Self { policy, ..Self::default() }
    }

    /// Returns true if the policy needs the ends of a tool's calls.
    fn counts(&self, tool: &str) -> bool {
        self.policy.at_most.iter().any(|limit| limit.tool == tool) || self.policy.order.iter().any(|o| o.first == tool)
    }

    fn begin(&mut self, tool: &str) {
        if self.policy.at_most.iter().any(|limit| limit.tool == tool) {
            *self.calls.entry(tool.to_owned()).or_default() += 1;
        }
    }

    fn end(&mut self, tool: &str, call: Seq, ended: &CallFinished) {
        use CallReason::{Invalid, NotFound, OverLimit, Refused, TooLarge};
        let was_refused = matches!(ended.reason, Some(Invalid | NotFound | OverLimit | Refused | TooLarge));
        if let Some(count) = self.calls.get_mut(tool).filter(|_| was_refused) {
            *count = count.saturating_sub(1);
        }
        if ended.status != CallStatus::Ok || command_failed(&ended.result) {
            return;
        }
        let path = ["file_path", "path"].iter().find_map(|name| ended.result.get(name)?.as_str());
        for order in self.policy.order.iter().filter(|order| order.first == tool) {
            match path.filter(|_| order.same_path) {
                Some(path) => drop(self.paths.entry(tool.to_owned()).or_default().insert(path.to_owned(), call)),
                None => drop(self.done.insert(tool.to_owned())),
            }
        }
    }

    fn refusal(&self, tool: &str, later: u64) -> Option<String> {
        let ToolPolicy { tools, order, at_most, .. } = &self.policy;
        if let Some(tools) = tools.as_ref().filter(|tools| !tools.contains(tool)) {
            let tools = tools.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Some(match tools.is_empty() {
                true => format!("policy: tools allows no tool, and so not {tool}"),
                false => format!("policy: tools does not allow {tool}; allowed: {tools}"),
            });
        }
        let used = self.calls.get(tool).map_or(0, |count| count.saturating_sub(later));
        for (number, AtMostRule { n, .. }) in (1..).zip(at_most).filter(|(_, limit)| limit.tool == tool) {
            if used > *n {
                return Some(format!("policy: at_most rule {number}: {tool} has used up its {}", counted(*n, "call")));
            }
        }
        for (number, OrderRule { first, .. }) in
            (1..).zip(order).filter(|(_, order)| order.before == tool && !order.same_path)
        {
            if !self.done.contains(first) {
                return Some(format!("policy: order rule {number}: {first} must succeed before {tool}"));
            }
        }
        None
    }
}

impl ToolRules {
    /// Returns the policies of a state.
    pub fn of(state: &State) -> Self {
        state.slice::<Self>().cloned().unwrap_or_default()
    }

    /// Iterates over the policies, the outermost ancestor's first.
    pub fn iter(&self) -> impl Iterator<Item = &PolicyInForce> {
        self.inherited.iter().chain(&self.own)
    }

    /// Returns true without any policy.
    pub fn is_empty(&self) -> bool {
        self.inherited.is_empty() && self.own.is_none()
    }

    /// Returns the tools that all policies allow; `None` for all tools.
    pub fn tools(&self) -> Option<BTreeSet<String>> {
        self.iter().filter_map(|one| one.policy.tools.clone()).reduce(|some, others| &some & &others)
    }

    /// Returns the treatment of the changes of a call that fails.
    pub fn on_failure(&self) -> OnFailure {
        match self.iter().any(|one| one.policy.on_failure == Some(OnFailure::Undo)) {
            true => OnFailure::Undo,
            false => OnFailure::Keep,
        }
    }

    /// Returns the text for the model in place of the usual prompt section.
    pub fn section_text(&self) -> Option<&str> {
        self.iter().filter_map(|one| one.policy.section_text.as_deref()).last()
    }

    /// Returns true if a rule limits the number of a tool's calls.
    pub fn limits(&self, tool: &str) -> bool {
        self.iter().any(|one| one.policy.at_most.iter().any(|limit| limit.tool == tool))
    }

    /// Returns the reason to refuse a call in flight, by its tool alone. The state has to have the call's intent.
    pub fn refusal(&self, call: Seq, tool: &str) -> Option<String> {
        let later = self.open.range(call.saturating_add(1)..).filter(|(_, other)| *other == tool).count() as u64;
        self.iter().find_map(|one| one.refusal(tool, later))
    }

    /// Returns the same policies with the counts that they have in `then`; without counts if they were set later.
    #[must_use]
    pub fn with_counts_of(&self, then: &Self) -> Self {
        let counted = |now: &PolicyInForce| {
            let past = then.iter().find(|past| past.policy == now.policy).cloned().unwrap_or_default();
            PolicyInForce { policy: now.policy.clone(), ..past }
        };
        Self {
            inherited: self.inherited.iter().map(counted).collect(),
            own: self.own.as_ref().map(counted),
            changed: self.changed,
            open: BTreeMap::new(),
        }
    }

    fn set(&mut self, event: ToolPolicySet, seq: Seq) {
        if let Some(inherited) = event.inherited {
            let now = inherited.into_iter().map(PolicyInForce::of).collect();
            *self = Self { inherited: now, ..Self::default() }.with_counts_of(self);
        }
        self.own = (!event.policy.is_null()).then(|| PolicyInForce::of(event.policy));
        self.changed = seq;
    }

    fn each(&mut self, change: impl Fn(&mut PolicyInForce)) {
        self.inherited.iter_mut().chain(&mut self.own).for_each(change);
    }
}

impl Slice for ToolRules {
    const NAME: &'static str = "ToolRules";
}

struct ToolRulesFold(ToolRules);

impl Folding<ToolRules> for ToolRulesFold {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        let rules = &mut self.0;
        match event.common {
            Common::CallStarted => {
                let tool = started_tool(event.version, event.payload)?;
                if rules.iter().any(|one| one.counts(tool)) {
                    rules.open.insert(event.seq, tool.to_owned());
                    rules.each(|one| one.begin(tool));
                }
            }
            Common::CallFinished => {
                let Some((call, tool)) = event.call.and_then(|call| Some((call, rules.open.remove(&call)?))) else {
                    return Ok(());
                };
                let ended = CallFinished::decode(event.version, event.payload)?;
                rules.each(|one| one.end(&tool, call, &ended));
            }
            Common::Other if event.kind == ToolPolicySet::KIND => {
                rules.set(ToolPolicySet::decode(event.version, event.payload)?, event.seq);
            }
            Common::Other
                if event.kind == SessionStarted::KIND
                    && SessionStarted::decode(event.version, event.payload)?.begins_child() =>
            {
                // A child obeys its parent's policy, and can't change it.
                rules.inherited.extend(rules.own.take());
                (rules.open, rules.changed) = (BTreeMap::new(), 0);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> ToolRules {
        self.0
    }
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let kinds = [ToolPolicySet::KIND, SessionStarted::KIND, CallStarted::KIND, CallFinished::KIND];
    let open = |rules: ToolRules, _| Box::new(ToolRulesFold(rules)) as Box<dyn Folding<ToolRules>>;
    let registry = registry.event::<ToolPolicySet>()?.folded_slice::<ToolRules>(Some(&kinds), open)?;
    Ok(registry.ignoring(|rules: &ToolRules, event| {
        rules.is_empty() && rules.changed == 0 && event.kind != ToolPolicySet::KIND
    }))
}

/// The policies' rules for paths, compiled for a call of a tool.
#[derive(Debug, Clone, Default)]
pub struct PathRules {
    tool: String,
    read: Vec<PathList>,
    write: Vec<PathList>,
    /// By rule: its number, the tool that must succeed first, and the paths that it succeeded with.
    order: Vec<(usize, String, OrdMap<String, Seq>)>,
    /// The treatment of a command's changes outside of `write`.
    pub outside: Option<OutsideTreatment>,
}

impl PathRules {
    /// Compiles the rules.
    ///
    /// # Errors
    /// A glob that a newer program recorded and this one can't read.
    pub fn new(rules: &ToolRules, tool: &str) -> Result<Self, ValueError> {
        let mut compiled = Self { tool: tool.to_owned(), ..Self::default() };
        for PolicyInForce { policy, paths, .. } in rules.iter() {
            let list = |name, globs: &Option<Vec<String>>| globs.as_ref().map(|g| PathList::new(name, g)).transpose();
            compiled.read.extend(list("read", &policy.read)?);
            let write = list("write", &policy.write)?;
            if write.is_some() && compiled.outside != Some(OutsideTreatment::Undo) {
                compiled.outside = policy.commands_outside.or(Some(OutsideTreatment::Undo));
            }
            compiled.write.extend(write);
            for (number, order) in (1..).zip(&policy.order).filter(|(_, o)| o.same_path && o.before == tool) {
                let done = paths.get(&order.first).cloned().unwrap_or_default();
                compiled.order.push((number, order.first.clone(), done));
            }
        }
        Ok(compiled)
    }

    /// Returns the reason that the call may not read a file.
    pub fn read_refusal(&self, path: &EntryPath) -> Option<String> {
        self.read.iter().find_map(|list| list.refusal(path))
    }

    /// Returns the reason that the call may not change an entry.
    pub fn write_refusal(&self, path: &EntryPath) -> Option<String> {
        self.write.iter().find_map(|list| list.refusal(path))
    }

    /// Returns the reason that the call may not change an existing file yet.
    pub fn order_refusal(&self, path: &EntryPath) -> Option<String> {
        let shown = path.rooted();
        let missing = self.order.iter().find(|(_, _, done)| !done.contains_key(&shown));
        missing.map(|(number, first, _)| {
            format!("policy: order rule {number}: {first} must succeed with {shown} before {} changes it", self.tool)
        })
    }
}
