//! Comparison of a call with its recording.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::foreign::{ForeignOutcome, ForeignTool};
use super::past::{PastRun, RecordedCall, path_of};
use super::rules::{NormalRules, normal_texts};
use crate::engine::event::{CallStatus, Node, WriteFile};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::error::SessionError;
use crate::reducers::{Change, Entry, VirtualFileSystem};
use crate::tools::environment::EnvironmentDifference;

/// A difference between two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "differs", rename_all = "lowercase")]
pub enum Divergence {
    /// The call differs.
    Call {
        /// The tool and the parameters as recorded.
        was: Value,
        /// The tool and the parameters now.
        is: Value,
    },
    /// The status differs.
    Status {
        /// As recorded.
        was: CallStatus,
        /// Now.
        is: CallStatus,
    },
    /// The error message differs.
    Message {
        /// As recorded.
        was: String,
        /// Now.
        is: String,
    },
    /// A part of the result differs: a stream, an exit code, ...
    Result {
        /// The part, as a JSON pointer; empty for the whole.
        at: String,
        /// As recorded; null if absent.
        was: Value,
        /// Now; null if absent.
        is: Value,
    },
    /// The own events that it recorded differ.
    Event {
        /// The place in the list of its events, each with `kind` and `data`, as a JSON pointer.
        at: String,
        /// As recorded; null if absent.
        was: Value,
        /// Now; null if absent.
        is: Value,
    },
    /// The entry at a path differs afterwards.
    File {
        /// The change from the recorded entry to the present one.
        #[serde(flatten)]
        change: Change,
    },
}

