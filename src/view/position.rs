//! Positions as people, models and programs write them: `12`, `@12`, `before:12`, `-5`, a moment, an age, or a tag.

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::engine::clock::Timestamp;
use crate::engine::error::ValueError;
use crate::engine::event::{CallFinished, CallStarted, Event, SessionStarted};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::Annotations;

/// A position in a session, as it was written. Every form but [`Exact`](Position::Exact) stands for the end of a commit.
///
/// ```
/// # use foldspace_view as foldspace;
/// use foldspace::view::Position;
/// assert_eq!("-5".parse(), Ok(Position::Back(5)));
/// assert_eq!("1h30m".parse(), Ok(Position::Ago(5_400_000)));
/// assert!("yesterday".parse::<Position>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// The end of the call with this number, or the commit of the event with this number; 0 is before the first event.
    Seq(Seq),
    /// Exactly the event with this number.
    Exact(Seq),
    /// Before the call with this number, or before the call of the event with this number.
    Before(Seq),
    /// This many events before the last one.
    Back(u64),
    /// The last event at or before this moment, which is not before the first event.
    Moment(Timestamp),
    /// The last event this many milliseconds ago or earlier.
    Ago(i64),
    /// The event with this tag.
    Tag(String),
}

impl FromStr for Position {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let text = text.trim();
        if let Some(name) = text.strip_prefix("tag:") {
            return Ok(Self::Tag(name.to_owned()));
        }
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse::<u64>().ok(),
            false => None,
        };
        let after = |prefix: &str| text.strip_prefix(prefix).and_then(number);
        let known = number(text).map(Self::Seq).or_else(|| after("@").map(Self::Exact));
        let known = known.or_else(|| after("before:").map(Self::Before));
        let known = known.or_else(|| after("-").map(Self::Back));
        let known = known.or_else(|| milliseconds(text).map(Self::Ago));
        known
            .or_else(|| moment(text).map(Self::Moment))
            .ok_or_else(|| ValueError::new(format!("a position is {}", Self::FORMS)))
    }
}

/// Parses a moment; without an offset it is in this machine's time zone.
fn moment(text: &str) -> Option<Timestamp> {
    if let Ok(exact) = text.parse() {
        return Some(exact);
    }
    // Dropping the zone would change the moment.
    if text.contains('[') {
        let zoned: jiff::Zoned = text.parse().ok()?;
        return Some(Timestamp(zoned.timestamp().as_millisecond()));
    }
    let local: jiff::civil::DateTime = text.parse().ok()?;
    let zoned = local.to_zoned(jiff::tz::TimeZone::system()).ok()?;
    Some(Timestamp(zoned.timestamp().as_millisecond()))
}

/// Parses a duration such as `90s`, `10m` or `1h30m`.
fn milliseconds(text: &str) -> Option<i64> {
    let text = text.strip_suffix(" ago").unwrap_or(text);
    let span: jiff::Span = text.starts_with(|c: char| c.is_ascii_digit()).then(|| text.parse().ok())??;
    let length = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
    let millis = i64::try_from(length.as_millis()).ok().filter(|millis| *millis >= 0)?;
    // A longer duration could not be parsed again as milliseconds.
    jiff::Span::new().try_milliseconds(millis).ok().map(|_| millis)
}

impl Position {
    /// A description of the valid forms.
    pub const FORMS: &str = "a call's or an event's number (12), exactly an event (@12), before a call (before:12), \
                             so many events ago (-5), a moment (2025-01-31T12:00:00Z), how long ago (10m, 2h, 1h30m), \
                             or a name (tag:NAME)";

    /// Resolves the position in a session: a call's number to the end of the call, or to the head while it runs, and
    /// an event inside a commit to the end of the commit, except for [`Position::Exact`].
    pub fn resolve(&self, session: &Session) -> Result<Seq, SessionError> {
        let seq = self.event(session)?;
        match *self {
            Self::Exact(_) => Ok(seq),
            Self::Seq(_) => session.commit_end(call_end(session, seq)?.unwrap_or(seq)),
            _ => session.commit_end(seq),
        }
    }

    /// Returns true if the position counts from the present.
    #[doc(hidden)]
    pub fn is_relative(&self) -> bool {
        matches!(self, Self::Back(_) | Self::Ago(_))
    }

    /// Returns the event with this number, or the one that another form names.
    pub fn event(&self, session: &Session) -> Result<Seq, SessionError> {
        let head = session.head()?;
        match *self {
            Self::Seq(seq) | Self::Exact(seq) if seq > head => Err(SessionError::NoPosition { seq, head }),
            Self::Seq(seq) | Self::Exact(seq) => Ok(seq),
            Self::Before(seq) => call_of(session, seq).map(|call| call - 1),
            Self::Back(count) => head.checked_sub(count).ok_or(SessionError::NothingBack { count, head }),
            Self::Moment(time) => begun(session, last_at(session, head, time)?),
            Self::Ago(millis) => begun(session, last_at(session, head, ago(session, millis))?),
            Self::Tag(ref name) => tagged(session, name),
        }
    }

