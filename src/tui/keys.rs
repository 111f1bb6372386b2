//! The key bindings.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tui_input::backend::crossterm::to_input_request;

use super::model::{Ask, DebuggerAction, Direction, Menu, MenuKind, Model, Tab};

use Direction::{Back, Forward};

/// Keys and their effects. A line without keys is a title, or continues the line before.
pub(crate) const HELP: &[(&str, &str)] = &[
    ("", "Moving"),
    ("j k, Down Up", "next, previous row; a folded call is one row"),
    ("l h, Right Left", "one event forward, back; a folded call opens"),
    ("J K", "next, previous call"),
    ("PgDn PgUp", "by a page"),
    ("g G, Home End", "first, last; the last follows a running session"),
    (":", "go to an event: 12, -3 (before the last), 'a"),
    ("] [", "next, previous change of the file"),
    ("/ \\", "search: \\ back; a regex over events, paths and contents"),
    ("", "  (path:RE, content:RE, event:RE search only there)"),
    ("n N", "next, previous match"),
    ("u U", "run until, run back until a condition"),
    ("b B", "set a breakpoint, remove all"),
    ("c C", "continue forward, back to the next breakpoint"),
    ("m '", "set a mark, go to a mark; a letter names it"),
    ("", ""),
    ("", "Conditions"),
    ("", "  path GLOB, kind KIND, agent NAME, tool NAME, failed, /REGEX/"),
    ("", "  or a predicate over a slice: Usage.calls > 5"),
    ("", ""),
    ("", "Panes"),
    ("Tab, Shift-Tab", "next, previous pane"),
    ("1 2 3 4 5 6", "the pane with this number: files, file, slices, event,"),
    ("", "  output, diff"),
    ("Enter, Space", "open or close: a call, directory or slice;"),
    ("", "  show a file; enter a child's session (Backspace returns)"),
    ("z", "open or close all calls"),
    ("t", "hide or show the prompts and messages of agents"),
    ("f", "show only some rows: calls that failed, ran a command,"),
    ("", "  changed files or read; a tool, agent, path, kind or regex;"),
    ("", "  searches find shown rows only; u c : reach hidden rows, too"),
    ("w", "the whole file, or only its changes"),
    ("e", "choose a file by its path; Esc releases it"),
    ("> <", "scroll to the right, to the left"),
    ("+", "show only this pane, and back"),
    ("Mouse", "a click selects, the next one opens; the wheel scrolls"),
    ("M", "leave the mouse to the terminal, to select text; and back"),
    ("", ""),
    ("", "Doing"),
    ("a", "a menu of actions: on the row"),
    ("d", "compare: A..B as positions, 'a, ., NAME, NAME@SEQ;"),
    ("", "  Enter alone shows what the step changed"),
    ("F", "fork the session as it was here"),
    ("R", "rewind the session to here; both ask before they run"),
    ("!", "a shell in a throw-away copy of the files as they were here"),
    ("y", "copy the position"),
    ("r", "check for new events"),
    ("Up Down", "in a question: earlier answers"),
    ("?", "this help"),
    ("Esc", "close, stop, show all rows; back to the timeline"),
    ("q", "quit"),
];

pub(crate) fn action(key: KeyEvent, model: &Model) -> Option<DebuggerAction> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        // In a prompt it leaves the prompt.
        return Some(if model.prompt.is_some() || model.seeking().is_some() {
            DebuggerAction::Escape
        } else {
            DebuggerAction::Quit
        });
    }
    if let Some(prompt) = &model.prompt {
        return typed(key, prompt.ask);
    }
    if let Some(menu) = &model.menu {
        return chosen(key.code, menu);
    }
    if model.help.is_some() && matches!(key.code, KeyCode::Char('q' | '?') | KeyCode::Enter) {
        return Some(DebuggerAction::Escape);
    }
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return match key.code {
            KeyCode::Char('f' | 'd') => Some(DebuggerAction::Page(Forward)),
            KeyCode::Char('b' | 'u') => Some(DebuggerAction::Page(Back)),
            _ => None,
        };
    }
    pressed(key.code)
}

