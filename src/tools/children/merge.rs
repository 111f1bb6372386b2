//! Atomic merge of a child's changes into its parent's workspace and history.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backends::WorkspaceSpec;
use crate::engine::commit::Commit;
use crate::engine::event::{
    ChildMerged, DeleteEntry, Event, Isolation, MergeConflict, MergeConflicted, MergedEntry, Node, SessionStarted,
    SliceDeclared, WriteFile,
};
use crate::engine::id::{CommitId, Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::reducers::{MergeChoices, MergePlan, MergeStep, Merges, VirtualFileSystem, directories_above, plan_merge};
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::declared;
use crate::tools::error::WorkspaceError;
use crate::tools::off_thread::off_thread;
use crate::tools::workspace::hard_links::relink;
use crate::tools::workspace::limits::began;
use crate::tools::workspace::managed::Extent;
use crate::tools::workspace::plan::{NewContents, PlannedChange, after, link_steps};
use crate::tools::workspace::project::Landing;

/// Result of a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MergeReport {
    /// Child session.
    #[schemars(with = "String")]
    pub child: SessionId,
    /// Name of the child.
    pub child_name: String,
    /// Position in the child's history before the merged changes.
    pub base: Seq,
    /// Position of the last merged changes.
    pub child_at: Seq,
    /// Outcome of the merge: `nothing`, `merged` or `conflicted`.
    #[schemars(with = "String")]
    pub outcome: MergeOutcome,
    /// Position of the merge's event in the parent; null if nothing was recorded.
    pub seq: Option<Seq>,
    /// Entries written and removed, in a preview the planned ones: `path`, `from`, `both`, `change`.
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    pub merged: Vec<MergedChange>,
    /// Entries that both sides changed: `path`, `kind`, `base`, `ours`, `theirs`, `resolved`.
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    pub conflicts: Vec<MergeConflict>,
    /// Sockets and devices of the child, which are not merged; and entries that could not be made for it, which stay.
    #[schemars(with = "Vec<String>")]
    pub left_out: Vec<EntryPath>,
    /// Generated files that both sides changed: the parent's versions stay.
    #[schemars(with = "Vec<String>")]
    pub generated: Vec<EntryPath>,
    /// Declared slices with the child's changes.
    pub slices: Vec<String>,
    /// Paths, globs and hunks with a chosen side but without a conflict.
    #[schemars(with = "Vec<String>")]
    pub unused: Vec<EntryPath>,
    /// True if an earlier request with the same `call_id` made the merge. `left_out`, `generated`, `unused`, and
    /// `merged` of a conflict are then empty, because they are not recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Outcome of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MergeOutcome {
    /// The child has no changes since its last merge or its beginning.
    Nothing,
    /// The changes are merged, or could be in a preview.
    Merged,
    /// Conflicts need a choice; no file was changed.
    Conflicted,
}

/// Change of one entry in a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedChange {
    /// Path and origin of the entry.
    #[serde(flatten)]
    pub entry: MergedEntry,
    /// Kind of the change: `added`, `changed` or `removed`.
    pub change: Cow<'static, str>,
}

/// Returns the result that [`merge_child`] would have now, and changes nothing. Unrecorded external changes don't
/// count.
///
/// # Errors
/// [`WorkspaceError::NotAChild`], [`WorkspaceError::UnfitRule`], and errors of the store.
pub fn preview_merge(parent: &Session, child: &Session, choices: &MergeChoices) -> Result<MergeReport, WorkspaceError> {
    let base = base_of(parent, child)?;
    Ok(planned(parent, child, base, choices)?.0)
}

/// Merges a child's changes since its fork or last merge into the runner's session: its parent or an earlier ancestor.
///
/// - Changes of one side are applied; equal changes of both sides change nothing.
/// - Texts that both sides changed are merged line by line; the executable bit is merged separately.
/// - A removed directory goes once it is empty; entries that the other side created or changed in it are conflicts.
/// - A file on one side and a directory on the other are a conflict, with all entries below.
/// - If both sides changed a generated file ([`MergeChoices`]), the parent's version stays.
/// - A choice decides only conflicts: in a text the lines that both sides changed, else the whole entry.
///
/// One commit holds all events: a [`ChildMerged`], which names the child's event behind each file, and the events of
/// the files. With open conflicts no file changes, and a [`MergeConflicted`] is recorded unless it repeats the last
/// one. The child is only read: external changes in its workspace count once one of its runners has recorded them.
/// External changes in the parent are recorded first.
///
/// The merge is atomic. If the process dies half-way, the next opening of the workspace restores the files, or finds
/// all recorded. Concurrent external changes stay and are found as drift. Dropping the future does not stop a merge
/// that has begun to change files. Only contents combined from both sides are in memory at once.
///
/// # Errors
/// [`WorkspaceError`]; no file is changed then.
pub async fn merge_child(
    parent: &ToolRunner,
    child: &Session,
    choices: &MergeChoices,
) -> Result<MergeReport, WorkspaceError> {
    merge_child_once(parent, child, choices, None).await
}