    /// Returns the event that the position names if it is inside a commit, so that a rewind or a fork goes to the
    /// commit's end.
    pub fn inside(&self, session: &Session) -> Result<Option<Seq>, SessionError> {
        let seq = self.event(session)?;
        let is_call = matches!(self, Self::Seq(_)) && call_end(session, seq)?.is_some();
        Ok((!is_call && session.commit_end(seq)? != seq).then_some(seq))
    }

    /// Returns the first event for a reader of the log: for a moment the first event at or after it, and for a position
    /// before the first event the first one. It may be after the head.
    pub fn first_read(&self, session: &Session) -> Result<Seq, SessionError> {
        let since = |Timestamp(millis)| {
            let before = Timestamp(millis.saturating_sub(1));
            Ok::<_, SessionError>(last_at(session, session.head()?, before)? + 1)
        };
        let first = match *self {
            Self::Seq(seq) | Self::Exact(seq) => seq,
            Self::Before(seq) => call_of(session, seq)?,
            Self::Back(count) => session.head()?.saturating_sub(count),
            Self::Moment(time) => since(time)?,
            Self::Ago(millis) => since(ago(session, millis))?,
            Self::Tag(ref name) => tagged(session, name)?,
        };
        Ok(first.max(1))
    }
}

/// Returns the first event for a reader of the log; at most the position after the head.
pub fn first_read(session: &Session, from: &Position) -> Result<Seq, SessionError> {
    let (first, head) = (from.first_read(session)?, session.head()?);
    if first > head + 1 { Err(SessionError::NoPosition { seq: first, head }) } else { Ok(first) }
}

/// Returns the end of the call that begins at a position: its outcome, the last event of the parent if it was under way
/// there when the fork began, or else the head. `None` if no call begins there.
fn call_end(session: &Session, call: Seq) -> Result<Option<Seq>, SessionError> {
    if call == 0 || *session.event(call)?.event.kind != *CallStarted::KIND {
        return Ok(None);
    }
    let mut end = session.head()?;
    session.visit_between(call + 1, end, &mut |event| {
        end = match event.kind {
            CallFinished::KIND if event.call == Some(call) => event.seq,
            SessionStarted::KIND => event.seq - 1,
            _ => return ControlFlow::Continue(()),
        };
        ControlFlow::Break(())
    })?;
    Ok(Some(end))
}

fn call_of(session: &Session, seq: Seq) -> Result<Seq, SessionError> {
    let event = session.event(seq)?;
    event.call.ok_or_else(|| SessionError::NotInCall { seq, kind: event.event.kind.to_string() })
}

fn begun(session: &Session, seq: Seq) -> Result<Seq, SessionError> {
    if seq > 0 { Ok(seq) } else { Err(SessionError::NotBegun { began: session.event(1)?.time }) }
}

fn tagged(session: &Session, name: &str) -> Result<Seq, SessionError> {
    let state = session.state()?;
    let tags = state.slice::<Annotations>().map(|annotations| &annotations.tags);
    let known = || tags.map(|tags| tags.keys().cloned().collect()).unwrap_or_default();
    let at = tags.and_then(|tags| tags.get(name).copied());
    at.ok_or_else(|| SessionError::NoTag { name: name.to_owned(), known: known() })
}

fn ago(session: &Session, millis: i64) -> Timestamp {
    Timestamp(session.now().0.saturating_sub(millis))
}

/// Finds the last event at or before a moment; 0 without one. Times never decrease in a session.
fn last_at(session: &Session, head: Seq, time: Timestamp) -> Result<Seq, SessionError> {
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

/// Accepts a number, negative for so many events ago, or a text.
impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Value::deserialize(deserializer)?;
        let text = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
        text.parse().map_err(de::Error::custom)
    }
}

impl Position {
    #[doc(hidden)]
    pub fn meaning() -> String {
        let forms = Self::FORMS;
        format!(
            "A position: {forms}. A call's number stands for the whole call: the position is after its end, or the \
             present while it runs. Another number, and every other form but `@12`, stands for the end of the commit \
             of its event. 0 is before the first event. A moment without an offset is in the machine's time zone; one \
             before the session began is an error."
        )
    }
}

impl JsonSchema for Position {
    fn schema_name() -> Cow<'static, str> {
        "Position".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "description": Self::meaning(), "anyOf": [{ "type": "integer" }, { "type": "string" }] })
    }
}

impl fmt::Display for Position {
    /// Prints a form that parses again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seq(seq) => write!(f, "{seq}"),
            Self::Exact(seq) => write!(f, "@{seq}"),
            Self::Before(seq) => write!(f, "before:{seq}"),
            Self::Back(count) => write!(f, "-{count}"),
            Self::Moment(time) => write!(f, "{time}"),
            Self::Ago(millis) => write!(f, "{millis}ms"),
            Self::Tag(name) => write!(f, "tag:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::clock::StepClock;
    use crate::engine::event::DeleteEntry;
    use crate::engine::path::EntryPath;
    use crate::engine::registry::Registry;
    use crate::engine::session::sessions::NewSession;
    use crate::engine::session::sessions::Sessions;
    use crate::engine::session::snapshot::SnapshotPolicy;
    use crate::engine::store::MemoryStore;

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "(before:|[ @-]{0,2})[0-9]{0,21} ?",
            "([0-9]{1,20}(ms|s|m|min|h|d|w|x)){0,4}( ago)?",
            "[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}[T ]?([0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,12})?)?)?(Z|[+-][0-9]{2}:?[0-9]{0,2})?",
            "[0-9]{4}-(0[1-9]|1[0-2])-[0-2][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]([.][0-9]{3})?(Z|\\[[A-Za-z/]{1,12}\\])",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn position_print_parses_again(text in texts()) {
            if let Ok(position) = text.parse::<Position>() {
                prop_assert_eq!(position.to_string().parse(), Ok(position), "{:?}", text);
            }
        }
    }

