//! Limits of a session and of its shared children, compared with their usage.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::engine::event::{CallStarted, ChildLimits, Event, Isolation, MountHydrated, WriteFile};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::reducers::{Children, SharedChild, Usage};
use crate::tools::call::error::{LimitName, ToolError, UsedLimit};
use crate::tools::policy::DenyRule;
use crate::tools::words::{all_of, counted};
use crate::tools::workspace::plan::PlannedChange;
use crate::tools::workspace::runtime::SessionRuntime;

/// Limits of a session and of its shared children. A call obeys all limits between its agent and the session.
///
/// Usage comes from the history, so a restart resets nothing. Limits bind an agent by its name, in any process, from
/// its beginning as a child.
#[derive(Debug)]
pub(crate) struct Limits {
    own: Option<Own>,
    /// True for the limits of a shared child, which has one agent name.
    pub(crate) is_shared: bool,
}

#[derive(Debug)]
struct Own {
    limits: ChildLimits,
    /// Usage before the first call; read with that call, because mounts are copied by then.
    before: OnceLock<Usage>,
    begun: Arc<AtomicU64>,
}

/// Limits with their usage; times cover ended calls only.
struct Bound<'a> {
    who: String,
    limits: &'a ChildLimits,
    calls: u64,
    call_micros: u64,
    bytes_written: u64,
}

/// Returns the last position before a child's own work: the end of its parent's history and of its mounts.
pub fn began(session: &Session) -> Result<Seq, SessionError> {
    if let Some(origin) = session.origin().filter(|origin| origin.isolation == Isolation::Fork) {
        return Ok(origin.at.saturating_add(1).min(session.head()?));
    }
    let (mut last, mut mounted) = (0, None);
    session.visit(1, &mut |event| {
        match event.kind {
            CallStarted::KIND => return ControlFlow::Break(()),
            MountHydrated::KIND => mounted = Some(event.time),
            // A mount's files are in the same commit and have its time.
            WriteFile::KIND if mounted == Some(event.time) => {}
            kind if PlannedChange::KINDS.contains(&kind) => return ControlFlow::Break(()),
            _ => mounted = None,
        }
        last = event.seq;
        ControlFlow::Continue(())
    })?;
    Ok(last)
}

/// Returns the remaining limits of a session under its agent's name: the maximum for a new child.
pub(crate) fn left(session: &Session) -> Result<ChildLimits, SessionError> {
    let state = session.state()?;
    let limits = Limits::of(session)?;
    let bounds = limits.bounds(session, &state)?;
    Ok(ChildLimits {
        calls: bounds.iter().filter_map(|bound| Some(bound.limits.calls?.saturating_sub(bound.calls))).min(),
        wall_millis: bounds.iter().filter_map(Bound::micros_left).min().map(|micros| micros / 1000),
        bytes_written: bounds.iter().filter_map(Bound::bytes_left).min(),
        ..narrowed(session, &state)
    })
}

fn shared<'a>(state: &'a State, agent: &'a str) -> Vec<(&'a str, &'a SharedChild)> {
    state.slice::<Children>().into_iter().flat_map(|children| children.shared(agent)).collect()
}

pub(super) fn narrowed(session: &Session, state: &State) -> ChildLimits {
    let mut limits = session.limits().clone();
    for (_, child) in shared(state, session.agent()) {
        let depth = limits.depth.into_iter().chain(child.limits.depth).min();
        limits = ChildLimits { depth, ..child.limits.within(&limits) };
    }
    limits
}

#[doc(hidden)]
pub fn limits_of(session: &Session) -> Result<ChildLimits, SessionError> {
    Ok(narrowed(session, &session.state()?))
}

#[doc(hidden)]
pub fn denied(limits: &ChildLimits) -> impl Iterator<Item = DenyRule> {
    limits.deny.iter().filter_map(|entry| DenyRule::words(entry).ok())
}

impl Limits {
    pub(crate) fn of(session: &Session) -> Result<Self, SessionError> {
        let limits = session.started().map(|started| &started.limits).filter(|limits| !limits.is_unlimited());
        let own = match limits.cloned() {
            None => None,
            Some(limits) => {
                let begun = SessionRuntime::of(session).calls_begun(calls_of(session)?);
                Some(Own { limits, before: OnceLock::new(), begun })
            }
        };
        Ok(Self { own, is_shared: false })
    }

