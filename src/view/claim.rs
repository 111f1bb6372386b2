//! Claims of success after a failed command, found by the words of a message.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::subject::subject;
use crate::engine::event::{CallFinished, CallReason, CallStarted, CallStatus};
use crate::engine::id::Seq;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::tools::{MessageRole, runs_commands};

const COMMAND_MAX: usize = 200;
const SENTENCE_MAX: usize = 300;

/// Words and phrases of success.
const SUCCESS: &str = "successfully|succeeded|succeeds|works|now working|is working|are working|working now|fixed|resolved|\
    all done|is done|it's done|are done|is complete|are complete|now complete|is completed|all green|is green|are green|\
    all good|compiles|no errors|without errors|no failures|0 failed|0 failures";
/// Sentences of success, without more.
const SHORT: &str = "done|fixed|complete|completed|finished|success|passed|it passes|all set";
/// Subjects of `pass`.
const TESTED: &str = "test|tests|suite|suites|spec|specs|check|checks|lint|build|ci|everything|all";
const PASSES: &str = "pass|passes|passed|passing";
/// Words that look like success but are not.
const UNLIKE: &str = "how|works by|works like|fixed size|fixed width|fixed length|fixed number|fixed point|fixed set";
/// Words of conditions, plans and doubts.
const UNSETTLED: &str = "if|unless|whether|once|when|until|should|would|could|might|may|must|need|needs|needed|will|let|\
    let's|want|try|trying|ensure|verify|expect|hope|hopefully|probably|likely|please|make sure|to be|so that|i'll|we'll|\
    going to|check that";
/// Phrases that contain a negation but not of success.
const HARMLESS: &str = "no longer fails|no longer fail|no longer failing|no longer|no errors|no failures|no test failures|\
    no warnings|no issues|no problems|no regressions|without errors|without error|without any errors|without issues|\
    0 failed|0 failures|0 errors|not only";
const NEGATED: &str = "not|no|never|none|neither|nor|cannot|unable|only|almost|partially|partly|some|most|except|yet|\
    isn't|aren't|doesn't|don't|didn't|can't|couldn't|won't|wasn't|weren't|hasn't|haven't";
const FAILING: &str = "fails|fail|is failing|are failing|still failing|keeps failing";
/// Programs with an exit code of 1 that means "none" or "different".
const ANSWERS: [&str; 8] = ["grep", "egrep", "fgrep", "rg", "diff", "cmp", "test", "["];

/// A claim of success, and the failed command that it follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClaimEvidence {
    /// The sentence.
    pub sentence: String,
    /// The call of the agent's last command, which failed.
    pub call: Seq,
    /// Its tool.
    pub tool: String,
    /// Its command, in one line.
    pub command: String,
    /// Its end: `exit 1`, `timed out`, `refused`, or the status of a call without an exit code.
    pub ended: String,
    /// The exit code; null without one.
    pub exit_code: Option<i64>,
}

/// The agents' last commands since their last prompts.
#[derive(Debug, Default)]
pub(super) struct CommandEnds {
    open: BTreeMap<Seq, CallStarted>,
    failed: BTreeMap<Arc<str>, ClaimEvidence>,
}

impl CommandEnds {
    pub(super) fn take(&mut self, session: &Session, event: &EventRef<'_>) {
        if let Some(Ok(started)) = event.typed::<CallStarted>() {
            self.open.insert(event.seq, started.event);
        } else if let Some(Ok(finished)) = event.typed::<CallFinished>()
            && let Some((call, started)) = event.call.and_then(|call| Some((call, self.open.remove(&call)?)))
        {
            self.ended(session, (call, event.agent), started, &finished.event);
        }
    }

    fn ended(&mut self, session: &Session, (call, agent): (Seq, &str), started: CallStarted, end: &CallFinished) {
        let CallStarted { tool, params } = started;
        let exit_code = end.result["exit_code"].as_i64();
        let timed_out = end.result["timed_out"] == true;
        if !runs_commands(&tool) && exit_code.is_none() && !timed_out {
            return;
        }
        let ended = match (end.status, exit_code) {
            _ if timed_out => "timed out".to_owned(),
            (CallStatus::Ok, Some(code)) if code != 0 => format!("exit {code}"),
            (CallStatus::Ok, _) => return drop(self.failed.remove(agent)),
            (CallStatus::Error, _) if matches!(end.reason, Some(CallReason::Refused)) => "refused".to_owned(),
            (status, _) => status.word().to_owned(),
        };
        let command = subject(session, &params, COMMAND_MAX);
        if exit_code == Some(1) && !timed_out && answers(&command) {
            return;
        }
        let evidence = ClaimEvidence { sentence: String::new(), call, tool, command, ended, exit_code };
        self.failed.insert(agent.into(), evidence);
    }

