//! Describes events for people.

use foldspace::event::{
    Annotated, CallFinished, CallNoted, CallObserved, CallStarted, CallStatus, ChangesShared, ChangesUnknown,
    ChildStarted, CommandDecided, CommandResult, ContainerStarted, ContainerStopped, DecidedBy, DeleteEntry,
    DriftFound, EvalResult, EventRef, EventsLost, ExternalEffect, FileMode, GitMoved, HttpExchange, LinkFile,
    LostBytes, MountHydrated, NetworkConnection, Node, PolicyDecision, PositionTagged, ReportLate, RunBegan, RunEnded,
    RunNoted, RunPrompted, ServiceStarted, ServiceStopped, SessionAllow, SessionRewound, SessionStarted, SessionTaken,
    SliceDeclared, SliceRestored, TaskObserved, TerminalRecorded, ToolPolicySet, TranscriptRecord, WorkspaceTouched,
    WriteFile, WriteMode,
};
use foldspace::view::{self, RunMessage};
use foldspace::{Event, Recorded, Session};
use serde_json::Value;

use super::style::Tone;
use super::text;

const GIST_MAX: usize = 100;
const SUBJECT_MAX: usize = 60;

pub(crate) fn tone_of(kind: &str) -> Tone {
    match kind {
        WriteFile::KIND | LinkFile::KIND => Tone::Good,
        DeleteEntry::KIND | EventsLost::KIND => Tone::Bad,
        CallStarted::KIND | CommandResult::KIND | EvalResult::KIND => Tone::Noted,
        TerminalRecorded::KIND | CallFinished::KIND | WorkspaceTouched::KIND | CommandDecided::KIND => Tone::Dim,
        SessionStarted::KIND | MountHydrated::KIND | DriftFound::KIND | ChildStarted::KIND => Tone::Odd,
        ContainerStarted::KIND
        | ContainerStopped::KIND
        | SessionAllow::KIND
        | ToolPolicySet::KIND
        | Annotated::KIND
        | PositionTagged::KIND
        | RunBegan::KIND
        | RunEnded::KIND
        | RunPrompted::KIND
        | ReportLate::KIND
        | SessionTaken::KIND
        | ExternalEffect::KIND
        | GitMoved::KIND
        | ChangesShared::KIND => Tone::Odd,
        RunNoted::KIND
        | CallObserved::KIND
        | CallNoted::KIND
        | TaskObserved::KIND
        | NetworkConnection::KIND
        | HttpExchange::KIND => Tone::Dim,
        ChangesUnknown::KIND | TranscriptRecord::KIND => Tone::Dim,
        SessionRewound::KIND | SliceRestored::KIND => Tone::Odd,
        _ => Tone::Plain,
    }
}

/// Returns true for a change of a file outside of any call.
pub(crate) fn is_entry(event: &EventRef<'_>) -> bool {
    event.call.is_none() && matches!(event.kind, WriteFile::KIND | DeleteEntry::KIND | LinkFile::KIND)
}

/// Returns true for an event whose entries follow it.
pub(crate) fn has_entries(kind: &str) -> bool {
    matches!(kind, MountHydrated::KIND | DriftFound::KIND | SessionRewound::KIND)
}

