//! References of events to contents.

use serde_json::Value;

use super::call::{finished_result, started_params};
use super::{
    CallFinished, CallNoted, CallStarted, ChildMerged, CodecError, CommandDecided, CommandResult, EvalResult, Event,
    HttpExchange, MergeConflict, MergeConflicted, Node, RunPrompted, SliceDeclared, TerminalRecorded, TranscriptRecord,
    WITHOUT_CONTENTS, WriteFile, write_view,
};
use crate::engine::content_ref::{LITERAL, mark_of};
use crate::engine::{Digest, EventRef};

/// Returns the digests of the contents that an event refers to: from the fields of a built-in event, or as declared.
/// `None` if neither is possible: the payload may then name any content.
pub(crate) fn references_of(event: &EventRef<'_>) -> Option<Vec<Digest>> {
    match event.kind {
        WriteFile::KIND => written(event),
        CallStarted::KIND => marked(started_params(event.version, event.payload)),
        CallFinished::KIND => marked(finished_result(event.version, event.payload)),
        CommandResult::KIND => told(event, |ran: CommandResult| vec![ran.stdout.content, ran.stderr.content]),
        TerminalRecorded::KIND => told(event, |shown: TerminalRecorded| vec![shown.cast]),
        EvalResult::KIND => told(event, |ran: EvalResult| vec![ran.code, ran.stdout.content, ran.stderr.content]),
        CommandDecided::KIND => {
            let kept = |event: CommandDecided| [event.stdin, event.code, event.environment];
            told(event, |decided| kept(decided).into_iter().flatten().collect())
        }
        ChildMerged::KIND => told(event, |merged: ChildMerged| versions(&merged.conflicts)),
        MergeConflicted::KIND => told(event, |merged: MergeConflicted| versions(&merged.conflicts)),
        HttpExchange::KIND => {
            told(event, |one: HttpExchange| [one.request.body, one.response.body].into_iter().flatten().collect())
        }
        // Only some runs store the whole request.
        RunPrompted::KIND => told(event, |prompted: RunPrompted| vec![prompted.digest]),
        CallNoted::KIND | SliceDeclared::KIND | TranscriptRecord::KIND => marked(
            std::str::from_utf8(event.payload).map_err(|error| CodecError::new(event.kind, event.version, error)),
        ),
        kind if WITHOUT_CONTENTS.contains(&kind) => (event.version == 1).then(Vec::new),
        // A restored slice may hold anything, even an application's own.
        _ => Some(event.declared?.iter().map(|digest| Digest::from_bytes(*digest)).collect()),
    }
}

/// Iterates over everything in some bytes that may be a digest: each 32 bytes, and each 64 hexadecimal digits.
pub(crate) fn digests_in(bytes: &[u8]) -> impl Iterator<Item = Digest> {
    let raw = bytes.array_windows::<32>().map(|window| Digest::from_bytes(*window));
    let digits = bytes.split(|byte| !byte.is_ascii_hexdigit()).flat_map(|run| run.windows(64));
    raw.chain(digits.filter_map(|digits| std::str::from_utf8(digits).ok()?.parse().ok()))
}

fn told<E: Event>(event: &EventRef<'_>, references: impl FnOnce(E) -> Vec<Digest>) -> Option<Vec<Digest>> {
    E::decode(event.version, event.payload).ok().map(references)
}

fn written(event: &EventRef<'_>) -> Option<Vec<Digest>> {
    match write_view(event.version, event.payload).ok()?.node()? {
        Node::File { content, .. } => Some(vec![content]),
        Node::Symlink { .. } | Node::Directory { .. } | Node::Special { .. } => Some(Vec::new()),
    }
}

fn versions(conflicts: &[MergeConflict]) -> Vec<Digest> {
    let nodes = conflicts.iter().flat_map(|conflict| [&conflict.base, &conflict.ours, &conflict.theirs]).flatten();
    let digest = |node: &Node| if let Node::File { content, .. } = node { Some(*content) } else { None };
    nodes.filter_map(digest).collect()
}

fn marked(json: Result<&str, CodecError>) -> Option<Vec<Digest>> {
    let json = json.ok()?;
    let mut found = Vec::new();
    // A marker's `$` may be escaped; most values have neither form.
    if json.contains('$') || json.contains("\\u") {
        marks_in(&serde_json::from_str(json).ok()?, &mut found);
    }
    Some(found)
}

pub(super) fn marks_in(value: &Value, found: &mut Vec<Digest>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| marks_in(item, found)),
        Value::Object(fields) => match fields.get(LITERAL) {
            Some(Value::Object(literal)) => literal.values().for_each(|item| marks_in(item, found)),
            _ => {
                found.extend(mark_of(fields));
                fields.values().for_each(|item| marks_in(item, found));
            }
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