    /// Returns the claim in a message after a failed command. A prompt clears the failure.
    pub(super) fn contradicted(&mut self, role: MessageRole, agent: &str, text: &str) -> Option<ClaimEvidence> {
        match role {
            MessageRole::User => self.failed.remove(agent).and(None),
            MessageRole::Assistant => {
                let evidence = self.failed.get(agent)?;
                Some(ClaimEvidence { sentence: claim_in(text)?, ..evidence.clone() })
            }
            MessageRole::Reasoning | MessageRole::System => None,
        }
    }
}

/// Returns true for a command that ends with a program whose exit code of 1 is an answer.
fn answers(command: &str) -> bool {
    let last = command.rsplit(['|', ';', '&']).next().unwrap_or_default();
    last.split_whitespace().next().is_some_and(|program| ANSWERS.contains(&program))
}

/// Returns the first sentence of a text that claims success; `None` if there is none, or another sentence denies it.
pub fn claim_in(text: &str) -> Option<String> {
    let mut claim = None;
    for sentence in sentences(text) {
        match verdict(&sentence) {
            Some(false) => return None,
            Some(true) if claim.is_none() => claim = Some(sentence.chars().take(SENTENCE_MAX).collect()),
            _ => {}
        }
    }
    claim
}

/// Returns the sentences of a text, without code and quotes.
fn sentences(text: &str) -> Vec<String> {
    let (mut sentences, mut is_code) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.starts_with('>') {
            continue;
        }
        let line = line.trim_start_matches(|c: char| {
            c.is_ascii_digit() || " .)-*#".contains(c) || !c.is_ascii() && !c.is_alphabetic()
        });
        let mut rest = if line.is_empty() { continue } else { line };
        while let Some(end) = rest
            .match_indices(['.', '!', '?', ';'])
            .map(|(at, _)| at + 1)
            .find(|at| rest[*at..].starts_with(char::is_whitespace))
        {
            sentences.push(rest[..end].to_owned());
            rest = rest[end..].trim_start();
        }
        sentences.push(rest.to_owned());
    }
    sentences
}

/// Returns true for a claim of success, false for a denial, and `None` for another sentence.
fn verdict(sentence: &str) -> Option<bool> {
    let mut words = " ".to_owned();
    for (number, part) in sentence.replace('’', "'").to_lowercase().split('`').enumerate() {
        // Code does not speak.
        let part = if number % 2 == 1 { "code" } else { part };
        let parts = part.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty());
        parts.for_each(|word| words.extend([word, " "]));
    }
    let has = |phrases: &str| phrases.split('|').any(|phrase| words.contains(&format!(" {} ", phrase.trim())));
    if sentence.trim_end().ends_with('?') || has(UNSETTLED) || has(UNLIKE) {
        return None;
    }
    let is_short = SHORT.split('|').any(|short| words.trim() == short) || words.starts_with(" done ");
    let is_success = is_short || has(SUCCESS) || has(TESTED) && has(PASSES);
    let mut settled = words.clone();
    HARMLESS.split('|').for_each(|phrase| settled = settled.replace(&format!(" {} ", phrase.trim()), " "));
    let has = |phrases: &str| phrases.split('|').any(|phrase| settled.contains(&format!(" {} ", phrase.trim())));
    let is_counted = || {
        settled
            .split(' ')
            .zip(settled.split(' ').skip(1))
            .any(|(count, word)| word == "failed" && count.chars().all(|c| c.is_ascii_digit()) && !count.is_empty())
    };
    match is_success {
        _ if has(FAILING) || is_counted() => Some(false),
        true => Some(!has(NEGATED)),
        false if has("failed") => Some(false),
        false => None,
    }
}
