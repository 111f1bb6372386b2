//! Subagents: forked and shared children with a budget; their results, merges, and the parent's records of them.
//!
//! `cargo run --example subagents`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;

use foldspace::event::{ChildLimits, Isolation};
use foldspace::reducers::{Child, Children, LastMerge, MergeChoices, Merges, SharedChild};
use foldspace::tools::{
    AllowedRoots, ChildContext, Forker, MergeOutcome, MergeReport, MergedChange, Subagent, SubagentOutcome,
    SubagentResult, Subagents, dispatch_subagents,
};
use foldspace::{
    ForkOptions, MemoryWorkspace, NewSession, Registry, Seq, SessionId, Sessions, Timestamp, ToolCall, ToolRunner,
    Tools,
};
use serde_json::{Value, json};

/// Writes one file, in the child's own or shared workspace.
async fn work(child: ChildContext) -> Result<Value, String> {
    let (path, content) = (child.task["path"].clone(), child.task["content"].clone());
    let call = ToolCall::new("write_file", json!({ "file_path": path, "content": content }));
    let outcome = child.tool_runner.call(call).await.map_err(|error| error.to_string())?;
    if outcome.is_ok() { Ok(outcome.result) } else { Err(outcome.text) }
}

fn outcome_line(outcome: &SubagentOutcome) -> String {
    match outcome {
        SubagentOutcome::Done { result } => format!("done: {result}"),
        SubagentOutcome::Failed { reason } => format!("failed: {reason}"),
        SubagentOutcome::Panicked { reason } => format!("panicked: {reason}"),
        SubagentOutcome::NotStarted { reason } => format!("not started: {reason}"),
        SubagentOutcome::Cancelled => "cancelled".to_owned(),
    }
}

fn merge_line(merge: &Result<MergeReport, String>) -> String {
    match merge {
        Err(reason) => format!("not merged: {reason}"),
        Ok(MergeReport { outcome: MergeOutcome::Nothing, .. }) => "nothing to merge".to_owned(),
        Ok(MergeReport { outcome: MergeOutcome::Conflicted, conflicts, .. }) => {
            let paths: Vec<_> = conflicts.iter().map(|conflict| conflict.path.to_string()).collect();
            format!("conflicts: {}", paths.join(", "))
        }
        Ok(MergeReport { outcome: MergeOutcome::Merged, merged, .. }) => {
            let line = |MergedChange { entry, change }: &MergedChange| format!("{change} {}", entry.path);
            format!("merged: {}", merged.iter().map(line).collect::<Vec<_>>().join(", "))
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let sessions = Sessions::open(directory.path().join("data"), Registry::standard())?;
    let session = sessions.create(NewSession::named("lead"))?;
    let lead = ToolRunner::new(session, Tools::standard(), Arc::new(MemoryWorkspace))?;
    let forker = Forker { sessions, home: directory.path().into(), roots: AllowedRoots::default() };

    let limits = ChildLimits { calls: Some(1), bytes_written: Some(1 << 10), ..ChildLimits::default() };
    let child = |isolation, agent: &str, path: &str, content: &str| Subagent {
        child: ForkOptions { agent: agent.to_owned(), limits: limits.clone(), ..ForkOptions::new(isolation) },
        task: json!({ "path": path, "content": content }),
    };
    let batch = vec![
        child(Isolation::Fork, "ann", "a.txt", "of ann\n"),
        child(Isolation::Fork, "ben", "a.txt", "of ben\n"),
        child(Isolation::Shared, "cay", "c.txt", "of cay\n"),
        child(Isolation::Fork, "dan", "d.txt", &"too long ".repeat(200)),
    ];
    let options = Subagents { parallel: 2, merge: Some(MergeChoices::default()), ..Subagents::default() };
    let results: Vec<SubagentResult> = dispatch_subagents(&lead, &forker, batch, options, work).await;
    for SubagentResult { name, outcome, merge, .. } in &results {
        println!("{name}: {}", outcome_line(outcome));
        println!("    {}", merge.as_ref().map_or_else(|| "no merge".to_owned(), merge_line));
    }

    // The parent's slices have its children, the usage of shared children, and the merges.
    let state = lead.session().state()?;
    if let (Some(children), Some(merges)) = (state.slice::<Children>(), state.slice::<Merges>()) {
        for Child { id, name, at, agent, .. } in children.iter() {
            let id: &SessionId = id;
            let merged: Option<(Seq, Timestamp)> =
                merges.last_merge(*id).map(|LastMerge { child_at, time, .. }| (*child_at, *time));
            println!("{agent} works in {name}, forked at {at}, merged: {}", merged.is_some());
        }
        for (agent, SharedChild { calls, bytes_written, .. }) in children.shared("cay") {
            println!("{agent} shares the session: {calls} calls, {bytes_written} bytes");
        }
    }
    Ok(())
}
