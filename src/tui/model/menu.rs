//! Menus: actions on a row, and filters of rows.

use foldspace::Seq;
use foldspace::event::CallStarted;
use serde_json::Value;

use super::history::ToolSort;
use super::{Ask, DebuggerAction, Direction, Failure, MenuKind, Model, OutsideCommand, OutsideRequest, OutsideVerb};
use crate::terminal::text;

#[derive(Debug, Clone)]
pub(crate) struct Menu {
    pub(crate) title: String,
    pub(crate) items: Vec<MenuItem>,
    pub(crate) at: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct MenuItem {
    pub(crate) key: char,
    pub(crate) text: String,
    action: DebuggerAction,
}

const SHOWN_MAX: usize = 60;

impl Menu {
    fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), items: Vec::new(), at: 0 }
    }

    fn add(&mut self, key: char, text: impl Into<String>, action: DebuggerAction) {
        self.items.push(MenuItem { key, text: text.into(), action });
    }

    pub(crate) fn item_of(&self, key: char) -> Option<usize> {
        self.items.iter().position(|item| item.key == key)
    }

    pub(super) fn step(&mut self, way: Direction) {
        let count = self.items.len().max(1);
        let by = if way == Direction::Forward { 1 } else { count - 1 };
        self.at = (self.at + by) % count;
    }
}

impl Model {
    pub(super) fn open_menu(&mut self, kind: MenuKind) -> Result<(), Failure> {
        let menu = match kind {
            MenuKind::Filter => self.filter_menu()?,
            MenuKind::Row => self.row_menu()?,
        };
        self.menu = Some(menu);
        Ok(())
    }

    pub(super) fn choose(&mut self, at: usize) -> Result<(), Failure> {
        let item = self.menu.take().and_then(|menu| menu.items.into_iter().nth(at));
        item.map_or(Ok(()), |item| self.act(item.action))
    }

    fn filter_menu(&self) -> Result<Menu, Failure> {
        let filter = |text: &str| DebuggerAction::Answer(Ask::Filter, text.to_owned());
        let begun = |text: String| DebuggerAction::AskWith(Ask::Filter, text);
        let call = self.call_here()?.map(|(_, call)| call.tool).unwrap_or_default();
        let agent = self.past.brief(self.cursor)?.map(|brief| brief.agent.to_string()).unwrap_or_default();
        let mut menu = Menu::new("Show only");
        menu.add('f', "calls that failed", filter("failed"));
        menu.add('c', "calls that ran a command", filter("commands"));
        menu.add('w', "calls that changed files", filter("writes"));
        menu.add('r', "calls that only read", filter("reads"));
        menu.add('t', "a tool ...", begun(format!("tool {call}")));
        menu.add('a', "an agent ...", begun(format!("agent {agent}")));
        menu.add('p', "what changed a path ...", begun("path ".to_owned()));
        menu.add('e', "a kind of event ...", begun("kind ".to_owned()));
        menu.add('/', "a regular expression ...", begun("/".to_owned()));
        menu.add('x', "all rows (Esc)", filter(""));
        Ok(menu)
    }

    fn row_menu(&self) -> Result<Menu, Failure> {
        let (cursor, end, name) = (self.cursor, self.step_end(), text::one_line(self.past.name(), 40));
        let call = self.call_here()?;
        let mut menu = Menu::new(match &call {
            Some((call, started)) => format!("Call {call}: {}", text::one_line(&started.tool, 40)),
            None => format!("Event {cursor}"),
        });
        let shown = call.as_ref().map_or(cursor, |(call, _)| *call);
        if self.past.brief(cursor)?.is_some_and(|brief| brief.folds() || brief.inner_of().is_some() || brief.is_child())
        {
            menu.add('o', "open or close it (Enter)", DebuggerAction::TurnRow);
        }
        menu.add('d', "what it changed", DebuggerAction::Answer(Ask::Compare, String::new()));
        menu.add('y', format!("copy {name}@{cursor}"), DebuggerAction::Copy);
        menu.add(
            'c',
            format!("copy the command: foldspace show {name} {shown}"),
            DebuggerAction::CopyCommand(self.command(OutsideVerb::Show, shown)),
        );
        if let Some((call, started)) = &call {
            if let Some(line) = self.command_line(*call, started)? {
                let words = format!("copy what ran: {}", text::one_line(&line, SHOWN_MAX));
                menu.add('s', words, DebuggerAction::CopyText(line));
            }
            let tool = format!("tool {}", started.tool);
            let words = format!("show only calls of {}", text::one_line(&started.tool, 40));
            menu.add('t', words, DebuggerAction::Answer(Ask::Filter, tool));
        }
        menu.add('f', format!("fork here: foldspace fork {name} --at @{end}"), DebuggerAction::Ask(Ask::Fork));
        let words = format!("rewind to here: foldspace rewind {name} --to @{end}");
        menu.add('w', words, DebuggerAction::Rewind);
        menu.add('!', "a shell in a throw-away copy of the files here", DebuggerAction::Shell);
        Ok(menu)
    }

    fn command(&self, verb: OutsideVerb, at: Seq) -> OutsideCommand {
        OutsideCommand { session: self.past.id().to_string(), at, verb }
    }

    /// Requests a command at the cursor.
    pub(super) fn wish_command(&mut self, verb: OutsideVerb) {
        let command = self.command(verb, self.step_end());
        self.wishes.push_back(OutsideRequest::Run(command));
    }

    /// Returns the call that the cursor is on, or in.
    fn call_here(&self) -> Result<Option<(Seq, CallStarted)>, Failure> {
        let Some(call) = self.past.brief(self.cursor)?.and_then(|brief| brief.call) else { return Ok(None) };
        let started = self.past.event(call)?.typed::<CallStarted>().and_then(Result::ok);
        Ok(started.map(|started| (call, started.event)))
    }

    /// Returns what a command's call ran, as a shell line.
    fn command_line(&self, call: Seq, started: &CallStarted) -> Result<Option<String>, Failure> {
        if ToolSort::of(&started.tool) != ToolSort::Command {
            return Ok(None);
        }
        let event = self.past.json(&self.past.event(call)?.view());
        Ok(match event.pointer("/params/command").or_else(|| event.pointer("/params/code")) {
            Some(Value::String(line)) => Some(line.clone()),
            Some(Value::Array(words)) => {
                let words = words.iter().filter_map(Value::as_str).map(text::shell_word);
                Some(words.collect::<Vec<_>>().join(" "))
            }
            _ => None,
        })
    }
}
