//! Positions as people give them: `12`, `@12`, `-5`, a moment, or how long ago.

use std::str::FromStr;

use clap::Arg;
use foldspace::{Seq, Session, SessionError, State, Timestamp};

use super::exit::{Exit, Failure};
use super::text;

/// The options that choose a moment of a session. Each command says with [`meaning`] what it does there.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct At {
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    at: Option<Position>,

    #[arg(long, value_name = "CALL", conflicts_with = "at", value_parser = call_number)]
    before: Option<Seq>,
}

/// The forms of a position.
const FORMS: &str = "an event's number (12 or @12), so many events ago (-5), a moment (2025-01-31T12:00:00Z), or how \
                     long ago (10m, 2h, 1h30m)";

/// Says in a command's help what `--at` and `--before` mean there: words that go on with the place.
pub(super) fn meaning(at: &'static str, before: &'static str) -> impl FnMut(Arg) -> Arg {
    move |arg| match arg.get_id().as_str() {
        "at" => arg.help(format!("{at} POSITION: {FORMS}")),
        "before" => arg.help(format!("{before} CALL: a call's number, or that of any of its events")),
        _ => arg,
    }
}

impl At {
    /// Whether a moment was chosen.
    pub(super) fn is_given(&self) -> bool {
        self.at.is_some() || self.before.is_some()
    }

    /// The position that is meant; the head when none was given.
    pub(super) fn resolve(&self, session: &Session) -> Result<Seq, Failure> {
        match (&self.at, self.before) {
            (Some(position), _) => position.resolve(session),
            (None, Some(call)) => before(session, call),
            (None, None) => Ok(session.head()?),
        }
    }

    /// The state at that position.
    pub(super) fn state(&self, session: &Session) -> Result<State, Failure> {
        Ok(match self.is_given() {
            true => session.state_at(self.resolve(session)?)?,
            false => session.state()?,
        })
    }
}

fn call_number(text: &str) -> Result<Seq, String> {
    match text.parse() {
        Ok(Position::Seq(seq)) => Ok(seq),
        _ => Err("give the number of a call, as `foldspace log --calls` shows it".to_owned()),
    }
}

/// Where the call stood before it began; an event of a call stands for the call.
fn before(session: &Session, seq: Seq) -> Result<Seq, Failure> {
    let event = session.event(seq)?;
    event.call.map(|call| call.saturating_sub(1)).ok_or_else(|| {
        let failure = Failure::new(
            Exit::NotFound,
            format!("event {seq}, a {}, belongs to no call", text::one_line(&event.event.kind, 100)),
        );
        failure.with_hint("`foldspace log --calls` shows the calls")
    })
}

/// A position in a session, as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Position {
    /// The event with that number; 0 is before the first.
    Seq(Seq),
    /// So many events before the last one.
    Back(u64),
    /// The last event at or before that moment.
    Moment(Timestamp),
    /// The last event so many milliseconds ago or earlier.
    Ago(i64),
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse::<u64>().ok(),
            false => None,
        };
        let digits = text.strip_prefix('@').unwrap_or(text);
        let known = number(digits).map(Self::Seq);
        let known = known.or_else(|| text.strip_prefix('-').and_then(number).map(Self::Back));
        let known = known.or_else(|| milliseconds(text).map(Self::Ago));
        known.or_else(|| moment(text).map(Self::Moment)).ok_or_else(|| format!("a position is {FORMS}"))
    }
}

/// A moment with its offset from UTC, or without one in this machine's time zone.
fn moment(text: &str) -> Option<Timestamp> {
    if let Ok(exact) = text.parse() {
        return Some(exact);
    }
    let local: jiff::civil::DateTime = text.parse().ok()?;
    let zoned = local.to_zoned(jiff::tz::TimeZone::system()).ok()?;
    Some(Timestamp(zoned.timestamp().as_millisecond()))
}

/// A length of time such as `90s`, `10m` or `1h30m`.
fn milliseconds(text: &str) -> Option<i64> {
    let mut rest = text.strip_suffix(" ago").unwrap_or(text);
    let mut sum: i64 = 0;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..unit_at].parse().ok()?;
        let after = &rest[unit_at..];
        let unit_len = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let unit = match &after[..unit_len] {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        rest = &after[unit_len..];
    }
    (!text.is_empty()).then_some(sum)
}

impl Position {
    /// The position that is meant in a session.
    pub(super) fn resolve(&self, session: &Session) -> Result<Seq, Failure> {
        let head = session.head()?;
        match self {
            Self::Seq(seq) if *seq > head => Err(SessionError::NoPosition { seq: *seq, head }.into()),
            Self::Seq(seq) => Ok(*seq),
            Self::Back(count) => head.checked_sub(*count).ok_or_else(|| {
                let words = format!("there is nothing {count} events ago: the session has {head}");
                Failure::new(Exit::NotFound, words)
            }),
            Self::Moment(time) => last_at(session, head, *time),
            Self::Ago(millis) => last_at(session, head, Timestamp(session.now().0.saturating_sub(*millis))),
        }
    }
}