/// Merges like [`merge_child`]. A second merge with the same id returns the report of the first.
///
/// # Errors
/// [`SessionError::OtherRequest`] if the request with the id merged another child; errors of [`merge_child`].
#[doc(hidden)]
pub async fn merge_child_once(
    parent: &ToolRunner,
    child: &Session,
    choices: &MergeChoices,
    id: Option<CommitId>,
) -> Result<MergeReport, WorkspaceError> {
    let session = parent.session();
    let base = session.aside(|| base_of(session, child))?;
    let turn = parent.runtime().lock_workspace().await;
    if let Some(id) = id
        && let Some(earlier) = session.aside(|| merged_before(session, child, id))?
    {
        return Ok(earlier);
    }
    parent.machine().record_drift(session, Extent::All).await?;
    let looking = parent.runtime().lock_scan().await;
    let (parent, child, choices) = (parent.clone(), child.clone(), choices.clone());
    let merge = move || merge_now(&parent, &child, base, (&choices, id));
    off_thread((turn, looking), WorkspaceError::Stopped, merge).await
}

fn merge_now(
    parent: &ToolRunner,
    child: &Session,
    base: Seq,
    (choices, id): (&MergeChoices, Option<CommitId>),
) -> Result<MergeReport, WorkspaceError> {
    let (mut report, plan, slices) = planned(parent.session(), child, base, choices)?;
    report.seq = match report.outcome {
        MergeOutcome::Nothing => None,
        MergeOutcome::Conflicted => note_conflicts(parent.session(), &report, id)?,
        MergeOutcome::Merged => {
            let theirs = child.state_at(report.child_at)?;
            Some(apply(parent, &report, (plan, slices), (&theirs, commit_with(parent.session(), id)))?)
        }
    };
    Ok(report)
}

/// Returns the merge base of a child that was never merged: the end of the common history.
fn base_of(parent: &Session, child: &Session) -> Result<Seq, WorkspaceError> {
    let stranger = || WorkspaceError::NotAChild { child: child.name().to_owned(), parent: parent.name().to_owned() };
    if parent.id() == child.id() {
        return Err(WorkspaceError::Itself(child.name().to_owned()));
    }
    if let Some(at) = began_for(parent, child) {
        return Ok(at);
    }
    let origin = child.origin().ok_or_else(stranger)?;
    match origin.isolation {
        Isolation::Full if origin.parent == parent.id() => Ok(began(child)?),
        // An import may contain any position.
        Isolation::Fork if origin.parent == parent.id() => Ok(origin.at.min(child.head()?)),
        _ => Ok(common_past(parent, child)?.ok_or_else(stranger)?),
    }
}

/// Returns the start of a fork that works in a user's directory, which receives the session's changes since then.
fn began_for(fork: &Session, session: &Session) -> Option<Seq> {
    let own = fork.origin().filter(|own| own.parent == session.id() && own.isolation == Isolation::Fork)?;
    WorkspaceSpec::directory_of(fork.started()).map(|_| own.at)
}

/// Returns the end of the history that a session shares with an ancestor; `None` without one. Sessions in between may
/// be removed: the session's own history has their first events.
fn common_past(above: &Session, session: &Session) -> Result<Option<Seq>, SessionError> {
    let fork = above.origin().filter(|origin| origin.isolation == Isolation::Fork);
    let began = fork.map_or(1, |origin| origin.at.saturating_add(1));
    let Ok(theirs) = above.event(began) else { return Ok(None) };
    let (mut is_same, mut last) = (false, None);
    session.visit(began, &mut |event| {
        if event.seq == began {
            let same = event.kind == SessionStarted::KIND && *event.kind == *theirs.event.kind;
            is_same = same && event.time == theirs.time && event.payload == &theirs.event.bytes[..];
            return if is_same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        }
        match event.kind == SessionStarted::KIND {
            false => ControlFlow::Continue(()),
            true => {
                last = Some(event.seq - 1);
                ControlFlow::Break(())
            }
        }
    })?;
    Ok(last.filter(|_| is_same))
}

