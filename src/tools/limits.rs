//! What a child may do, held against what it has done.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::error::ToolError;
use super::policy::DenyRule;
use crate::engine::event::{ChildLimits, Isolation};
use crate::engine::recorded::Seq;
use crate::engine::session::Session;
use crate::engine::sessions::SessionError;
use crate::reducers::Usage;

/// The limits of a session, and what it had used up when it began: the past that it shares is its parent's.
///
/// What is used is read from the history, so that a restart gives nothing back.
#[derive(Debug)]
pub(super) struct Limits {
    limits: ChildLimits,
    before: Usage,
    /// Calls that were begun here or were recorded when this was made.
    begun: AtomicU64,
}

impl Limits {
    /// The limits of a session; none when it has none.
    pub(super) fn of(session: &Session) -> Result<Option<Self>, SessionError> {
        let Some(started) = session.started().filter(|started| !started.limits.is_unlimited()) else {
            return Ok(None);
        };
        let began = match &started.origin {
            Some(origin) if origin.isolation == Isolation::Fork => origin.at + 1,
            _ => 1,
        };
        let before = session.state_at(began)?.slice::<Usage>().cloned().unwrap_or_default();
        let limits = Self { limits: started.limits.clone(), before, begun: AtomicU64::new(0) };
        limits.begun.store(limits.used(session)?.0.calls, Ordering::Release);
        Ok(Some(limits))
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
        let (used, seq) = self.used(session)?;
        let begun = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(tools) = self.tools().filter(|tools| !tools.contains(tool)) {
            let names = tools.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(ToolError::new(match names.is_empty() {
                true => format!("this session may use no tools, so not {tool} either"),
                false => format!("this session may not use {tool}; it may use {names}"),
            }));
        }
        // Others may have made calls beside this dispatcher; those up to this one are in the history.
        let calls = if seq < call { begun.max(used.calls + 1) } else { begun };
        if let Some(limit) = self.limits.calls.filter(|limit| calls > *limit) {
            return Err(used_up(&format!("its {limit} calls")));
        }
        let Some(limit) = self.limits.wall_millis else { return Ok(None) };
        let left = Duration::from_millis(limit).saturating_sub(Duration::from_micros(used.call_micros));
        if left.is_zero() { Err(self.out_of_time()) } else { Ok(Some(left)) }
    }

    /// What is said to a call when no time is left for it.
    pub(super) fn out_of_time(&self) -> ToolError {
        used_up(&format!("its {} ms for calls", self.limits.wall_millis.unwrap_or_default()))
    }

    /// Refuses to write so many bytes more than may be written; and to run commands, whose bytes nobody knows
    /// beforehand, when nothing is left.
    pub(super) fn check_bytes(&self, session: &Session, bytes: u64) -> Result<(), ToolError> {
        let Some(limit) = self.limits.bytes_written else { return Ok(()) };
        let left = limit.saturating_sub(self.used(session)?.0.bytes_written);
        match bytes {
            0 if left == 0 => Err(used_up(&format!("its {limit} bytes of files"))),
            bytes if bytes > left => Err(ToolError::new(format!(
                "this session may write {left} more bytes of its {limit}, and this would be {bytes}; nothing was \
                 written"
            ))),
            _ => Ok(()),
        }
    }

    /// What was used since the session began, and by which position.
    fn used(&self, session: &Session) -> Result<(Usage, Seq), SessionError> {
        let state = session.state()?;
        let (now, before) = (state.slice::<Usage>().cloned().unwrap_or_default(), &self.before);
        let used = Usage {
            calls: now.calls.saturating_sub(before.calls),
            call_micros: now.call_micros.saturating_sub(before.call_micros),
            bytes_written: now.bytes_written.saturating_sub(before.bytes_written),
            ..Usage::default()
        };
        Ok((used, state.seq()))
    }
}

fn used_up(what: &str) -> ToolError {
    ToolError::new(format!("this session has used up {what}; end the work, and say how far it is"))
}
