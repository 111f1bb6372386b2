//! The actions of the debugger.

use foldspace::Seq;
use tui_input::InputRequest;

use super::{Direction, Focus, Heights, Tab};

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
    Conversation,
    Zoom,
    Help,
    Escape,
    Ask(Ask),
    Type(InputRequest),
    Answer(Ask, String),
    Submit,
    /// Asks, with the beginning of an answer filled in.
    AskWith(Ask, String),
    /// Shows an earlier or later answer to the question.
    Recall(Direction),
    Menu(MenuKind),
    Choose(usize),
    Click(ScreenPlace),
    Wheel(ScreenPlace, Direction),
    Mouse,
    TurnRow,
    ClearBreakpoints,
    Shell,
    Rewind,
    Copy,
    CopyText(String),
    CopyCommand(OutsideCommand),
    Refresh,
    Resize(Heights),
    Quit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MenuKind {
    Filter,
    Row,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutsideRequest {
    Quit,
    Run(OutsideCommand),
    Shell { session: String, at: Seq },
    Copy(String),
    CopyCommand(OutsideCommand),
}

/// A command of the program for a position of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutsideCommand {
    pub(crate) session: String,
    pub(crate) at: Seq,
    pub(crate) verb: OutsideVerb,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutsideVerb {
    Show,
    Fork { name: Option<String> },
    Rewind,
}

/// A place on the screen; lines count from the top of their pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScreenPlace {
    Row(usize),
    Line(Focus, usize),
    Pane(Focus),
    Tab(Tab),
    Item(usize),
    Elsewhere,
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
            Self::Filter => "show only: ",
            Self::Compare => "compare A..B: ",
            Self::Select => "file: ",
            Self::Fork => "name of the fork: ",
            Self::SetMark => "mark with a letter: ",
            Self::GoToMark => "go to the mark: ",
        }
    }

    /// Returns examples of answers.
    pub(crate) fn examples(self) -> &'static str {
        match self {
            Self::Jump => "12, -3 (before the last), 10m (ago), 'a (a mark)",
            Self::Search(_) => "panicked|Traceback, path:^/src, content:TODO, event:pytest",
            Self::Until(_) | Self::Breakpoint => "failed, path src/a.py, tool shell_execute, Usage.calls > 5",
            Self::Filter => "failed, tool grep, agent main, path src/**, kind write, /pytest/",
            Self::Compare => "12..40, before:12.., 'a.., other@7..; Enter alone: what this step changed",
            Self::Select => "src/main.py",
            Self::Fork => "retry; Enter alone: this session's name with a number",
            Self::SetMark | Self::GoToMark => "a",
        }
    }

    pub(crate) fn is_letter(self) -> bool {
        matches!(self, Self::SetMark | Self::GoToMark)
    }
}
