use std::collections::{BTreeMap, BTreeSet};

use foldspace::SessionId;
use foldspace::event::{Isolation, Origin};
use foldspace::hub::operations::{KnownSessions, SessionDocument, listed};
use foldspace::store::SessionEntry;
use serde_json::{Value, json};

use super::{BOLD, DIM, Failure, Globals, Out, open, text};

struct Forest {
    known: KnownSessions,
    roots: Vec<SessionId>,
    absent: BTreeMap<SessionId, String>,
}

/// Shows all sessions as a tree of parents and children, or one session with its descendants.
pub(super) fn show(wanted: Option<&str>, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
    let opened = open::reading(globals)?;
    let mut forest = Forest::of(opened.sessions.list()?);
    if let Some(wanted) = wanted {
        forest.roots = vec![opened.sessions.find(wanted)?.id];
    }
    out.show(&forest.as_json(), |out| forest.show(out))
}

impl Forest {
    fn of(entries: Vec<SessionEntry>) -> Self {
        let order: Vec<SessionId> = entries.iter().map(|entry| entry.id).collect();
        let (known, mut roots, mut absent) = (KnownSessions::of(entries), Vec::new(), BTreeMap::new());
        for &id in &order {
            match known.entries.get(&id).and_then(|(_, origin)| origin.as_ref()) {
                None => roots.push(id),
                Some(Origin { parent, .. }) if known.entries.contains_key(parent) => {}
                Some(Origin { parent, parent_name, .. }) => {
                    if absent.insert(*parent, parent_name.clone()).is_none() {
                        roots.push(*parent);
                    }
                }
            }
        }
        // A forged file may claim a cycle of parents: the oldest session of the cycle is a root then.
        roots.extend(order);
        Self { known, roots, absent }
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
            for (back, (_, child)) in self.known.children.get(&id).into_iter().flatten().rev().enumerate() {
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
        let Some((entry, origin)) = self.known.entries.get(&id) else {
            let name = self.absent.get(&id).map_or("", String::as_str);
            return out.paint(DIM, format!("{} ({}), removed", text::one_line(name, 80), id.short()));
        };
        let SessionDocument { name, backend, events, .. } = listed(entry);
        let name = out.paint(BOLD, text::one_line(&name, 80));
        let (backend, events) = (text::one_line(&backend, 20), text::count(events, "event"));
        let begun = origin.as_ref().map_or(String::new(), |origin| match origin.isolation {
            Isolation::Full => {
                format!(", fresh when {} was at {}", text::one_line(&origin.parent_name, 80), origin.at)
            }
            _ => format!(", forked at {}", origin.at),
        });
        format!("{name} ({}) {backend}, {events}{begun}", id.short())
    }

    fn as_json(&self) -> Vec<Value> {
        let row = |(above, id): (Vec<bool>, SessionId)| {
            let (known, origin) = self.known.entries.get(&id).map(|(entry, origin)| (listed(entry), origin)).unzip();
            json!({
                "session": id,
                "name": known.as_ref().map(|known| &known.name).or(self.absent.get(&id)),
                "generation": above.len(),
                "here": known.is_some(),
                "backend": known.as_ref().map(|known| &known.backend),
                "events": known.as_ref().map(|known| known.events),
                "origin": origin,
            })
        };
        self.walk().map(row).collect()
    }
}