fn planned(
    parent: &Session,
    child: &Session,
    base: Seq,
    choices: &MergeChoices,
) -> Result<(MergeReport, MergePlan, Vec<SliceDeclared>), WorkspaceError> {
    let (state, theirs) = (parent.state()?, child.state()?);
    let last = state.slice::<Merges>().and_then(|merges| merges.last_merge(child.id()));
    let base = last.map_or(base, |last| base.max(last.child_at));
    let before = child.state_at(base)?;
    let read = |digest: &_| child.content(digest);
    let (ours, theirs_files) = (VirtualFileSystem::of(&state), VirtualFileSystem::of(&theirs));
    let files_before = VirtualFileSystem::of(&before);
    if let Some(rule) = choices.unfit([&files_before, &ours, &theirs_files]) {
        return Err(WorkspaceError::UnfitRule(rule.to_string()));
    }
    let generated = [parent, child].map(|session| WorkspaceSpec::generated_of(session.started())).concat();
    // A specification with an invalid glob is refused, so these compile.
    let of_sessions = choices.clone().with_generated(&generated);
    let choices = of_sessions.as_ref().unwrap_or(choices);
    let plan = plan_merge(&files_before, &ours, &theirs_files, choices, read)?;
    let merged = changes(&plan, &ours, child, base, theirs.seq())?;
    let slices = declared::merged(&before, &state, &theirs)?;
    let outcome = match (plan.has_changes || !slices.is_empty(), plan.open().next()) {
        (false, _) => MergeOutcome::Nothing,
        (true, None) => MergeOutcome::Merged,
        (true, Some(_)) => MergeOutcome::Conflicted,
    };
    let report = MergeReport {
        child: child.id(),
        child_name: child.name().to_owned(),
        base,
        child_at: theirs.seq(),
        outcome,
        seq: None,
        merged,
        conflicts: plan.conflicts.clone(),
        left_out: plan.left_out.clone(),
        generated: plan.generated.clone(),
        slices: slices.iter().map(|slice| slice.name.clone()).collect(),
        unused: choices.unused(&plan.conflicts, &plan.hunks),
        repeated: false,
    };
    Ok((report, plan, slices))
}

fn changes(
    plan: &MergePlan,
    ours: &VirtualFileSystem,
    child: &Session,
    base: Seq,
    until: Seq,
) -> Result<Vec<MergedChange>, SessionError> {
    let mut origins: BTreeMap<EntryPath, Option<Seq>> =
        plan.steps.iter().map(|step| (step.path().clone(), None)).collect();
    if !origins.is_empty() {
        child.visit(base + 1, &mut |event| {
            if event.seq > until {
                return ControlFlow::Break(());
            }
            note_origin(&mut origins, event);
            ControlFlow::Continue(())
        })?;
    }
    let change = |step: &MergeStep| {
        let path = step.path().clone();
        let from = origins.get(&path).copied().flatten();
        let (change, both) = match step {
            MergeStep::Delete { .. } => ("removed", false),
            MergeStep::Write { merged, .. } if ours.get(&path).is_some() => ("changed", merged.is_some()),
            MergeStep::Write { .. } => ("added", false),
        };
        MergedChange { entry: MergedEntry { path, from, both }, change: change.into() }
    };
    Ok(plan.steps.iter().map(change).collect())
}

/// Clears the set-id bits of a file: it would run with the rights of an owner who did not create it.
fn without_set_id(node: Node) -> Node {
    match node {
        Node::File { mode, .. } => node.with_mode(mode.without_set_id()),
        _ => node,
    }
}

/// Sets the event as origin of each path that it changes, with removed entries and implied directories.
fn note_origin(origins: &mut BTreeMap<EntryPath, Option<Seq>>, event: &EventRef<'_>) {
    use std::ops::Bound::Excluded;
    let (path, replaces_all, makes) = match PlannedChange::of(event) {
        Some(PlannedChange::Write(WriteFile { path, node, .. })) => (path, !node.is_directory(), true),
        Some(PlannedChange::Delete(DeleteEntry { path })) => (path, true, false),
        Some(PlannedChange::Link(_)) | None => return,
    };
    if let Some(origin) = origins.get_mut(&path) {
        *origin = Some(event.seq);
    }
    if replaces_all {
        let (from, until) = ([path.as_bytes(), b"/"].concat(), [path.as_bytes(), &[b'/' + 1]].concat());
        let below = origins.range_mut::<[u8], _>((Excluded(&from[..]), Excluded(&until[..])));
        below.for_each(|(_, origin)| *origin = Some(event.seq));
    }
    for place in directories_above(&path).filter(|_| makes) {
        if let Some(origin) = origins.get_mut(&place) {
            origin.get_or_insert(event.seq);
        }
    }
}

fn commit_with(session: &Session, id: Option<CommitId>) -> Commit {
    let commit = session.commit();
    if let Some(id) = id { commit.with_id(id) } else { commit }
}

