//! The conversation of a person and an agent: prompts, answers and reasoning, as messages between the calls.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::claim::{ClaimEvidence, CommandEnds};
use super::subject::{one_line, text_of};
use super::whole;
use crate::engine::backward::backward_spans;
use crate::engine::clock::Timestamp;
use crate::engine::event::{RunPrompted, TranscriptRecord};
use crate::engine::id::{Digest, Seq};
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::{MessageRole, MessageUsage, as_typed, said, usage_of};

/// The characters of a message in a list.
const TEXT_MAX: usize = 2000;
/// The characters of a prompt in one line.
const PROMPT_MAX: usize = 200;
/// The number of events that are first searched for the last prompt.
const SPAN: u64 = 1024;
/// The names of a record's kind, and of its text.
const KINDS: [&str; 5] = ["type", "event", "kind", "hook_event_name", "role"];
const TEXTS: [&str; 6] = ["operation", "content", "message", "lastPrompt", "summary", "reason"];

/// A message of a run. Several messages may have the same position.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Message")]
pub struct RunMessage {
    /// The position of its event.
    pub seq: Seq,
    /// Its time, in UTC.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// The agent, as in the session.
    #[schemars(with = "String")]
    pub agent: Arc<str>,
    /// The agent's id of the run.
    pub run: String,
    /// `user`, `assistant`, `reasoning` or `system`.
    pub role: MessageRole,
    /// The text; in a list, at most its first 2000 characters.
    pub text: String,
    /// True if the text is longer, or was not stored in full.
    pub cut: bool,
    /// The model and its usage.
    #[serde(flatten)]
    pub usage: MessageUsage,
    /// The claim of success after a failed command; null without one.
    pub claim: Option<ClaimEvidence>,
}

impl RunMessage {
    fn fitted(mut self) -> Self {
        if let Some((end, _)) = self.text.char_indices().nth(TEXT_MAX) {
            self.text.truncate(end);
            self.cut = true;
        }
        self
    }
}

/// Returns the messages in an event. `is_whole` returns long texts in full.
pub fn messages(session: &Session, event: &EventRef<'_>, is_whole: bool) -> Vec<RunMessage> {
    let found = read(session, event, is_whole);
    if is_whole { found } else { found.into_iter().map(RunMessage::fitted).collect() }
}

/// Returns the messages in an event. Texts of more than 1 MiB are described instead, unless `is_whole`.
fn read(session: &Session, event: &EventRef<'_>, is_whole: bool) -> Vec<RunMessage> {
    let message = |run: &str, (role, text): (MessageRole, &str), usage: MessageUsage| RunMessage {
        seq: event.seq,
        time: event.time,
        agent: event.agent.into(),
        run: run.to_owned(),
        role,
        text: text.to_owned(),
        cut: false,
        usage,
        claim: None,
    };
    if let Some(Ok(prompted)) = event.typed::<RunPrompted>() {
        let RunPrompted { run, line, digest, .. } = prompted.event;
        let stored = session.content(&digest).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let is_cut = stored.is_none() && Digest::of(line.as_bytes()) != digest;
        let message = message(&run, (MessageRole::User, stored.as_ref().unwrap_or(&line)), MessageUsage::default());
        return vec![RunMessage { cut: is_cut, ..message }];
    }
    let Some(Ok(record)) = event.typed::<TranscriptRecord>() else { return Vec::new() };
    let TranscriptRecord { run, record } = record.event;
    let mut texts: Vec<(MessageRole, String)> = Vec::new();
    for part in said(&record) {
        let text = match is_whole {
            true => whole(session, &part.text).as_str().map(str::to_owned),
            false => text_of(session, &part.text).map(Into::into),
        };
        let Some(text) = text else { continue };
        match (as_typed(part.role, &text), texts.last_mut()) {
            ((_, ""), _) => {}
            ((role, text), Some((last, joined))) if role == *last => joined.extend(["\n", text]),
            ((role, text), _) => texts.push((role, text.to_owned())),
        }
    }
    let usage = usage_of(&record);
    let usage_of = |role| match role {
        MessageRole::Assistant | MessageRole::Reasoning => usage.clone(),
        MessageRole::User | MessageRole::System => MessageUsage::default(),
    };
    texts.iter().map(|(role, text)| message(&run, (*role, text), usage_of(*role))).collect()
}

