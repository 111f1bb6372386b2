//! What a person or a script can ask of the debugger.

use foldspace::Seq;
use tui_input::InputRequest;

use super::{Heights, Tab};

/// Towards later events, or earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Back,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DebuggerAction {
    /// The next row of the timeline, or the next line of the pane that has the focus.
    Line(Direction),
    /// So many lines at once as the pane has.
    Page(Direction),
    /// One event on or back; a folded call that has it opens.
    Event(Direction),
    /// The next or previous call.
    Call(Direction),
    First,
    Last,
    Jump(Seq),
    /// The next or previous change of the chosen file.
    Change(Direction),
    /// The next or previous match of the last search.
    Again(Direction),
    /// On, or back, to the next breakpoint.
    Continue(Direction),
    /// Opens or closes what is under the cursor.
    Enter,
    /// Opens or closes all calls.
    FoldAll,
    /// Back from a child's history.
    Leave,
    Tab(Tab),
    NextFocus(Direction),
    Sideways(Direction),
    /// Shows a file whole, or only its difference.
    WholeFile,
    /// Gives the pane that has the focus the whole screen, or takes it back.
    Zoom,
    Help,
    /// Closes what is open, stops what is under way, lets go of the chosen file.
    Escape,
    Ask(Ask),
    /// A key in a prompt.
    Type(InputRequest),
    /// A prompt's answer, as typed or as a script gives it.
    Answer(Ask, String),
    Submit,
    ClearBreakpoints,
    Shell,
    Copy,
    /// Looks whether there are more events by now.
    Refresh,
    Resize(Heights),
    Quit,
}

/// What the debugger can't do by itself: it only looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutsideRequest {
    Quit,
    /// A fork of the session at a position.
    Fork {
        session: String,
        at: Seq,
        name: Option<String>,
    },
    /// A shell in a throw-away copy of the files at a position.
    Shell {
        session: String,
        at: Seq,
    },
    /// A text for the terminal's clipboard.
    Copy(String),
}

/// What is asked.
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
    /// The question.
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

    /// Whether one letter is the answer.
    pub(crate) fn is_letter(self) -> bool {
        matches!(self, Self::SetMark | Self::GoToMark)
    }
}
