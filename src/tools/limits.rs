//! What a child may do, held against what it has done.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::error::ToolError;
use super::policy::DenyRule;
use crate::engine::event::{CallStarted, ChildLimits, Event, Isolation};
use crate::engine::recorded::Seq;
use crate::engine::session::Session;
use crate::engine::sessions::SessionError;
use crate::engine::state::State;
use crate::reducers::Usage;

/// How a failure begins that says that nothing is left.
const USED_UP: &str = "this session has used up ";
/// How a failure begins that says that too little is left.
const MAY_WRITE: &str = "this session may write ";

/// The limits of a session, and what it had used up when it began: the past that it shares is its parent's.
///
/// What is used is read from the history, so that a restart gives nothing back. Only of a shared child, which has no
/// history of its own, it is counted here: it lives as long as its dispatcher.
#[derive(Debug)]
pub(super) struct Limits {
    limits: ChildLimits,
    is_shared: bool,
    /// What was used before the first call; looked up with that, for by then mounts are copied.
    before: OnceLock<Usage>,
    /// Calls that were begun: in the session, or by the shared child.
    begun: Arc<AtomicU64>,
    /// The same of the session, when it has limits and a child shares it: its calls are the session's, too.
    begun_in_session: Option<Arc<AtomicU64>>,
    micros: AtomicU64,
    bytes: AtomicU64,
}

/// The position up to which a child's history is none of its own work: its parent's past, its mounts.
pub(super) fn began(session: &Session) -> Result<Seq, SessionError> {
    if let Some(origin) = session.origin().filter(|origin| origin.isolation == Isolation::Fork) {
        // A history from elsewhere may say anything.
        return Ok(origin.at.saturating_add(1).min(session.head()?));
    }
    let mut last = 0;
    session.visit(1, &mut |event| {
        if event.kind == CallStarted::KIND {
            return ControlFlow::Break(());
        }
        last = event.seq;
        ControlFlow::Continue(())
    })?;
    Ok(last)
}

impl Limits {
    /// The limits of a session; none when it has none.
    pub(super) fn of(session: &Session) -> Result<Option<Self>, SessionError> {
        if session.limits().is_unlimited() {
            return Ok(None);
        }
        let limits = session.limits().clone();
        let is_shared = session.started().is_none_or(|started| started.limits != limits);
        let counts = session.started().is_some_and(|started| !started.limits.is_unlimited());
        let in_session = if counts { Some(session.calls_begun(calls_of(session)?)) } else { None };
        let (begun, begun_in_session) = match is_shared {
            true => (Arc::default(), in_session),
            false => (in_session.unwrap_or_default(), None),
        };
        let (before, count) = (OnceLock::new(), AtomicU64::default);
        Ok(Some(Self { limits, is_shared, before, begun, begun_in_session, micros: count(), bytes: count() }))
    }

    /// The only tools that may be used; none for all.
    pub(super) fn tools(&self) -> Option<&BTreeSet<String>> {
        self.limits.tools.as_ref()
    }

    /// What commands may not be, in addition to what a policy says.
    pub(super) fn denied(&self) -> impl Iterator<Item = DenyRule> {
        let words = |entry: &String| entry.split_whitespace().collect::<Vec<_>>().join(" ");
        let entries = self.limits.deny.iter().map(words).filter(|entry| !entry.is_empty());
        entries.flat_map(|entry| match entry.contains(' ') {
            // The program alone with these words, and with more.
            true => vec![DenyRule::Pattern(entry.clone()), DenyRule::Pattern(format!("{entry} *"))],
            false => vec![DenyRule::Program(entry)],
        })
    }

    /// Takes up a call whose intent is recorded, or refuses it. Gives how long it may take at most; none for as long
    /// as it likes.
    pub(super) fn admit(&self, session: &Session, tool: &str) -> Result<Option<Duration>, ToolError> {
        // Before anything is refused: every call counts.
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(begun) = &self.begun_in_session {
            begun.fetch_add(1, Ordering::AcqRel);
        }
        let used = self.used(session)?;
        if let Some(tools) = self.tools().filter(|tools| !tools.contains(tool)) {
            let names = tools.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(ToolError::new(match names.is_empty() {
                true => format!("this session may use no tools, so not {tool} either"),
                false => format!("this session may not use {tool}; it may use {names}"),
            }));
        }
        if let Some(limit) = self.limits.calls.filter(|limit| number > *limit) {
            return Err(used_up(&format!("its {limit} calls")));
        }
        let Some(limit) = self.limits.wall_millis else { return Ok(None) };
        let left = Duration::from_millis(limit).saturating_sub(Duration::from_micros(used.call_micros));
        if left.is_zero() { Err(self.out_of_time()) } else { Ok(Some(left)) }
    }

    /// Counts a call that has ended.
    pub(super) fn count(&self, micros: u64, bytes: u64) {
        self.micros.fetch_add(micros, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// What is said to a call when no time is left for it.
    pub(super) fn out_of_time(&self) -> ToolError {
        used_up(&format!("its {} ms for calls", self.limits.wall_millis.unwrap_or_default()))
    }

    /// Refuses to write so many bytes more than may be written; and to run commands, whose bytes nobody knows
    /// beforehand, when nothing is left.
    pub(super) fn check_bytes(&self, session: &Session, bytes: u64) -> Result<(), ToolError> {
        let Some(limit) = self.limits.bytes_written else { return Ok(()) };
        let left = limit.saturating_sub(self.used(session)?.bytes_written);
        match bytes {
            0 if left == 0 => Err(used_up(&format!("its {limit} bytes of files"))),
            bytes if bytes > left => Err(ToolError::new(format!(
                "{MAY_WRITE}{left} more bytes of its {limit}, and this would be {bytes}; nothing was written"
            ))),
            _ => Ok(()),
        }
    }

    /// What was used since the session began; of the calls only those that have ended.
    fn used(&self, session: &Session) -> Result<Usage, SessionError> {
        if self.is_shared {
            let count = |counted: &AtomicU64| counted.load(Ordering::Acquire);
            let (call_micros, bytes_written) = (count(&self.micros), count(&self.bytes));
            return Ok(Usage { call_micros, bytes_written, ..Usage::default() });
        }
        let before = match self.before.get() {
            Some(before) => before,
            None => {
                let before = usage(&session.state_at(began(session)?)?);
                self.before.get_or_init(|| before)
            }
        };
        let now = usage(&session.state()?);
        Ok(Usage {
            call_micros: now.call_micros.saturating_sub(before.call_micros),
            bytes_written: now.bytes_written.saturating_sub(before.bytes_written),
            ..Usage::default()
        })
    }
}

fn usage(state: &State) -> Usage {
    state.slice::<Usage>().cloned().unwrap_or_default()
}

/// The calls that a session has begun itself.
fn calls_of(session: &Session) -> Result<u64, SessionError> {
    let before = session.state_at(began(session)?)?;
    Ok(usage(&session.state()?).calls.saturating_sub(usage(&before).calls))
}

fn used_up(what: &str) -> ToolError {
    ToolError::new(format!("{USED_UP}{what}; end the work, and say how far it is"))
}

/// Whether a failure says that a call was refused, or ended, by what was left for it.
pub(super) fn says_used_up(message: &str) -> bool {
    message.starts_with(USED_UP) || message.starts_with(MAY_WRITE)
}
