use std::sync::Arc;

use foldspace::event::{FileMode, Node};
use foldspace::history::{PathChange, SessionChange, history_through_merges, path_history};
use foldspace::reducers::{Change, Entry};
use foldspace::view;
use foldspace::{EntryPath, Seq, Session, SessionId, VirtualFileSystem};
use serde_json::{Value, json};

use super::blame::{where_of, why_of};
use super::{BAD, Cell, DIM, Failure, GOOD, NOTED, ODD, Out, TextTable, diffs, text, tree};

/// The options of `log` for the changes of a file.
#[derive(Debug, clap::Args)]
pub(super) struct HistoryArgs {
    /// Shows every change of this file or directory instead of events, and follows a file through renames
    #[arg(conflicts_with_all = ["calls", "kind", "runs", "messages", "claims", "run", "agent", "glob", "follow"])]
    path: Option<String>,
    /// Shows the lines of each change of the file, as a patch
    #[arg(short, long, requires = "path")]
    patch: bool,
    /// Shows the child's own changes of the file before each merge, as CHILD@EVENT
    #[arg(long, requires = "path")]
    follow_merges: bool,
}

impl HistoryArgs {
    /// Returns the path, if one is given.
    pub(super) fn path(&self) -> Result<Option<EntryPath>, Failure> {
        self.path.as_deref().map(tree::path).transpose()
    }

    /// Shows the changes of a path up to a position: the last `limit`, or all.
    pub(super) fn show(
        &self,
        session: &Session,
        (path, until): (&EntryPath, Seq),
        (limit, reverse): (Option<usize>, bool),
        out: &mut Out,
    ) -> Result<(), Failure> {
        let mut changes = self.changes(session, path, until)?;
        if changes.is_empty() && !path.is_root() {
            let what = format!("{} did not exist at any position up to {until}", path.rooted());
            let meant = tree::meant(&VirtualFileSystem::of(&session.state_at(until)?), path);
            return Err(Failure::missing(what)
                .with_hint(format!("{meant}`foldspace ls {} -R` lists the files", session.id().short())));
        }
        changes.drain(..changes.len().saturating_sub(limit.unwrap_or(usize::MAX)));
        if reverse {
            changes.reverse();
        }
        if out.is_json() {
            let list: Result<Vec<Value>, Failure> =
                changes.iter().map(|change| self.as_json(session, change)).collect();
            return out.document(&list?);
        }
        if !self.patch {
            let mut table = TextTable::default();
            changes.iter().for_each(|change| table.row(cells(session.id(), change)));
            return table.show(out);
        }
        for (number, change) in changes.iter().enumerate() {
            if number > 0 {
                out.line("")?;
            }
            let mut table = TextTable::default();
            table.row(cells(session.id(), change));
            table.show(out)?;
            diffs::show(&patches(session, &change.change)?, out)?;
        }
        Ok(())
    }

    fn changes(&self, session: &Session, path: &EntryPath, until: Seq) -> Result<Vec<SessionChange>, Failure> {
        if self.follow_merges {
            return Ok(history_through_merges(session, path, until)?);
        }
        let (id, name): (_, Arc<str>) = (session.id(), Arc::from(session.name()));
        let own = |change| SessionChange { session: id, session_name: Arc::clone(&name), change, child_removed: false };
        Ok(path_history(session, path, until)?.into_iter().map(own).collect())
    }

    fn as_json(&self, session: &Session, by: &SessionChange) -> Result<Value, Failure> {
        let change = &by.change;
        let mut value = match self.follow_merges {
            true => serde_json::to_value(by).unwrap_or_default(),
            false => serde_json::to_value(change).unwrap_or_default(),
        };
        value["what"] = json!(change.what());
        if self.patch {
            value["patch"] = patches(session, change)?.into();
        }
        Ok(value)
    }
}

fn patches(session: &Session, change: &PathChange) -> Result<String, Failure> {
    // A patch shows only the node; the entry's other fields do not matter.
    let entry =
        |node: &Node| Entry { node: node.clone(), version: 0, created_at: change.time, updated_at: change.time };
    let path = change.path.clone();
    let change = match (change.before.as_ref().map(entry), change.after.as_ref().map(entry)) {
        (None, Some(after)) if change.moved_from.is_none() => Change::Added { path, after },
        (Some(before), None) if change.moved_to.is_none() => Change::Removed { path, before },
        (Some(before), Some(after)) => Change::Changed { path, before, after },
        _ => return Ok(String::new()),
    };
    Ok(view::change(session, &change)?.patch)
}

fn cells(asked: SessionId, by: &SessionChange) -> [Cell; 7] {
    let change = &by.change;
    let style = match (&change.before, &change.after) {
        (None, _) => GOOD,
        (_, None) => BAD,
        _ => ODD,
    };
    let agent = if change.agent.is_empty() { "-".to_owned() } else { text::one_line(&change.agent, 40) };
    [
        Cell::right(where_of(asked, by)),
        Cell::left(text::moment(change.time)).styled(DIM),
        Cell::left(why_of(by)).styled(NOTED),
        Cell::left(agent),
        Cell::left(change.what()).styled(style),
        Cell::right(sizes(change)),
        Cell::left(place(change)),
    ]
}

fn sizes(change: &PathChange) -> String {
    let size = |node: &Node| match node {
        Node::File { size, .. } => text::size(*size),
        Node::Symlink { .. } => "link".to_owned(),
        Node::Directory { .. } => "directory".to_owned(),
        Node::Special { special } => special.name().to_owned(),
    };
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => format!("{} -> {}", size(before), size(after)),
        (Some(only), None) | (None, Some(only)) => size(only),
        (None, None) => String::new(),
    }
}

fn place(change: &PathChange) -> String {
    let mut words = change.path.rooted();
    if let Some(from) = &change.moved_from {
        words.push_str(&format!(" from {}", from.rooted()));
    }
    if let Some(to) = &change.moved_to {
        words.push_str(&format!(" to {}", to.rooted()));
    }
    if let Some(by) = &change.by {
        words.push_str(&format!(" (with {})", by.rooted()));
    }
    let mode = |node: &Option<Node>| node.as_ref()?.mode();
    match (mode(&change.before), mode(&change.after)) {
        (Some(FileMode::FILE), Some(FileMode::EXECUTABLE)) => words.push_str(" (executable now)"),
        (Some(FileMode::EXECUTABLE), Some(FileMode::FILE)) => words.push_str(" (no longer executable)"),
        (Some(before), Some(after)) if before != after => {
            words.push_str(&format!(" (mode {before} -> {after})"));
        }
        _ => {}
    }
    if matches!(change.after, Some(Node::File { incomplete: true, .. })) {
        words.push_str(" (contents not stored)");
    }
    words
}