pub(crate) fn gist(session: &Session, event: &EventRef<'_>) -> String {
    let known = match event.kind {
        SessionStarted::KIND => typed(event).map(|e: SessionStarted| format!("{} on {}", e.name, e.backend)),
        MountHydrated::KIND => typed(event).map(|e| hydrated(&e)),
        CallStarted::KIND => typed(event).map(|e: CallStarted| call_gist(session, &e, SUBJECT_MAX)),
        CallFinished::KIND => typed(event).map(|e| finished(&e)),
        WriteFile::KIND => typed(event).map(|e| written(&e)),
        DeleteEntry::KIND => typed(event).map(|e: DeleteEntry| e.path.rooted()),
        LinkFile::KIND => typed(event).map(|e| linked(&e)),
        CommandResult::KIND => typed(event).map(|e| ran(&e)),
        EvalResult::KIND => typed(event).map(|e| evaluated(&e)),
        TerminalRecorded::KIND => typed(event).map(|e| shown(&e)),
        CommandDecided::KIND => typed(event).map(|e| decided(&e)),
        SessionAllow::KIND => typed(event).map(|e| allowed(&e)),
        WorkspaceTouched::KIND => typed(event).map(|e: WorkspaceTouched| e.backend),
        DriftFound::KIND => typed(event).map(|e: DriftFound| drifted(&e)),
        ContainerStarted::KIND => typed(event).map(|e| started(&e)),
        SessionRewound::KIND => typed(event).map(|e| rewound(&e)),
        SliceRestored::KIND => typed(event).map(|e| restored(&e)),
        SliceDeclared::KIND => typed(event).map(|e| declared(&e)),
        ToolPolicySet::KIND => typed(event).map(|e| policy(&e)),
        Annotated::KIND => typed(event).map(|e: Annotated| annotated(&e)),
        PositionTagged::KIND => typed(event).map(|e: PositionTagged| match e.at {
            Some(at) => format!("{} is event {at}", e.name),
            None => format!("{} removed", e.name),
        }),
        RunBegan::KIND => typed(event).map(|e: RunBegan| format!("{} of {}", e.run, e.agent)),
        RunNoted::KIND => typed(event).map(|e: RunNoted| text::fields(&e.facts.into())),
        RunEnded::KIND => typed(event).map(|e| ended_run(&e)),
        RunPrompted::KIND => typed(event).map(|e: RunPrompted| e.line),
        CallObserved::KIND => typed(event).map(|e: CallObserved| e.id),
        CallNoted::KIND => typed(event).map(|e: CallNoted| format!("{}: {}", e.id, text::fields(&e.facts.into()))),
        ReportLate::KIND => typed(event).map(|e: ReportLate| format!("{} ms after it, {}", e.micros / 1000, e.id)),
        TaskObserved::KIND => typed(event).map(|e: TaskObserved| match e.running {
            true => format!("{} runs in the background", e.task),
            false => format!("{} is over", e.task),
        }),
        ChangesShared::KIND => typed(event).map(|e| shared(&e)),
        GitMoved::KIND => typed(event).map(|e: GitMoved| {
            let branch = if e.branch.is_empty() { "no branch" } else { &e.branch };
            format!("{branch} at {}", e.head.get(..12).unwrap_or("no commit"))
        }),
        ChangesUnknown::KIND => typed(event).map(|e: ChangesUnknown| match e.paths.is_empty() {
            true => "changed unknown files".to_owned(),
            false => format!("changed {} in an unknown way", e.paths.join(", ")),
        }),
        TranscriptRecord::KIND => recorded(session, event),
        ChildStarted::KIND => typed(event).map(|e| child(&e)),
        ContainerStopped::KIND => typed(event).map(|e: ContainerStopped| format!("{}: {}", e.name, e.reason)),
        NetworkConnection::KIND => typed(event).map(|e| connected(&e)),
        HttpExchange::KIND => typed(event).map(|e| exchanged(&e)),
        ExternalEffect::KIND => typed(event).map(|e| took_effect(&e)),
        ServiceStarted::KIND => typed(event).map(|e| served(&e)),
        ServiceStopped::KIND => typed(event).map(|e: ServiceStopped| e.name),
        SessionTaken::KIND => typed(event).map(|e: SessionTaken| format!("by {}, owner {}", e.host, e.epoch)),
        EventsLost::KIND => typed(event).map(|e| lost(&e)),
        _ => None,
    };
    text::one_line(&known.unwrap_or_else(|| unknown(session, event)), GIST_MAX * 2)
}

/// Returns the first message in a record of a transcript, or a description of another record.
fn recorded(session: &Session, event: &EventRef<'_>) -> Option<String> {
    match view::messages(session, event, false).first() {
        Some(message) => Some(said(message)),
        None => typed(event).map(|e: TranscriptRecord| view::other_record(session, &e.record, GIST_MAX)),
    }
}

/// Returns the author and the first line of a message.
pub(crate) fn said(message: &RunMessage) -> String {
    format!("{}: {}", message.role.word(), text::one_line(&message.text, GIST_MAX * 2))
}

