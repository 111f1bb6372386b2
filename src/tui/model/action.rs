//! The actions of the debugger.

use foldspace::Seq;
use tui_input::InputRequest;

use super::{Heights, Tab};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Back,
}

impl Direction {
    pub(crate) fn nothing_found(self) -> &'static str {
        match self {
            Self::Forward => "nothing found up to the end",
            Self::Back => "nothing found back to the beginning",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DebuggerAction {
    Line(Direction),
    Page(Direction),
    Event(Direction),
    Call(Direction),
    First,
    Last,
    Jump(Seq),
    Change(Direction),
    Again(Direction),
    Continue(Direction),
    Enter,
    FoldAll,
    Leave,
    Tab(Tab),
    NextFocus(Direction),
    Sideways(Direction),
    WholeFile,
    Zoom,
    Help,
    Escape,
    Ask(Ask),
    Type(InputRequest),
    Answer(Ask, String),
    Submit,
    ClearBreakpoints,
    Shell,
    Copy,
    Refresh,
    Resize(Heights),
    Quit,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutsideRequest {
    Quit,
    Fork { session: String, at: Seq, name: Option<String> },
    Shell { session: String, at: Seq },
    Copy(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Jump,
    Search(Direction),
    Until(Direction),
    Breakpoint,
    Filter,
    Compare,
    Select,
    Fork,
    SetMark,
    GoToMark,
}

impl Ask {
    pub(crate) fn question(self) -> &'static str {
        match self {
            Self::Jump => "go to event: ",
            Self::Search(Direction::Forward) => "search: ",
            Self::Search(Direction::Back) => "search back: ",
            Self::Until(Direction::Forward) => "run until: ",
            Self::Until(Direction::Back) => "run back until: ",
            Self::Breakpoint => "break on: ",
            Self::Filter => "show only (agent NAME, kind TEXT): ",
            Self::Compare => "compare A..B: ",
            Self::Select => "file: ",
            Self::Fork => "name of the fork: ",
            Self::SetMark => "mark with a letter: ",
            Self::GoToMark => "go to the mark: ",
        }
    }

    pub(crate) fn is_letter(self) -> bool {
        matches!(self, Self::SetMark | Self::GoToMark)
    }
}
