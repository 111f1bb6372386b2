//! The options that choose positions.

use std::str::FromStr;

use clap::Arg;
use foldspace::tools::first_position;
use foldspace::view::Position;
use foldspace::{Seq, Session, State};

use super::{Failure, output};

/// The options that choose a position of a session. Each command explains them with [`meaning`].
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct AtArg {
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    at: Option<Position>,

    #[arg(long, value_name = "CALL", conflicts_with = "at", value_parser = before)]
    before: Option<Position>,
}

/// Explains `--at` and `--before` in a command's help.
pub(super) fn meaning(at: &'static str, before: &'static str) -> impl FnMut(Arg) -> Arg {
    move |arg| match arg.get_id().as_str() {
        "at" => arg.help(format!("{at} POSITION: {}", Position::FORMS)),
        "before" => arg.help(format!("{before} CALL: the number of a call or of any of its events")),
        _ => arg,
    }
}

impl AtArg {
    pub(super) fn is_given(&self) -> bool {
        self.position().is_some()
    }

    pub(super) fn position(&self) -> Option<&Position> {
        self.at.as_ref().or(self.before.as_ref())
    }

    pub(super) fn resolve(&self, session: &Session) -> Result<Seq, Failure> {
        Ok(self.position().map_or_else(|| session.head(), |position| position.resolve(session))?)
    }

    pub(super) fn state(&self, session: &Session) -> Result<State, Failure> {
        Ok(match self.is_given() {
            true => session.state_at(self.resolve(session)?)?,
            false => session.state()?,
        })
    }
}

/// Resolves a position, and says so if it is inside a commit and means the commit's end.
pub(super) fn settled(position: &Position, session: &Session) -> Result<Seq, Failure> {
    let at = position.resolve(session)?;
    if let Some(asked) = position.inside(session)?.filter(|asked| *asked != at) {
        output::note(&format!("event {asked} is inside a commit; this goes to its end, {at}"));
    }
    Ok(at)
}

/// Parses the CALL of `--before`.
pub(super) fn before(text: &str) -> Result<Position, String> {
    call_number(text).map(Position::Before)
}

pub(super) fn call_number(text: &str) -> Result<Seq, String> {
    match text.parse() {
        Ok(Position::Seq(seq) | Position::Exact(seq)) => Ok(seq),
        _ => Err("expected the number of a call, as `foldspace log --calls` shows it".to_owned()),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PositionRange {
    /// `None` for before the first call, so that mounts do not count as changes.
    from: Option<Position>,
    until: Position,
}

impl FromStr for PositionRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let position = |text: &str| match text.trim() {
            "" => Ok(None),
            given => given.parse().map(Some).map_err(|error: foldspace::event::ValueError| error.to_string()),
        };
        let Some((from, until)) = text.split_once("..") else {
            return Err("expected two positions as A..B; either may be left out, as in A.. or ..B".to_owned());
        };
        Ok(Self { from: position(from)?, until: position(until)?.unwrap_or(Position::Back(0)) })
    }
}

impl PositionRange {
    pub(super) fn resolve(&self, session: &Session) -> Result<(Seq, Seq), Failure> {
        let until = self.until.resolve(session)?;
        let from = match &self.from {
            Some(from) => from.resolve(session)?,
            None => first_position(session)?.min(until),
        };
        Ok((from, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_range_may_be_open() {
        let read = |text: &str| text.parse::<PositionRange>();
        assert_eq!(read(".."), Ok(PositionRange { from: None, until: Position::Back(0) }));
        assert_eq!(read("@3..-2"), Ok(PositionRange { from: Some(Position::Exact(3)), until: Position::Back(2) }));
        assert_eq!(read("-9.."), Ok(PositionRange { from: Some(Position::Back(9)), until: Position::Back(0) }));
        for text in ["", "3", "3...5", "a..b", "1..2..3"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