/// Returns the tokens and the cost of a message.
pub(crate) fn usage(message: &RunMessage) -> Option<String> {
    let tokens = |count: Option<u64>, way| count.map(|count| format!("{} {way}", text::count(count, "token")));
    let cost = message.usage.cost.filter(|cost| *cost > 0.0).map(|cost| format!("${cost:.4}"));
    let parts = [tokens(message.usage.input_tokens, "in"), tokens(message.usage.output_tokens, "out"), cost];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn ended_run(event: &RunEnded) -> String {
    if event.reason.is_empty() { event.run.clone() } else { format!("{}: {}", event.run, event.reason) }
}

fn took_effect(event: &ExternalEffect) -> String {
    let target = if event.target.is_empty() { String::new() } else { format!(" {}", event.target) };
    format!("{}{target}: {}", event.what, event.outcome.word())
}

fn exchanged(event: &HttpExchange) -> String {
    let HttpExchange { method, url, status, response, error, left_out, .. } = event;
    let more = if *left_out > 0 { format!(", and {left_out} more, not recorded") } else { String::new() };
    let outcome = if *status == 0 { error.clone() } else { format!("{status}, {}", text::size(response.bytes)) };
    format!("{method} {url}: {outcome}{more}")
}

fn served(event: &ServiceStarted) -> String {
    let port = event.port.map(|port| format!(" at port {port}")).unwrap_or_default();
    format!("{}{port}", event.name)
}

fn connected(event: &NetworkConnection) -> String {
    let NetworkConnection { host, port, outcome, reason, sent, received, count, .. } = event;
    let host = if *port == 0 { host.clone() } else { format!("{host}:{port}") };
    let times = if *count > 1 { format!(", {count} times") } else { String::new() };
    match outcome.as_str() {
        "closed" => format!("{host}{times}: {} out, {} in", text::size(*sent), text::size(*received)),
        _ => format!("{host}{times}: {outcome}: {reason}"),
    }
}

fn child(event: &ChildStarted) -> String {
    let agent = if event.agent.is_empty() { String::new() } else { format!(" for {}", event.agent) };
    format!("{}, {} from {}{agent}", event.name, event.isolation.name(), event.at)
}

fn linked(LinkFile { path, to }: &LinkFile) -> String {
    format!("{} is one file with {}", path.rooted(), to.rooted())
}

fn shared(ChangesShared { calls }: &ChangesShared) -> String {
    let calls: Vec<String> = calls.iter().map(|call| format!("#{call}")).collect();
    format!("by one of {}, or more of them", calls.join(", "))
}

fn lost(EventsLost { first, last, segment, gap }: &EventsLost) -> String {
    match gap {
        None => format!("events {first} to {last} before it"),
        Some(LostBytes { offset, bytes, .. }) => {
            let bytes = text::count(*bytes, "damaged byte");
            format!("of events {first} to {last}: {bytes} at byte {offset} of segment {segment}")
        }
    }
}

fn annotated(Annotated { name, at, score, note, .. }: &Annotated) -> String {
    let score = score.map(|score| format!(" {score}")).unwrap_or_default();
    let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    format!("{name} of event {at}{score}{note}")
}

/// Returns the tool of a call and its subject, which has at most `max` characters.
pub(crate) fn call_gist(session: &Session, call: &CallStarted, max: usize) -> String {
    format!("{} {}", text::one_line(&call.tool, GIST_MAX), view::subject(session, &call.params, max))
}

fn typed<E: Event>(event: &EventRef<'_>) -> Option<E> {
    let Recorded { event, .. } = event.typed::<E>()?.ok()?;
    Some(event)
}

fn unknown(session: &Session, event: &EventRef<'_>) -> String {
    let value = session.event_json(event);
    match value.get("unreadable").and_then(Value::as_str) {
        Some(reason) => format!("{} unreadable: {reason}", text::count(event.payload.len() as u64, "byte")),
        None => text::fields(&value),
    }
}

fn ran(event: &CommandResult) -> String {
    let ended = ended(event.exit_code, event.timed_out, event.cancelled);
    let printed = text::size(event.stdout.bytes.saturating_add(event.stderr.bytes));
    let command = text::one_line(&event.command.to_string(), GIST_MAX);
    format!("{ended} in {}, {printed}  {command}", text::duration(event.micros))
}

fn evaluated(event: &EvalResult) -> String {
    let ended = ended(event.exit_code, event.timed_out, event.cancelled);
    let printed = text::size(event.stdout.bytes.saturating_add(event.stderr.bytes));
    let place = text::one_line(&event.place, 80);
    format!("{} ({place}) {ended} in {}, {printed}", event.language, text::duration(event.micros))
}

fn shown(event: &TerminalRecorded) -> String {
    let cut = if event.truncated { ", cut" } else { "" };
    format!("{}x{}, {}{cut}", event.columns, event.rows, text::size(event.bytes))
}

fn ended(exit_code: i32, timed_out: bool, cancelled: bool) -> String {
    match (timed_out, cancelled) {
        (true, _) => "timed out".to_owned(),
        (false, true) => "cancelled".to_owned(),
        (false, false) => format!("exit {exit_code}"),
    }
}

fn decided(event: &CommandDecided) -> String {
    let decision = match event.decision {
        PolicyDecision::Allow => "allow",
        PolicyDecision::Deny => "deny",
    };
    let by = match event.by {
        DecidedBy::Policy => "policy",
        DecidedBy::AutoConfirm => "auto-confirm",
        DecidedBy::Session => "session",
        DecidedBy::Answer => "answer",
        DecidedBy::Nobody => "default (no approver)",
    };
    let because = if event.reason.is_empty() { String::new() } else { format!(": {}", event.reason) };
    format!("{decision} by {by}{because}  {}", text::one_line(&event.command.to_string(), GIST_MAX))
}

fn drifted(event: &DriftFound) -> String {
    let late = if event.late == 0 { String::new() } else { format!(", {} of them noticed late", event.late) };
    let perhaps: Vec<String> = event.perhaps.iter().map(|call| format!("#{call}")).collect();
    let perhaps = if perhaps.is_empty() { String::new() } else { format!(", perhaps by {}", perhaps.join(", ")) };
    let changed = text::count(event.entries, "entry");
    format!("{changed} changed outside of any call, on {}{late}{perhaps}", event.backend)
}

fn rewound(event: &SessionRewound) -> String {
    let left = if event.left == 0 { String::new() } else { format!(", {} left as they were", event.left) };
    format!("back to {} from {}: {}{left}", event.to, event.from, text::count(event.entries, "entry"))
}

fn allowed(event: &SessionAllow) -> String {
    if event.everything { "allow everything".to_owned() } else { format!("allow {}", event.programs.join(", ")) }
}

fn policy(event: &ToolPolicySet) -> String {
    match (event.policy.is_null(), &event.inherited) {
        (false, _) => text::fields(&event.policy),
        (true, Some(_)) => "inherited".to_owned(),
        (true, None) => "removed".to_owned(),
    }
}

fn declared(event: &SliceDeclared) -> String {
    let name = text::one_line(&event.name, 80);
    if event.declaration.is_null() { format!("{name} removed") } else { format!("{name}, version {}", event.version) }
}

fn restored(event: &SliceRestored) -> String {
    let bytes = event.blocks.iter().map(|block| block.len() as u64).sum();
    format!("{}, {}", event.slice, text::size(bytes))
}

fn started(event: &ContainerStarted) -> String {
    let how = if event.created { "made" } else { "started again" };
    let limits = if event.limits_enforced { "" } else { ", limits NOT in force" };
    let files = if event.overlay { "overlay" } else { "directory" };
    let digest = event.image_digest.trim_start_matches("sha256:");
    let digest = digest.get(..12).map_or(String::new(), |short| format!(" {short}"));
    format!("{} {how} from {}{digest} ({}, {files}{limits})", event.name, event.image, event.engine)
}

fn hydrated(event: &MountHydrated) -> String {
    let (files, bytes) = (text::count(event.files, "file"), text::size(event.bytes));
    format!("{} at {}: {files}, {bytes}", event.host_path, event.mount_path.rooted())
}

fn finished(event: &CallFinished) -> String {
    let status = ending(event.status, &event.result);
    match event.message.is_empty() {
        true => format!("{status} in {}", text::duration(event.micros)),
        false => format!("{status} in {}: {}", text::duration(event.micros), text::one_line(&event.message, GIST_MAX)),
    }
}

fn written(event: &WriteFile) -> String {
    let how = match event.mode {
        WriteMode::Create => "create",
        WriteMode::Overwrite => "overwrite",
        WriteMode::Append => "append",
    };
    let path = event.path.rooted();
    match &event.node {
        Node::File { size, mode, text, incomplete, .. } => {
            let executable = mode.is_executable();
            let mode = match *mode == FileMode::usual(executable) {
                true if executable => ", executable".to_owned(),
                true => String::new(),
                false => format!(", mode {mode}"),
            };
            let binary = if *text { "" } else { ", binary" };
            let kept = if *incomplete { ", not stored" } else { "" };
            format!("{how} {path}  {}{mode}{binary}{kept}", text::size(*size))
        }
        Node::Symlink { target } => format!("{how} {path} -> {}", String::from_utf8_lossy(target)),
        node @ Node::Directory { .. } if node.is_implied() => format!("{how} {path}/"),
        Node::Directory { mode } => format!("{how} {path}/  mode {mode}"),
        Node::Special { special } => format!("{how} {path} ({})", special.name()),
    }
}

/// Returns the end of a call in a word or two: for an ok call, the end of its command if that failed.
pub(crate) fn ending(status: CallStatus, result: &Value) -> String {
    let exit_code = result.get("exit_code").and_then(Value::as_i64);
    let timed_out = result.get("timed_out").and_then(Value::as_bool).unwrap_or(false);
    match (status, timed_out, exit_code) {
        (CallStatus::Ok, true, _) => "timed out".to_owned(),
        (CallStatus::Ok, false, Some(code)) if code != 0 => format!("exit {code}"),
        _ => status.word().to_owned(),
    }
}

pub(crate) fn did_well(status: CallStatus, result: &Value) -> bool {
    ending(status, result) == CallStatus::Ok.word()
}

pub(crate) fn ending_tone(status: CallStatus, result: &Value) -> Tone {
    match status {
        CallStatus::Ok if did_well(status, result) => Tone::Good,
        CallStatus::Ok | CallStatus::Interrupted => Tone::Odd,
        CallStatus::Error => Tone::Bad,
    }
}

pub(crate) fn subject(session: &Session, params: &Value) -> String {
    view::subject(session, params, SUBJECT_MAX)
}
