use std::collections::{BTreeMap, BTreeSet};

use foldspace::SessionId;
use foldspace::event::{Isolation, Origin, SessionStarted};
use foldspace::session::name_of;
use foldspace::store::SessionEntry;
use serde_json::{Value, json};

use super::{BOLD, DIM, Failure, Globals, Out, open, text};

/// Shows the sessions as a tree of parents and children, like `sessions --tree`
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct LineageArgs {
    /// Shows only this session and its descendants
    pub(super) session: Option<String>,
}

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
        for &id in &order {
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
        // A forged file may claim a cycle of parents: the oldest session of the cycle is a root then.
        forest.roots.extend(order);
        forest
    }

    /// Returns each session once, in tree order. The flags are true if more siblings follow, for each ancestor and for
    /// the session. Does not recurse, because the depth is not limited.
    fn walk(&self) -> impl Iterator<Item = (Vec<bool>, SessionId)> {
        let mut waiting: Vec<_> = self.roots.iter().rev().map(|id| (Vec::new(), *id)).collect();
        let mut seen = BTreeSet::new();
        std::iter::from_fn(move || {
            let (above, id) = loop {
                let (above, id) = waiting.pop()?;
                if seen.insert(id) {
                    break (above, id);
                }
            };
            for (back, child) in self.children.get(&id).into_iter().flatten().rev().enumerate() {
                waiting.push(([&above[..], &[back > 0]].concat(), *child));
            }
            Some((above, id))
        })
    }

    fn show(&self, out: &mut Out) -> Result<(), Failure> {
        if self.roots.is_empty() {
            return out.line("no sessions");
        }
        for (above, id) in self.walk() {
            let mut line = String::new();
            if let Some((own, older)) = above.split_last() {
                older.iter().for_each(|more| line += if *more { "│  " } else { "   " });
                line += if *own { "├─ " } else { "└─ " };
            }
            line += &self.told(id, out);
            out.line(line)?;
        }
        Ok(())
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
                format!(", fresh when {} was at {}", text::one_line(&origin.parent_name, 80), origin.at)
            }
            _ => format!(", forked at {}", origin.at),
        });
        format!("{name} ({}) {backend}, {events}{begun}", id.short())
    }

    fn as_json(&self) -> Vec<Value> {
        let row = |(above, id): (Vec<bool>, SessionId)| {
            let member = self.members.get(&id);
            json!({
                "session": id,
                "name": member.map(|member| &member.name).or(self.absent.get(&id)),
                "generation": above.len(),
                "here": member.is_some(),
                "backend": member.map(|member| &member.backend),
                "events": member.map(|member| member.entry.head),
                "origin": member.and_then(|member| member.origin.as_ref()),
            })
        };
        self.walk().map(row).collect()
    }
}

fn member(entry: SessionEntry) -> Member {
    let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok).map(|started| started.event);
    let (backend, origin) = started.map_or_else(Default::default, |started| (started.backend, started.origin));
    Member { name: name_of(&entry), backend, origin, entry }
}