    #[test]
    fn position_parses_every_form() {
        let read = |text: &str| text.parse::<Position>();
        assert_eq!(read("12"), Ok(Position::Seq(12)));
        assert_eq!(read("@0"), Ok(Position::Exact(0)));
        assert_eq!(read("before:7"), Ok(Position::Before(7)));
        assert_eq!(read("-5"), Ok(Position::Back(5)));
        assert_eq!(read("10m"), Ok(Position::Ago(600_000)));
        assert_eq!(read("1h30m ago"), Ok(Position::Ago(5_400_000)));
        assert_eq!(read("500ms"), Ok(Position::Ago(500)));
        assert_eq!(read("2023-11-14T22:13:20.120Z"), Ok(Position::Moment(Timestamp(1_700_000_000_120))));
        assert_eq!(read("2023-11-14T23:13:20.120+01:00"), Ok(Position::Moment(Timestamp(1_700_000_000_120))));
        assert_eq!(read("2023-11-14T23:13:20.120[Europe/Paris]"), Ok(Position::Moment(Timestamp(1_700_000_000_120))));
        assert!(matches!(read("2023-11-14 22:13"), Ok(Position::Moment(_))));
    }

    #[test]
    fn position_in_json_is_number_or_text() {
        let read = |json: &str| serde_json::from_str::<Position>(json).map_err(|error| error.to_string());
        assert_eq!(read("12"), Ok(Position::Seq(12)));
        assert_eq!(read("-5"), Ok(Position::Back(5)));
        assert_eq!(read("\"-5\""), Ok(Position::Back(5)));
        assert_eq!(read("18446744073709551615"), Ok(Position::Seq(u64::MAX)));
        assert_eq!(read("-9223372036854775808"), Ok(Position::Back(1 << 63)));
        for json in ["1.5", "1e30", "null", "true", "[]", "{}", "\"soon\"", "\"\""] {
            assert!(read(json).is_err_and(|error| error.contains("so many events ago")), "{json}");
        }
    }

    #[test]
    fn position_malformed_is_refused() {
        let huge = "9".repeat(30);
        for text in [
            "",
            "@",
            "-",
            "@-5",
            "--5",
            "+5",
            "1x",
            "m",
            "1h30",
            "yesterday",
            "0x10",
            "1.5",
            "@@1",
            "before:",
            "before:-1",
            "before:@1",
            "2023-11-14T12:00[x]",
            &huge,
        ] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
        let far = format!("{}w", "9".repeat(18));
        assert!(far.parse::<Position>().is_err());
    }

    /// Creates five events, at about 1000, 1010, 1020, ... milliseconds: the id takes the clock's first reading.
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
    fn position_is_resolved() {
        let session = five_events();
        let found = |text: &str| text.parse::<Position>().unwrap().resolve(&session).ok();
        assert_eq!([found("0"), found("5"), found("6")], [Some(0), Some(5), None]);
        assert_eq!([found("-0"), found("-5"), found("-6")], [Some(5), Some(0), None]);
        let times: Vec<_> = session.events(1, 9).unwrap().iter().map(|event| event.time).collect();
        for (seq, time) in (1..).zip(&times) {
            assert_eq!(Position::Moment(*time).resolve(&session).ok(), Some(seq));
            let earlier = Position::Moment(Timestamp(time.0 - 1)).resolve(&session).ok();
            assert_eq!(earlier, Some(seq - 1).filter(|seq| *seq > 0));
        }
        let first = |text: &str| text.parse::<Position>().unwrap().first_read(&session).unwrap();
        assert_eq!(["0", "1", "9", "-0", "-4", "-99", "1w", "0s"].map(first), [1, 1, 9, 5, 1, 1, 1, 6]);
        for (seq, time) in (1..).zip(&times) {
            assert_eq!(Position::Moment(*time).first_read(&session).unwrap(), seq);
            assert_eq!(Position::Moment(Timestamp(time.0 + 1)).first_read(&session).unwrap(), seq + 1);
        }
        assert_eq!(found("0s"), Some(5));
        let error = "-6".parse::<Position>().unwrap().resolve(&session).unwrap_err().to_string();
        assert_eq!(error, "6 events ago is before the first event: the session has 5 events");
        let error = "1w".parse::<Position>().unwrap().resolve(&session).unwrap_err().to_string();
        assert_eq!(error, "the session began at 1970-01-01T00:00:01.000Z, after the requested time");
    }
}
