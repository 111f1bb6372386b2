use foldspace::event::{Isolation, SessionStarted};
use foldspace::reducers::MergeChoices;
use foldspace::store::SessionEntry;
use foldspace::tools::{MergeOutcome, preview_merge};
use foldspace::{Session, SessionId};
use serde::Serialize;
use serde_json::json;

use super::{Failure, Globals, OpenedStore, Out, OwnerClient, open, output, text, workspace};

/// Removes a session with its history; `gc` frees its space
///
/// Its children remain, with their history: the part that they share is removed with the last of them.
#[derive(Debug, clap::Args)]
#[command(aliases = ["rm", "delete"])]
pub(super) struct Remove {
    /// The session, by name or by the beginning of its id
    session: String,
    /// Removes it without asking
    #[arg(short, long)]
    yes: bool,
}

impl Remove {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        // The store is not held while the person decides.
        let (id, name, head, unmerged, children) = {
            let opened = open::reading(globals)?;
            let found = opened.find(&self.session)?;
            let unmerged = if self.yes { None } else { unmerged(&opened, &found.session) };
            let children = children(&opened, found.entry.id)?;
            if let Err(Failure::Told { message, .. }) = workspace::spec_of(&found.session) {
                output::note(&format!("{message}; its files remain"));
            }
            (found.entry.id, found.name, found.entry.head, unmerged, children)
        };
        let left = told(&children);
        let events = text::count(head, "event");
        let shown = text::one_line(&name, 80);
        let but = [unmerged, left].into_iter().flatten().map(|words| format!(" ({words})")).collect::<String>();
        let question = format!("remove session {shown} ({}) with its {events} for good?{but}", id.short());
        if !self.yes {
            let unasked = Failure::usage(format!("no terminal to ask on: {question}"));
            let unasked = unasked.with_hint("--yes removes it without asking");
            output::confirm(out, &question, "nothing was removed", unasked)?;
        }
        super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let removed = owner.client.delete(&format!("/v1/sessions/{id}")).await;
            owner.end().await;
            Ok::<(), Failure>(removed?)
        })??;
        if out.is_json() {
            return out.document(&json!({ "removed": id, "name": name, "events": head, "children": children }));
        }
        out.line(format!("removed {shown} ({}), {events}; `gc` frees its space", id.short()))?;
        told(&children).map_or(Ok(()), |words| out.line(words))
    }
}

#[derive(Serialize)]
struct RemovedChild {
    session: SessionId,
    name: String,
    isolation: Isolation,
}

fn children(opened: &OpenedStore, parent: SessionId) -> Result<Vec<RemovedChild>, Failure> {
    let child = |entry: &SessionEntry| {
        let origin = entry.origin.typed::<SessionStarted>()?.ok()?.event.origin?;
        let isolation = origin.isolation;
        Some(RemovedChild { session: entry.id, name: entry.name(), isolation })
    };
    Ok(opened.sessions.children(parent)?.iter().filter_map(child).collect())
}

const NAMED: usize = 10;

fn told(children: &[RemovedChild]) -> Option<String> {
    let mut names: Vec<String> = children.iter().take(NAMED).map(|child| text::one_line(&child.name, 80)).collect();
    if children.len() > NAMED {
        names.push(format!("{} more", children.len() - NAMED));
    }
    let names = text::list(&names);
    match children.len() {
        0 => None,
        1 => Some(format!("its child {names} remains, with its history")),
        _ => Some(format!("its children {names} remain, with their history")),
    }
}

fn unmerged(opened: &OpenedStore, session: &Session) -> Option<String> {
    let parent = opened.sessions.session(session.origin()?.parent).ok()?;
    let report = preview_merge(&parent, session, &MergeChoices::default()).ok()?;
    let count = match report.outcome {
        MergeOutcome::Nothing => return None,
        MergeOutcome::Merged => report.merged.len(),
        MergeOutcome::Conflicted => report.merged.len() + report.conflicts.len(),
    };
    let what = text::count(count as u64, "entry");
    (count > 0).then(|| format!("its changes of {what} are not merged into {}", text::one_line(parent.name(), 80)))
}