pub(super) struct RunComparison<'a> {
    was: &'a PastRun,
    pub(super) is: &'a PastRun,
    rules: &'a NormalRules,
    /// Names that differ between the runs, each with its common name: of the first and of the second run.
    names: [Vec<(String, &'static str)>; 2],
}

impl<'a> RunComparison<'a> {
    /// Compares two runs. Commands of the second saw the workspace's root at any of `roots`.
    pub(super) fn between(was: &'a PastRun, is: &'a PastRun, rules: &'a NormalRules, roots: &[String]) -> Self {
        let names = |roots: &[String], past: &PastRun| {
            let roots = roots.iter().map(|root| (root.clone(), "<root>"));
            roots.chain([(past.id().to_string(), "<session>")]).collect()
        };
        let names = [names(rules.roots(), was), names(roots, is)];
        Self { was, is, rules, names }
    }

    pub(super) fn calls(&self, was: &RecordedCall, is: &RecordedCall) -> Result<Vec<Divergence>, SessionError> {
        let (Some((then, old)), Some((now, new))) = (&was.outcome, &is.outcome) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        if old.status != new.status {
            found.push(Divergence::Status { was: old.status, is: new.status });
        }
        if self.text(0, &old.message) != self.text(1, &new.message) {
            found.push(Divergence::Message { was: old.message.clone(), is: new.message.clone() });
        }
        // With different statuses, only one has a result.
        if old.status == new.status {
            self.results(&was.tool, &old.result, &new.result, &mut found);
        }
        self.events(was, is, &mut found);
        let paths: BTreeSet<EntryPath> = was.paths().chain(is.paths()).collect();
        if !paths.is_empty() {
            let (old, new) = (self.was.files_at(*then)?, self.is.files_at(*now)?);
            for path in paths {
                found.extend(self.entry(&path, old.get(&path), new.get(&path)));
            }
        }
        Ok(found)
    }

    /// Compares a call of another program with the call that was made in its place: the status, the output of a
    /// command, and the files that the transcript states.
    pub(super) fn foreign(&self, was: &RecordedCall, is: &RecordedCall) -> Result<Vec<Divergence>, SessionError> {
        let (Some((_, old)), Some((now, new))) = (&was.outcome, &is.outcome) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        if old.status == CallStatus::Ok && new.status != CallStatus::Ok {
            found.push(Divergence::Status { was: old.status, is: new.status });
            found.push(Divergence::Message { was: String::new(), is: new.message.clone() });
        } else if ForeignTool::named(&was.tool).is_some_and(ForeignTool::changes_when_failing) {
            let (then, again) = (ForeignOutcome::of(old), ForeignOutcome::of(new));
            if let (Some(was), Some(is)) = (then.output, again.output)
                && self.text(0, was.trim()) != self.text(1, is.trim())
            {
                let (was, is) = (was.trim().into(), is.trim().into());
                found.push(Divergence::Result { at: "/output".to_owned(), was, is });
            }
            match (old.status, then.exit_code, again.exit_code) {
                (CallStatus::Error, None, Some(0)) => {
                    found.push(Divergence::Status { was: old.status, is: new.status });
                }
                (_, Some(was), Some(is)) if was != is => {
                    found.push(Divergence::Result { at: "/exit_code".to_owned(), was: was.into(), is: is.into() });
                }
                _ => {}
            }
        }
        let files = self.is.files_at(*now)?;
        for (path, stated) in stated_by(was) {
            let is = files.get(&path);
            let same = |(was, is): (&Entry, &Entry)| was.node.content() == is.node.content();
            if !stated.as_ref().zip(is).is_some_and(same) {
                found.extend(self.entry(&path, stated.as_ref(), is));
            }
        }
        Ok(found)
    }

    pub(super) fn asks(&self, was: &RecordedCall, is: &RecordedCall) -> Option<Divergence> {
        let of = |side, call: &RecordedCall| {
            let params = normal_texts(&call.params, &|text| self.named(side, text));
            let params = if params.is_null() { Value::Object(Default::default()) } else { params };
            serde_json::json!({ "tool": call.tool, "params": params })
        };
        let shown = |call: &RecordedCall| serde_json::json!({ "tool": call.tool, "params": call.params });
        (of(0, was) != of(1, is)).then(|| Divergence::Call { was: shown(was), is: shown(is) })
    }

    /// Compares each container of the recorded calls from `start` to `then` with the last one of the second run.
    pub(super) fn environment(
        &self,
        (start, then): (Seq, Seq),
        now: Seq,
    ) -> Result<Vec<EnvironmentDifference>, SessionError> {
        let Some(last) = self.is.containers(now, now)?.pop() else { return Ok(Vec::new()) };
        let mut found: Vec<EnvironmentDifference> = Vec::new();
        for was in self.was.containers(start, then)? {
            for new in EnvironmentDifference::between(&was, &last) {
                if !found.contains(&new) {
                    found.push(new);
                }
            }
        }
        Ok(found)
    }

    pub(super) fn files(&self, then: Seq, now: Seq) -> Result<Vec<Change>, SessionError> {
        let (old, new): (VirtualFileSystem, VirtualFileSystem) = (self.was.files_at(then)?, self.is.files_at(now)?);
        let differing = old.diff(&new).into_iter().filter_map(|change| {
            let path = change.path();
            match self.entry(path, old.get(path), new.get(path)) {
                Some(Divergence::File { change }) => Some(change),
                _ => None,
            }
        });
        Ok(differing.collect())
    }

    /// Reports the deepest places where results differ, for example one stream instead of the whole result.
    fn results(&self, tool: &str, was: &Value, is: &Value, found: &mut Vec<Divergence>) {
        let normal = |side: usize, value: &Value| self.rules.normal_result(tool, value, &|text| self.text(side, text));
        let parts = parts((&normal(0, was), &normal(1, is)), (was, is));
        found.extend(parts.map(|(at, was, is)| Divergence::Result { at, was, is }));
    }

    fn events(&self, was: &RecordedCall, is: &RecordedCall, found: &mut Vec<Divergence>) {
        let (was, is) = (self.was.own_events(was), self.is.own_events(is));
        let normal = |side: usize, events: &Value| normal_texts(events, &|text| self.text(side, text));
        let parts = parts((&normal(0, &was), &normal(1, &is)), (&was, &is));
        found.extend(parts.map(|(at, was, is)| Divergence::Event { at, was, is }));
    }

    fn entry(&self, path: &EntryPath, was: Option<&Entry>, is: Option<&Entry>) -> Option<Divergence> {
        let same = match (was, is) {
            (None, None) => true,
            (Some(was), Some(is)) => {
                let as_texts = || self.rules.takes_for_text(path) && self.same_text(&was.node, &is.node);
                was.node == is.node || as_texts()
            }
            _ => false,
        };
        if same || self.rules.ignores(path) {
            return None;
        }
        let path = path.clone();
        let change = match (was.cloned(), is.cloned()) {
            (Some(before), Some(after)) => Change::Changed { path, before, after },
            (Some(before), None) => Change::Removed { path, before },
            (None, Some(after)) => Change::Added { path, after },
            (None, None) => return None,
        };
        Some(Divergence::File { change })
    }

    fn same_text(&self, was: &Node, is: &Node) -> bool {
        let text = |past: &PastRun, node: &Node| match node {
            Node::File { content, mode, text: true, incomplete: false, .. } => {
                let text = String::from_utf8(past.content(content).ok()?.to_vec()).ok()?;
                Some((text, mode.is_executable()))
            }
            _ => None,
        };
        match (text(self.was, was), text(self.is, is)) {
            (Some((old, a)), Some((new, b))) => a == b && self.text(0, &old) == self.text(1, &new),
            _ => false,
        }
    }

    fn text(&self, side: usize, text: &str) -> String {
        self.rules.normal(&self.named(side, text))
    }

    /// Replaces the names that differ between the runs, so that equal texts compare as equal.
    fn named(&self, side: usize, text: &str) -> String {
        let names = self.names[side].iter().filter(|(name, _)| !name.is_empty() && name != "/");
        names.fold(text.to_owned(), |text, (name, stands_for)| text.replace(name.as_str(), stands_for))
    }
}

/// Returns the deepest places where two values differ, each with the parts that are shown for it.
fn parts<'a>(
    (old, new): (&Value, &Value),
    (was, is): (&'a Value, &'a Value),
) -> impl Iterator<Item = (String, Value, Value)> + use<'a> {
    let mut places = Vec::new();
    differing(old, new, String::new(), &mut places);
    let part = |whole: &Value, at: &str| whole.pointer(at).cloned().unwrap_or_default();
    places.into_iter().map(move |at| (part(was, &at), part(is, &at), at)).map(|(was, is, at)| (at, was, is))
}