fn pressed(code: KeyCode) -> Option<DebuggerAction> {
    Some(match code {
        KeyCode::Char(c) => return letter(c),
        KeyCode::Down => DebuggerAction::Line(Forward),
        KeyCode::Up => DebuggerAction::Line(Back),
        KeyCode::Right => DebuggerAction::Event(Forward),
        KeyCode::Left => DebuggerAction::Event(Back),
        KeyCode::PageDown => DebuggerAction::Page(Forward),
        KeyCode::PageUp => DebuggerAction::Page(Back),
        KeyCode::Home => DebuggerAction::First,
        KeyCode::End => DebuggerAction::Last,
        KeyCode::Enter => DebuggerAction::Enter,
        KeyCode::Backspace => DebuggerAction::Leave,
        KeyCode::Tab => DebuggerAction::NextFocus(Forward),
        KeyCode::BackTab => DebuggerAction::NextFocus(Back),
        KeyCode::Esc => DebuggerAction::Escape,
        _ => return None,
    })
}

fn chosen(code: KeyCode, menu: &Menu) -> Option<DebuggerAction> {
    Some(match code {
        KeyCode::Char(c) if menu.item_of(c).is_some() => DebuggerAction::Choose(menu.item_of(c)?),
        KeyCode::Down | KeyCode::Tab | KeyCode::Char('j') => DebuggerAction::Line(Forward),
        KeyCode::Up | KeyCode::BackTab | KeyCode::Char('k') => DebuggerAction::Line(Back),
        KeyCode::Enter | KeyCode::Char(' ') => DebuggerAction::Enter,
        KeyCode::Esc | KeyCode::Char('q') => DebuggerAction::Escape,
        _ => return None,
    })
}

fn letter(c: char) -> Option<DebuggerAction> {
    let tab = |number: usize| Tab::ALL.get(number).copied().map(DebuggerAction::Tab);
    Some(match c {
        'j' => DebuggerAction::Line(Forward),
        'k' => DebuggerAction::Line(Back),
        'l' => DebuggerAction::Event(Forward),
        'h' => DebuggerAction::Event(Back),
        'J' => DebuggerAction::Call(Forward),
        'K' => DebuggerAction::Call(Back),
        'g' => DebuggerAction::First,
        'G' => DebuggerAction::Last,
        ']' => DebuggerAction::Change(Forward),
        '[' => DebuggerAction::Change(Back),
        'n' => DebuggerAction::Again(Forward),
        'N' => DebuggerAction::Again(Back),
        'c' => DebuggerAction::Continue(Forward),
        'C' => DebuggerAction::Continue(Back),
        'B' => DebuggerAction::ClearBreakpoints,
        ' ' => DebuggerAction::Enter,
        'z' => DebuggerAction::FoldAll,
        'w' => DebuggerAction::WholeFile,
        't' => DebuggerAction::Conversation,
        '>' => DebuggerAction::Sideways(Forward),
        '<' => DebuggerAction::Sideways(Back),
        '+' => DebuggerAction::Zoom,
        'a' => DebuggerAction::Menu(MenuKind::Row),
        'f' => DebuggerAction::Menu(MenuKind::Filter),
        'M' => DebuggerAction::Mouse,
        'R' => DebuggerAction::Rewind,
        '!' => DebuggerAction::Shell,
        'y' => DebuggerAction::Copy,
        'r' => DebuggerAction::Refresh,
        '?' => DebuggerAction::Help,
        'q' => DebuggerAction::Quit,
        '1'..='6' => return tab(usize::try_from(u32::from(c) - u32::from('1')).ok()?),
        other => return asking(other).map(DebuggerAction::Ask),
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
        'e' => Ask::Select,
        'd' => Ask::Compare,
        'F' => Ask::Fork,
        'm' => Ask::SetMark,
        '\'' => Ask::GoToMark,
        _ => return None,
    })
}

