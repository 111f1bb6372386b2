//! Keys, and what they mean.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tui_input::InputRequest;

use super::model::{Action, Ask, Direction, Model, Tab};

use Direction::{Back, Forward};

/// The keys for people: what to press, and what it does.
pub(crate) const HELP: &[(&str, &str)] = &[
    ("", "Moving"),
    ("j k, Down Up", "next, previous row; a folded call is one row"),
    ("l h, Right Left", "one event on, back; a folded call opens"),
    ("J K", "next, previous call"),
    ("PgDn PgUp", "by a page"),
    ("g G, Home End", "first, last"),
    (":", "go to an event: 12, -3 (before the last), 'a"),
    ("] [", "next, previous change of the file"),
    ("/ \\", "search on, back: a regex over events, paths and contents"),
    ("", "  (path:RE, content:RE, event:RE look there only)"),
    ("n N", "next, previous match"),
    ("u U", "run until, run back until a condition"),
    ("b", "set a breakpoint; B removes all"),
    ("c C", "on, back to the next breakpoint"),
    ("m a, ' a", "set the mark a, go to it"),
    ("", ""),
    ("", "Conditions: path GLOB, kind KIND, agent NAME, tool NAME, failed,"),
    ("", "  /REGEX/, or a predicate over a slice: Usage.calls > 5"),
    ("", ""),
    ("", "Panes"),
    ("Tab, Shift-Tab", "next, previous pane"),
    ("1 2 3 4 5 6", "files, file, slices, event, output, diff"),
    ("Enter, Space", "open or close a call, directory or slice;"),
    ("", "  show a file; go into a child's session (Backspace leads back)"),
    ("z", "open or close all calls"),
    ("w", "a file whole, or only what changed in it"),
    ("e", "choose a file by its path; Esc lets go of it"),
    ("> <", "scroll to the right, to the left"),
    ("+", "the pane alone on the screen, and back"),
    ("f", "show only an agent's rows, or a kind"),
    ("", ""),
    ("", "Doing"),
    ("d", "compare A..B: positions, 'a, ., NAME, NAME@SEQ"),
    ("F", "fork the session as it was here"),
    ("!", "a shell in a throw-away copy of the files as they were here"),
    ("y", "copy the position"),
    ("r", "look for new events"),
    ("?", "this help"),
    ("Esc", "close, stop what is under way"),
    ("q", "quit"),
];

/// What a key asks for; none when it means nothing.
pub(crate) fn action(key: KeyEvent, model: &Model) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        // Whoever presses it in a prompt wants out of the prompt.
        return Some(if model.prompt.is_some() || model.seeking().is_some() { Action::Escape } else { Action::Quit });
    }
    if let Some(prompt) = &model.prompt {
        return typed(key, prompt.ask);
    }
    if model.help.is_some() && matches!(key.code, KeyCode::Char('q' | '?') | KeyCode::Enter) {
        return Some(Action::Escape);
    }
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return match key.code {
            KeyCode::Char('f' | 'd') => Some(Action::Page(Forward)),
            KeyCode::Char('b' | 'u') => Some(Action::Page(Back)),
            _ => None,
        };
    }
    pressed(key.code)
}

fn pressed(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Char(c) => return letter(c),
        KeyCode::Down => Action::Line(Forward),
        KeyCode::Up => Action::Line(Back),
        KeyCode::Right => Action::Event(Forward),
        KeyCode::Left => Action::Event(Back),
        KeyCode::PageDown => Action::Page(Forward),
        KeyCode::PageUp => Action::Page(Back),
        KeyCode::Home => Action::First,
        KeyCode::End => Action::Last,
        KeyCode::Enter => Action::Enter,
        KeyCode::Backspace => Action::Leave,
        KeyCode::Tab => Action::NextFocus(Forward),
        KeyCode::BackTab => Action::NextFocus(Back),
        KeyCode::Esc => Action::Escape,
        _ => return None,
    })
}

fn letter(c: char) -> Option<Action> {
    let tab = |number: usize| Tab::ALL.get(number).copied().map(Action::Tab);
    Some(match c {
        'j' => Action::Line(Forward),
        'k' => Action::Line(Back),
        'l' => Action::Event(Forward),
        'h' => Action::Event(Back),
        'J' => Action::Call(Forward),
        'K' => Action::Call(Back),
        'g' => Action::First,
        'G' => Action::Last,
        ']' => Action::Change(Forward),
        '[' => Action::Change(Back),
        'n' => Action::Again(Forward),
        'N' => Action::Again(Back),
        'c' => Action::Continue(Forward),
        'C' => Action::Continue(Back),
        'B' => Action::ClearBreakpoints,
        ' ' => Action::Enter,
        'z' => Action::FoldAll,
        'w' => Action::WholeFile,
        '>' => Action::Sideways(Forward),
        '<' => Action::Sideways(Back),
        '+' => Action::Zoom,
        '!' => Action::Shell,
        'y' => Action::Copy,
        'r' => Action::Refresh,
        '?' => Action::Help,
        'q' => Action::Quit,
        '1'..='6' => return tab(usize::try_from(u32::from(c) - u32::from('1')).ok()?),
        other => return asking(other).map(Action::Ask),
    })
}

fn asking(c: char) -> Option<Ask> {
    Some(match c {
        ':' => Ask::Jump,
        '/' => Ask::Search(Forward),
        '\\' => Ask::Search(Back),
        'u' => Ask::Until(Forward),
        'U' => Ask::Until(Back),
        'b' => Ask::Breakpoint,
        'f' => Ask::Filter,
        'e' => Ask::Select,
        'd' => Ask::Compare,
        'F' => Ask::Fork,
        'm' => Ask::SetMark,
        '\'' => Ask::GoToMark,
        _ => return None,
    })
}

/// A key in a prompt.
fn typed(key: KeyEvent, ask: Ask) -> Option<Action> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Esc => Action::Escape,
        KeyCode::Enter => Action::Submit,
        KeyCode::Char(c) if ask.is_letter() => Action::Answer(ask, c.to_string()),
        KeyCode::Char('u') if control => Action::Type(InputRequest::DeleteLine),
        KeyCode::Char('w') if control => Action::Type(InputRequest::DeletePrevWord),
        KeyCode::Char('a') if control => Action::Type(InputRequest::GoToStart),
        KeyCode::Char('e') if control => Action::Type(InputRequest::GoToEnd),
        KeyCode::Char(c) if !control => Action::Type(InputRequest::InsertChar(c)),
        KeyCode::Backspace => Action::Type(InputRequest::DeletePrevChar),
        KeyCode::Delete => Action::Type(InputRequest::DeleteNextChar),
        KeyCode::Left => Action::Type(InputRequest::GoToPrevChar),
        KeyCode::Right => Action::Type(InputRequest::GoToNextChar),
        KeyCode::Home => Action::Type(InputRequest::GoToStart),
        KeyCode::End => Action::Type(InputRequest::GoToEnd),
        _ => return None,
    })
}
