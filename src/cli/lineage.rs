use std::collections::{BTreeMap, BTreeSet};

use foldspace::SessionId;
use foldspace::event::{Isolation, Origin, SessionStarted};
use foldspace::session::name_of;
use foldspace::store::SessionEntry;
use serde_json::{Value, json};

use super::{BOLD, DIM, Failure, Globals, Out, open, text};

/// Shows the sessions as a tree of parents and children
#[derive(Debug, clap::Args)]
pub(super) struct LineageArgs {
    /// Shows only this session and its descendants
    session: Option<String>,
}

type Visit<'a> = dyn FnMut(&[bool], SessionId) -> Result<(), Failure> + 'a;

struct Member {
    entry: SessionEntry,
    name: String,
    backend: String,
    origin: Option<Origin>,
}

struct Forest {
    members: BTreeMap<SessionId, Member>,
    children: BTreeMap<SessionId, Vec<SessionId>>,
    roots: Vec<SessionId>,
    absent: BTreeMap<SessionId, String>,
}

impl LineageArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let opened = open::reading(globals)?;
        let mut forest = Forest::of(opened.sessions.list()?);
        if let Some(wanted) = &self.session {
            forest.roots = vec![opened.sessions.find(wanted)?.id];
        }
        out.show(&forest.as_json(), |out| forest.show(out))
    }
}

impl Forest {
    fn of(entries: Vec<SessionEntry>) -> Self {
        let mut forest =
            Self { members: BTreeMap::new(), children: BTreeMap::new(), roots: Vec::new(), absent: BTreeMap::new() };
        let order: Vec<SessionId> = entries.iter().map(|entry| entry.id).collect();
        forest.members.extend(entries.into_iter().map(|entry| (entry.id, member(entry))));
        for id in order {
            let origin = forest.members.get(&id).and_then(|member| member.origin.clone());
            let Some(origin) = origin else {
                forest.roots.push(id);
                continue;
            };
            forest.children.entry(origin.parent).or_default().push(id);
            if !forest.members.contains_key(&origin.parent)
                && forest.absent.insert(origin.parent, origin.parent_name).is_none()
            {
                forest.roots.push(origin.parent);
            }
        }
        forest.root_circles();
        forest
    }

    /// Makes the oldest session of a circle a root; only a forged file has circles.
    fn root_circles(&mut self) {
        let mut reached = BTreeSet::new();
        // Nothing in it can fail.
        let _ = self.walk(&mut |_, id| {
            reached.insert(id);
            Ok(())
        });
        while let Some(id) = self.members.keys().find(|id| !reached.contains(id)).copied() {
            self.roots.push(id);
            let mut waiting = vec![id];
            while let Some(id) = waiting.pop() {
                if reached.insert(id) {
                    waiting.extend(self.children.get(&id).into_iter().flatten());
                }
            }
        }
    }

    /// Visits each session in the order of the tree; without recursion, because generations have no limit. `visit`
    /// gets, for every generation above, whether more of it follow.
    fn walk(&self, visit: &mut Visit<'_>) -> Result<(), Failure> {
        // For every generation whether more of it follow.
        let mut waiting: Vec<(Vec<bool>, SessionId)> = self.roots.iter().rev().map(|id| (Vec::new(), *id)).collect();
        let mut seen = BTreeSet::new();
        while let Some((above, id)) = waiting.pop() {
            // A file that was imported may tell of parents in a circle.
            if !seen.insert(id) {
                continue;
            }
            visit(&above, id)?;
            let children = self.children.get(&id).map_or(&[][..], Vec::as_slice);
            for (back, child) in children.iter().rev().enumerate() {
                let mut line = above.clone();
                line.push(back > 0);
                waiting.push((line, *child));
            }
        }
        Ok(())
    }

    fn show(&self, out: &mut Out) -> Result<(), Failure> {
        if self.roots.is_empty() {
            return out.line("no sessions");
        }
        self.walk(&mut |above, id| {
            let mut line = String::new();
            if let Some((own, older)) = above.split_last() {
                older.iter().for_each(|more| line += if *more { "│  " } else { "   " });
                line += if *own { "├─ " } else { "└─ " };
            }
            line += &self.told(id, out);
            out.line(line)
        })
    }

    fn told(&self, id: SessionId, out: &Out) -> String {
        let Some(member) = self.members.get(&id) else {
            let name = self.absent.get(&id).map_or("", String::as_str);
            return out.paint(DIM, format!("{} ({}), not here", text::one_line(name, 80), id.short()));
        };
        let name = out.paint(BOLD, text::one_line(&member.name, 80));
        let backend = text::one_line(&member.backend, 20);
        let events = text::count(member.entry.head, "event");
        let begun = member.origin.as_ref().map_or(String::new(), |origin| match origin.isolation {
            Isolation::Full => {
                format!(", afresh when {} stood at {}", text::one_line(&origin.parent_name, 80), origin.at)
            }
            _ => format!(", forked at {}", origin.at),
        });
        format!("{name} ({}) {backend}, {events}{begun}", id.short())
    }

    fn as_json(&self) -> Vec<Value> {
        let mut told = Vec::new();
        // Nothing in it can fail.
        let _ = self.walk(&mut |above, id| {
            let member = self.members.get(&id);
            let absent = || self.absent.get(&id).cloned().unwrap_or_default();
            told.push(json!({
                "session": id,
                "name": member.map_or_else(absent, |member| member.name.clone()),
                "generation": above.len(),
                "here": member.is_some(),
                "backend": member.map(|member| &member.backend),
                "events": member.map(|member| member.entry.head),
                "origin": member.and_then(|member| member.origin.as_ref()),
            }));
            Ok(())
        });
        told
    }
}

fn member(entry: SessionEntry) -> Member {
    let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok).map(|started| started.event);
    let (backend, origin) = started.map_or_else(Default::default, |started| (started.backend, started.origin));
    Member { name: name_of(&entry), backend, origin, entry }
}