fn typed(key: KeyEvent, ask: Ask) -> Option<DebuggerAction> {
    match key.code {
        KeyCode::Esc => Some(DebuggerAction::Escape),
        KeyCode::Enter => Some(DebuggerAction::Submit),
        KeyCode::Up => Some(DebuggerAction::Recall(Back)),
        KeyCode::Down => Some(DebuggerAction::Recall(Forward)),
        KeyCode::Char(c) if ask.is_letter() => Some(DebuggerAction::Answer(ask, c.to_string())),
        _ => to_input_request(&Event::Key(key)).map(DebuggerAction::Type),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "the tables to compare are in files of the checkout")]
    fn read(path: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
    }

    /// Returns the verb of each key: the words up to `:` or `;`.
    fn verbs<'a>(rows: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<&'a str, &'a str> {
        let rows = rows.filter(|(keys, _)| !keys.is_empty() && *keys != "Up Down");
        let verb = |words: &'a str| words.split([':', ';']).next().unwrap_or_default();
        rows.flat_map(|(keys, words)| {
            keys.split([' ', ',']).filter(|key| !key.is_empty()).map(move |key| (key, verb(words)))
        })
        .collect()
    }

    /// Reads the rows of the page's table, which are lines such as `["j k", "next row"],`.
    fn page_rows(script: &str) -> Vec<(&str, &str)> {
        let table = script.split_once("export const KEYS").unwrap().1.split_once("\n];").unwrap().0;
        table
            .lines()
            .filter_map(|line| line.trim().strip_prefix("[\"")?.strip_suffix("\"],")?.split_once("\", \""))
            .collect()
    }

    #[test]
    fn keys_of_terminal_and_page_have_the_same_verbs() {
        let script = read("web/keys.js");
        let (page, terminal) = (verbs(page_rows(&script).into_iter()), verbs(HELP.iter().copied()));
        let shared: Vec<&str> = page.keys().copied().filter(|key| terminal.contains_key(key)).collect();
        for key in &shared {
            assert_eq!(page[key], terminal[key], "the verb of {key} on the page and in the terminal");
        }
        assert!(shared.len() > 40, "few keys are shared: {shared:?}");
        // Each key of the page's table has an action.
        let bound = script.split_once("const BY_KEY").unwrap().1.split_once("\n};").unwrap().0;
        for key in page.keys().filter(|key| key.len() == 1) {
            let is_bound = [format!(" {key}: "), format!("\"{key}\": ")].iter().any(|binding| bound.contains(binding));
            assert!(is_bound, "{key} does nothing on the page");
        }
        for key in terminal.keys().filter(|key| key.len() == 1) {
            assert!(letter(key.chars().next().unwrap()).is_some(), "{key} does nothing in the terminal");
        }
    }

    #[test]
    fn documented_keys_are_those_of_both_tables() {
        let (script, document) = (read("web/keys.js"), read("docs/debugging.md"));
        let (page, terminal) = (verbs(page_rows(&script).into_iter()), verbs(HELP.iter().copied()));
        let mut wanted: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for (key, verb) in page.iter().chain(&terminal) {
            let place = match (page.contains_key(key), terminal.contains_key(key)) {
                (true, true) => "both",
                (true, false) => "page",
                _ => "terminal",
            };
            wanted.insert(key, (verb, place));
        }
        let legend = document.split_once("| key | verb | where |").expect("the legend").1;
        let mut found = BTreeMap::new();
        for row in legend.lines().skip(2).take_while(|line| line.starts_with('|')) {
            let [keys, verb, place] = row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>()[..] else {
                panic!("a row of three cells: {row}");
            };
            keys.split('`')
                .skip(1)
                .step_by(2)
                .for_each(|key| assert!(found.insert(key, (verb, place)).is_none(), "{key}"));
        }
        assert_eq!(found, wanted);
    }
}