/// The last event at or before a moment; 0 when there is none. Times never go back in a session.
fn last_at(session: &Session, head: Seq, time: Timestamp) -> Result<Seq, Failure> {
    let (mut after, mut until) = (0, head);
    while after < until {
        let middle = after + (until - after).div_ceil(2);
        if session.event(middle)?.time <= time {
            after = middle;
        } else {
            until = middle - 1;
        }
    }
    Ok(after)
}

/// From one position to another, as `A..B`; either may be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    from: Option<Position>,
    until: Option<Position>,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let position = |text: &str| match text.trim() {
            "" => Ok(None),
            given => given.parse().map(Some),
        };
        let Some((from, until)) = text.split_once("..") else {
            return Err("give two positions as A..B; either may be left out, as in A.. or ..B".to_owned());
        };
        Ok(Self { from: position(from)?, until: position(until)? })
    }
}

impl Range {
    /// Both positions; what was left out is the beginning or the head.
    pub(super) fn resolve(&self, session: &Session) -> Result<(Seq, Seq), Failure> {
        let from = self.from.as_ref().map_or(Ok(0), |position| position.resolve(session))?;
        let until = match &self.until {
            Some(position) => position.resolve(session)?,
            None => session.head()?,
        };
        Ok((from, until))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use foldspace::{DeleteEntry, EntryPath, MemoryStore, NewSession, Registry, Sessions, SnapshotPolicy, StepClock};

    use super::*;

    #[test]
    fn every_form_is_understood() {
        let read = |text: &str| text.parse::<Position>();
        assert_eq!(read("12"), Ok(Position::Seq(12)));
        assert_eq!(read("@0"), Ok(Position::Seq(0)));
        assert_eq!(read("-5"), Ok(Position::Back(5)));
        assert_eq!(read("10m"), Ok(Position::Ago(600_000)));
        assert_eq!(read("1h30m ago"), Ok(Position::Ago(5_400_000)));
        assert_eq!(read("500ms"), Ok(Position::Ago(500)));
        assert_eq!(read("2023-11-14T22:13:20.120Z"), Ok(Position::Moment(Timestamp(1_700_000_000_120))));
        assert_eq!(read("2023-11-14T23:13:20.120+01:00"), Ok(Position::Moment(Timestamp(1_700_000_000_120))));
        assert!(matches!(read("2023-11-14 22:13"), Ok(Position::Moment(_))));
    }

    #[test]
    fn anything_else_is_refused() {
        let huge = "9".repeat(30);
        for text in ["", "@", "-", "@-5", "--5", "+5", "1x", "m", "1h30", "yesterday", "0x10", "1.5", "@@1", &huge] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
        let far = format!("{}w", "9".repeat(18));
        assert!(far.parse::<Position>().is_err());
    }

    #[test]
    fn ranges_may_be_open() {
        let read = |text: &str| text.parse::<Range>();
        assert_eq!(read(".."), Ok(Range { from: None, until: None }));
        assert_eq!(read("@3..-2"), Ok(Range { from: Some(Position::Seq(3)), until: Some(Position::Back(2)) }));
        assert_eq!(read("-9.."), Ok(Range { from: Some(Position::Back(9)), until: None }));
        for text in ["", "3", "3...5", "a..b", "1..2..3"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    /// Five events, at 1000, 1010, 1020, ... milliseconds, more or less: the first reading is the id's.
    fn five_events() -> Session {
        let clock = Arc::new(StepClock::new(Timestamp(1000), 10));
        let store = Arc::new(MemoryStore::default());
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
        let session = sessions.create(NewSession::named("five")).unwrap();
        for _ in 0..4 {
            let mut commit = session.commit();
            commit.push(&DeleteEntry { path: EntryPath::lookup("a").unwrap() }).unwrap();
            session.record(commit).unwrap();
        }
        session
    }

    #[test]
    fn positions_are_found() {
        let session = five_events();
        let found = |text: &str| text.parse::<Position>().unwrap().resolve(&session).ok();
        assert_eq!([found("0"), found("5"), found("6")], [Some(0), Some(5), None]);
        assert_eq!([found("-0"), found("-5"), found("-6")], [Some(5), Some(0), None]);
        let times: Vec<_> = session.events(1, 9).unwrap().iter().map(|event| event.time).collect();
        for (seq, time) in (1..).zip(&times) {
            assert_eq!(Position::Moment(*time).resolve(&session).ok(), Some(seq));
            assert_eq!(Position::Moment(Timestamp(time.0 - 1)).resolve(&session).ok(), Some(seq - 1));
        }
        assert_eq!(found("1w"), Some(0));
        assert_eq!(found("0s"), Some(5));
        assert_eq!("-4..".parse::<Range>().unwrap().resolve(&session).ok(), Some((1, 5)));
    }
}
