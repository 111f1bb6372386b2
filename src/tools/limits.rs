//! What a child may do, held against what it has done.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::error::ToolError;
use super::policy::DenyRule;
use crate::engine::event::{CallStarted, ChildLimits, Event, Isolation};
use crate::engine::recorded::Seq;
use crate::engine::session::Session;
use crate::engine::sessions::SessionError;
use crate::engine::state::State;
use crate::reducers::Usage;

/// The limits of a session, and what it had used up when it began: the past that it shares is its parent's.
///
/// What is used is read from the history, so that a restart gives nothing back.
#[derive(Debug)]
pub(super) struct Limits {
    limits: ChildLimits,
    /// Looked up with the first call: by then mounts are copied.
    before: OnceLock<Usage>,
    /// Calls of the session that this process knows of.
    begun: AtomicU64,
}

/// The position up to which a child's history is none of its own work: its parent's past, its mounts.
pub(super) fn began(session: &Session) -> Result<Seq, SessionError> {
    let origin = session.started().and_then(|started| started.origin.as_ref());
    if let Some(origin) = origin.filter(|origin| origin.isolation == Isolation::Fork) {
        return Ok(origin.at + 1);
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
        let limits = session.limits();
        if limits.is_unlimited() {
            return Ok(None);
        }
        Ok(Some(Self { limits: limits.clone(), before: OnceLock::new(), begun: AtomicU64::new(0) }))
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
    pub(super) fn admit(&self, session: &Session, call: Seq, tool: &str) -> Result<Option<Duration>, ToolError> {
        let state = session.state()?;
        let used = self.used(session, &state)?;
        let number = self.number(session, call, &state, used.calls)?;
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

    /// The how-manieth a call is. Those before it may not all be seen yet; then they were counted here.
    fn number(&self, session: &Session, call: Seq, state: &State, seen: u64) -> Result<u64, SessionError> {
        if state.seq() < call {
            self.begun.fetch_max(seen, Ordering::AcqRel);
            return Ok(self.begun.fetch_add(1, Ordering::AcqRel) + 1);
        }
        let number = self.used(session, &session.state_at(call)?)?.calls;
        self.begun.fetch_max(number, Ordering::AcqRel);
        Ok(number)
    }

    /// What is said to a call when no time is left for it.
    pub(super) fn out_of_time(&self) -> ToolError {
        used_up(&format!("its {} ms for calls", self.limits.wall_millis.unwrap_or_default()))
    }

    /// Refuses to write so many bytes more than may be written; and to run commands, whose bytes nobody knows
    /// beforehand, when nothing is left.
    pub(super) fn check_bytes(&self, session: &Session, bytes: u64) -> Result<(), ToolError> {
        let Some(limit) = self.limits.bytes_written else { return Ok(()) };
        let left = limit.saturating_sub(self.used(session, &session.state()?)?.bytes_written);
        match bytes {
            0 if left == 0 => Err(used_up(&format!("its {limit} bytes of files"))),
            bytes if bytes > left => Err(ToolError::new(format!(
                "this session may write {left} more bytes of its {limit}, and this would be {bytes}; nothing was \
                 written"
            ))),
            _ => Ok(()),
        }
    }

    /// What was used by a moment since the session began.
    fn used(&self, session: &Session, state: &State) -> Result<Usage, SessionError> {
        let now = state.slice::<Usage>().cloned().unwrap_or_default();
        let before = match self.before.get() {
            Some(before) => before,
            None => {
                let before = session.state_at(began(session)?)?.slice::<Usage>().cloned().unwrap_or_default();
                self.before.get_or_init(|| before)
            }
        };
        Ok(Usage {
            calls: now.calls.saturating_sub(before.calls),
            call_micros: now.call_micros.saturating_sub(before.call_micros),
            bytes_written: now.bytes_written.saturating_sub(before.bytes_written),
            ..Usage::default()
        })
    }
}

fn used_up(what: &str) -> ToolError {
    ToolError::new(format!("this session has used up {what}; end the work, and say how far it is"))
}