/// Returns the files that a transcript states after a call. A transcript lacks permission bits.
fn stated_by(call: &RecordedCall) -> BTreeMap<EntryPath, Option<Entry>> {
    let mut stated = BTreeMap::new();
    for event in &call.changes {
        if let Some(Ok(write)) = event.typed::<WriteFile>() {
            let (created_at, updated_at) = (event.time, event.time);
            let entry = Entry { node: write.event.node, version: 1, created_at, updated_at };
            stated.insert(write.event.path, Some(entry));
        } else if let Some(path) = path_of(&event.view()) {
            stated.insert(path, None);
        }
    }
    stated
}

fn differing(was: &Value, is: &Value, at: String, places: &mut Vec<String>) {
    match (was, is) {
        (Value::Object(old), Value::Object(new)) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let below = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                match (old.get(name), new.get(name)) {
                    (Some(old), Some(new)) => differing(old, new, below, places),
                    _ => places.push(below),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (number, (old, new)) in old.iter().zip(new).enumerate() {
                differing(old, new, format!("{at}/{number}"), places);
            }
        }
        (old, new) if old == new => {}
        _ => places.push(at),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compare_names_deepest_differences() {
        let places = |was: Value, is: Value| {
            let mut places = Vec::new();
            differing(&was, &is, String::new(), &mut places);
            places
        };
        assert_eq!(places(json!({ "a": 1 }), json!({ "a": 1 })), Vec::<String>::new());
        assert_eq!(places(json!(1), json!(2)), [""]);
        assert_eq!(places(json!({ "a/b": 1, "c": 2 }), json!({ "a/b": 2 })), ["/a~1b", "/c"]);
        assert_eq!(places(json!([1, { "x": [] }]), json!([1, { "x": [1] }])), ["/1/x"]);
        assert_eq!(places(json!([1]), json!({})), [""]);
    }
}