/// Returns the run and the first line of the prompt in a record of a transcript.
pub(super) fn prompt_in(session: &Session, event: &EventRef<'_>) -> Option<(String, String)> {
    let TranscriptRecord { run, record } = event.decoded()?;
    said(&record).iter().rev().filter(|part| part.role == MessageRole::User).find_map(|part| {
        let text = text_of(session, &part.text)?;
        let (role, typed) = as_typed(part.role, &text);
        (role == MessageRole::User).then(|| (run.clone(), one_line(typed, PROMPT_MAX)))
    })
}

/// Returns the first line of the latest prompt of each imported run up to a position.
///
/// # Errors
/// [`SessionError`] if the history can't be read.
pub fn prompts(session: &Session, until: Seq) -> Result<BTreeMap<String, String>, SessionError> {
    let mut prompts = BTreeMap::new();
    session.visit_between(1, until, &mut |event| {
        prompts.extend(prompt_in(session, event));
        ControlFlow::Continue(())
    })?;
    Ok(prompts)
}

/// Describes a record of a transcript that has no message, in one line.
pub fn other_record(session: &Session, record: &Value, max: usize) -> String {
    let bodies = [record, &record["payload"], &record["data"], &record["item"], &record["payload"]["item"]];
    let first = |names: &[&str]| {
        let values = bodies.iter().flat_map(|body| names.iter().map(|name| &body[*name]));
        values.filter_map(|value| text_of(session, value)).map(|text| one_line(&text, max)).collect::<Vec<_>>()
    };
    let kinds: Vec<String> = first(&KINDS).into_iter().take(3).collect();
    let names = || record.as_object().into_iter().flat_map(|fields| fields.keys()).map(String::as_str);
    let kind = match kinds.is_empty() {
        true => one_line(&names().take(6).collect::<Vec<_>>().join(", "), max),
        false => kinds.join(" "),
    };
    let texts = first(&TEXTS);
    let text = texts.iter().filter(|text| !text.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" ");
    one_line(&if text.is_empty() { kind } else { format!("{kind}: {text}") }, max)
}

/// Reads a conversation with the commands between its messages, to compare claims with effects.
#[derive(Debug, Default)]
pub struct Conversation {
    commands: CommandEnds,
    is_whole: bool,
}

impl Conversation {
    /// Prepares for the events of a session from a position on, which includes commands since the last prompt.
    /// `is_whole` returns long texts in full.
    ///
    /// # Errors
    /// [`SessionError`] if the history can't be read.
    pub fn from(session: &Session, from: Seq, is_whole: bool) -> Result<Self, SessionError> {
        for (first, _) in backward_spans((1, from.saturating_sub(1)), SPAN, 8) {
            let (mut conversation, mut has_prompt) = (Self::default(), first <= 1);
            session.visit_between(first, from.saturating_sub(1), &mut |event| {
                let found = conversation.take(session, event);
                has_prompt |= found.iter().any(|message| message.role == MessageRole::User);
                ControlFlow::Continue(())
            })?;
            if has_prompt {
                return Ok(Self { is_whole, ..conversation });
            }
        }
        Ok(Self { is_whole, ..Self::default() })
    }

    /// Takes the next event, and returns its messages.
    pub fn take(&mut self, session: &Session, event: &EventRef<'_>) -> Vec<RunMessage> {
        self.commands.take(session, event);
        let mut found = read(session, event, self.is_whole);
        for message in &mut found {
            message.claim = self.commands.contradicted(message.role, &message.agent, &message.text);
        }
        if self.is_whole { found } else { found.into_iter().map(RunMessage::fitted).collect() }
    }

    /// Visits the messages of each event of a session from a position on, up to `until`, until `take` breaks.
    ///
    /// # Errors
    /// [`SessionError`] if the history can't be read.
    pub fn visit(
        session: &Session,
        (from, until): (Seq, Seq),
        is_whole: bool,
        take: &mut dyn FnMut(Vec<RunMessage>) -> ControlFlow<()>,
    ) -> Result<(), SessionError> {
        let mut conversation = Self::from(session, from, is_whole)?;
        session.visit_between(from, until, &mut |event| match conversation.take(session, event) {
            found if found.is_empty() => ControlFlow::Continue(()),
            found => take(found),
        })
    }
}