    /// Counts a call and refuses it above the limits; returns the time that it may take, and the error for more.
    pub(crate) fn admit(
        &self,
        session: &Session,
        state: &State,
        call: Seq,
        tool: &str,
    ) -> Result<Option<(Duration, ToolError)>, ToolError> {
        // Before any refusal, because every call counts.
        let number = self.own.as_ref().map_or(0, |own| own.begun.fetch_add(1, Ordering::AcqRel) + 1);
        let shared = shared(state, session.agent());
        if self.own.is_none() && shared.is_empty() && session.limits().is_unlimited() {
            return Ok(None);
        }
        check_tool(&narrowed(session, state), tool)?;
        let own = self.own.as_ref().map(|own| &own.limits);
        if let Some(limit) = own.and_then(|limits| limits.calls).filter(|limit| number > *limit) {
            return Err(used_up(THIS, &format!("its {}", counted(limit, "call")), (LimitName::Calls, limit)));
        }
        for (agent, child) in &shared {
            if let (Some(limit), Some(_)) = (child.limits.calls, child.last_call.filter(|last| call > *last)) {
                let what = format!("its {}", counted(limit, "call"));
                return Err(used_up(&who(agent), &what, (LimitName::Calls, limit)));
            }
        }
        let bounds = self.bounds(session, state)?;
        let least = bounds.iter().filter_map(|bound| Some((bound.micros_left()?, bound))).min_by_key(|(left, _)| *left);
        match least {
            None => Ok(None),
            Some((0, bound)) => Err(bound.out_of_time()),
            Some((micros, bound)) => Ok(Some((Duration::from_micros(micros), bound.out_of_time()))),
        }
    }

    /// Refuses writes above the byte limit, and commands, which may write anything, once no bytes remain.
    pub(crate) fn check_bytes(
        &self,
        session: &Session,
        state: &State,
        bytes: u64,
        is_command: bool,
    ) -> Result<(), ToolError> {
        if bytes == 0 && !is_command {
            return Ok(());
        }
        for bound in self.bounds(session, state)? {
            let (Some(limit), Some(left)) = (bound.limits.bytes_written, bound.bytes_left()) else { continue };
            if bytes == 0 && left == 0 {
                let what = format!("its {} of files", counted(limit, "byte"));
                return Err(used_up(&bound.who, &what, (LimitName::BytesWritten, limit)));
            }
            if bytes > left {
                let what = format!(
                    "{} may write {} of its {limit}, and this would be {bytes}; nothing was written",
                    bound.who,
                    counted(left, "more byte")
                );
                let used = limit.saturating_sub(left);
                return Err(ToolError::OverLimit(what, UsedLimit { name: LimitName::BytesWritten, limit, used }));
            }
        }
        Ok(())
    }

    fn bounds<'a>(&'a self, session: &'a Session, state: &'a State) -> Result<Vec<Bound<'a>>, SessionError> {
        let mut bounds = Vec::new();
        if let Some(own) = &self.own {
            bounds.push(own.bound(session, state)?);
        }
        bounds.extend(shared(state, session.agent()).into_iter().map(|(agent, child)| Bound {
            who: who(agent),
            limits: &child.limits,
            calls: child.calls,
            call_micros: child.call_micros,
            bytes_written: child.bytes_written,
        }));
        Ok(bounds)
    }
}

impl Own {
    fn bound(&self, session: &Session, state: &State) -> Result<Bound<'_>, SessionError> {
        let before = match self.before.get() {
            Some(before) => before,
            None => {
                let before = usage(&session.state_at(began(session)?)?);
                self.before.get_or_init(|| before)
            }
        };
        let now = usage(state);
        Ok(Bound {
            who: THIS.to_owned(),
            limits: &self.limits,
            calls: self.begun.load(Ordering::Acquire),
            call_micros: now.call_micros.saturating_sub(before.call_micros),
            bytes_written: now.bytes_written.saturating_sub(before.bytes_written),
        })
    }
}

impl Bound<'_> {
    fn micros_left(&self) -> Option<u64> {
        Some(self.limits.wall_millis?.saturating_mul(1000).saturating_sub(self.call_micros))
    }

    fn bytes_left(&self) -> Option<u64> {
        Some(self.limits.bytes_written?.saturating_sub(self.bytes_written))
    }

    fn out_of_time(&self) -> ToolError {
        let limit = self.limits.wall_millis.unwrap_or_default();
        used_up(&self.who, &format!("its {limit} ms for calls"), (LimitName::WallMillis, limit))
    }
}

const THIS: &str = "this session";

fn who(agent: &str) -> String {
    format!("agent {agent}")
}

fn check_tool(limits: &ChildLimits, tool: &str) -> Result<(), ToolError> {
    let Some(tools) = limits.tools.as_ref().filter(|tools| !tools.contains(tool)) else { return Ok(()) };
    let names: Vec<String> = tools.iter().cloned().collect();
    Err(ToolError::new(match names.is_empty() {
        true => format!("this session may not use {tool}; it may use no tools"),
        false => format!("this session may not use {tool}; it may use {}", all_of(&names)),
    }))
}

fn usage(state: &State) -> Usage {
    state.slice::<Usage>().cloned().unwrap_or_default()
}

fn calls_of(session: &Session) -> Result<u64, SessionError> {
    let before = session.state_at(began(session)?)?;
    Ok(usage(&session.state()?).calls.saturating_sub(usage(&before).calls))
}

fn used_up(who: &str, what: &str, (name, limit): (LimitName, u64)) -> ToolError {
    let text = format!("{who} has used up {what}; end the work, and say how far it is");
    ToolError::OverLimit(text, UsedLimit { name, limit, used: limit })
}