/// Returns the recorded report of the merge with the id, if the session has one.
fn merged_before(session: &Session, child: &Session, id: CommitId) -> Result<Option<MergeReport>, SessionError> {
    let Some(committed) = session.commit_with_id(id)? else { return Ok(None) };
    let event = session.event(committed.first)?;
    let (merge, outcome) = match (event.view().decoded(), event.view().decoded()) {
        (Some(merge), _) => (merge, MergeOutcome::Merged),
        (None, Some(MergeConflicted { child, child_name, base, child_at, conflicts })) => {
            let merged = Vec::new();
            (ChildMerged { child, child_name, base, child_at, merged, conflicts }, MergeOutcome::Conflicted)
        }
        (None, None) => return Err(SessionError::OtherRequest { seq: committed.first }),
    };
    if merge.child != child.id() {
        return Err(SessionError::OtherRequest { seq: committed.first });
    }
    let files = |seq| Ok::<_, SessionError>(VirtualFileSystem::of(&session.state_at(seq)?));
    let (before, after) = (files(committed.first - 1)?, files(committed.last)?);
    let change = |entry: MergedEntry| {
        let change = match (before.get(&entry.path), after.get(&entry.path)) {
            (_, None) => "removed",
            (None, _) => "added",
            _ => "changed",
        };
        MergedChange { entry, change: change.into() }
    };
    let mut slices = Vec::new();
    session.visit_between(committed.first, committed.last, &mut |event| {
        slices.extend(event.decoded::<SliceDeclared>().map(|slice| slice.name));
        ControlFlow::Continue(())
    })?;
    let ChildMerged { child, child_name, base, child_at, merged, conflicts } = merge;
    let (seq, merged) = (Some(committed.first), merged.into_iter().map(change).collect());
    let (left_out, generated, unused, repeated) = (Vec::new(), Vec::new(), Vec::new(), true);
    Ok(Some(MergeReport {
        child,
        child_name,
        base,
        child_at,
        outcome,
        seq,
        merged,
        conflicts,
        left_out,
        generated,
        slices,
        unused,
        repeated,
    }))
}

fn note_conflicts(session: &Session, report: &MergeReport, id: Option<CommitId>) -> Result<Option<Seq>, SessionError> {
    let MergeReport { child, base, child_at, .. } = *report;
    let (child_name, conflicts) = (report.child_name.clone(), report.conflicts.clone());
    let event = MergeConflicted { child, child_name, base, child_at, conflicts };
    let state = session.state()?;
    if state.slice::<Merges>().and_then(|merges| merges.conflicted(child)) == Some(&event) {
        return Ok(None);
    }
    let mut commit = commit_with(session, id);
    commit.push(&event)?;
    Ok(Some(session.record(commit)?.last))
}

fn apply(
    parent: &ToolRunner,
    report: &MergeReport,
    (plan, slices): (MergePlan, Vec<SliceDeclared>),
    (theirs, mut commit): (&State, Commit),
) -> Result<Seq, WorkspaceError> {
    let session = parent.session();
    let sizes = plan.steps.iter().map(|step| match step {
        MergeStep::Write { node: Node::File { size, .. }, .. } => *size,
        MergeStep::Write { .. } | MergeStep::Delete { .. } => 0,
    });
    parent.machine().limits.check_bytes(session, &session.state()?, sizes.sum(), false)?;
    let MergeReport { child, base, child_at, .. } = *report;
    let entries = report.merged.iter().map(|change| change.entry.clone());
    let event = ChildMerged {
        child,
        child_name: report.child_name.clone(),
        base,
        child_at,
        merged: entries.collect(),
        conflicts: report.conflicts.clone(),
    };
    commit.push(&event)?;
    slices.iter().try_for_each(|slice| commit.push(slice))?;
    let mut fresh = NewContents::new();
    let planned = plan.steps.into_iter().map(|step| match step {
        MergeStep::Delete { path } => PlannedChange::Delete(DeleteEntry { path }),
        MergeStep::Write { path, mode, node, merged } => {
            fresh.extend(node.content().copied().zip(merged));
            PlannedChange::Write(WriteFile { path, mode, node: without_set_id(node) })
        }
    });
    let mut steps: Vec<PlannedChange> = planned.collect();
    let now = VirtualFileSystem::of(&session.state()?);
    let mut files = after(&steps, &now, steps.len(), session.now());
    for before in [&VirtualFileSystem::of(theirs), &now] {
        relink(&mut files, before, steps.iter().map(PlannedChange::path));
    }
    steps.extend(link_steps(&steps, &now, &files));
    steps.iter().try_for_each(|step| step.push_to(&mut commit))?;
    steps.iter().filter_map(|step| step.new_content(&fresh)).for_each(|content| commit.keep(content));
    let landing = Landing { session, workspace: parent.workspace().as_ref(), now: &now, steps: &steps, fresh: &fresh };
    Ok(landing.land(commit)?.0.first)
}
