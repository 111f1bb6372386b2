//! The debugger for scripts: the same model, without a terminal.

use std::sync::Arc;

use foldspace::hub::operations::known_slice;
use foldspace::reducers::Change;
use foldspace::view;
use foldspace::{EntryPath, Seq, Session, VirtualFileSystem};
use serde_json::{Value, json};

use super::ReplayArgs;
use crate::cli::{BOLD, Exit, Failure, Out, did_you_mean, events, text};
use crate::tui::clean;
use crate::tui::model::{
    Ask, DebuggerAction, Direction, HistoryPosition, Model, SessionHistory, Sheet, ShownStep, Tab, changed_slices,
    changes_of,
};

const COLUMNS_MAX: usize = 16 << 10;

#[derive(Clone)]
enum Pane<'a> {
    Nothing,
    Tab(Tab),
    File(&'a str),
    Slice(String),
}

struct ReplayScript<'a> {
    replay: &'a ReplayArgs,
    session: &'a Session,
    pane: Pane<'a>,
    way: Direction,
}

pub(super) fn run(
    replay: &ReplayArgs,
    session: &Session,
    past: Arc<SessionHistory>,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let pane = pane(replay, session)?;
    let backward = replay.backward != replay.verb.back.is_some();
    let way = if backward { Direction::Back } else { Direction::Forward };
    let script = ReplayScript { replay, session, pane, way };
    let from_start = script.goes() && way == Direction::Forward && !replay.at.is_given();
    let begins = if from_start { 1 } else { replay.position(session, past.head())? };
    let mut model = Model::new(past, begins);
    if replay.verb.step_call.is_none() {
        // A step is then always an event, even at the start of a call.
        model.attempt(DebuggerAction::FoldAll)?;
    }
    if from_start {
        model.stand_outside(0);
    } else if script.looks_back() && !replay.at.is_given() {
        // The search includes the last event.
        model.stand_outside(model.past.head() + 1);
    }
    script.run(&mut model, out)
}

fn pane<'a>(replay: &'a ReplayArgs, session: &Session) -> Result<Pane<'a>, Failure> {
    let words: Vec<&str> = replay.show.iter().map(String::as_str).collect();
    Ok(match words[..] {
        [] if replay.verb.diff.is_some() => Pane::Tab(Tab::Diff),
        [] => Pane::Nothing,
        ["file", path] => Pane::File(path),
        ["slice", wanted] => Pane::Slice(known_slice(&session.state()?, wanted)?),
        [what] if let Some(tab) = Tab::ALL.into_iter().find(|tab| tab.name() == what) => Pane::Tab(tab),
        _ => {
            let known = Tab::ALL.into_iter().map(Tab::name).chain(["file", "slice"]);
            let meant = did_you_mean(words.first().copied().unwrap_or_default(), known);
            return Err(Failure::usage(format!("--show can't show {:?}", words.join(" ")))
                .with_hint(format!("{meant}use event, files, file PATH, slices, slice NAME, output or diff")));
        }
    })
}

/// Refuses a path that exists neither before nor after the step.
fn check_is_there(path: &str, step: &ShownStep) -> Result<(), Failure> {
    let path = EntryPath::lookup(path)?;
    let has =
        |state| VirtualFileSystem::of(state).get(&path).is_some() || VirtualFileSystem::of(state).is_directory(&path);
    match has(&step.old) || has(&step.new) {
        true => Ok(()),
        false => {
            let what = format!("{} does not exist at position {}", path.rooted(), step.after);
            Err(Failure::missing(what).with_hint("`--show files` lists the files"))
        }
    }
}

impl ReplayScript<'_> {
    fn goes(&self) -> bool {
        self.replay.verb.goes()
    }

    fn looks_back(&self) -> bool {
        let counts = self.replay.verb.step.is_some() || self.replay.verb.back.is_some();
        self.goes() && !counts && self.way == Direction::Back
    }

    fn run(&self, model: &mut Model, out: &mut Out) -> Result<Exit, Failure> {
        if let Some(places) = &self.replay.verb.diff {
            model.attempt(DebuggerAction::Answer(Ask::Compare, places.clone()))?;
        } else if self.goes() && self.replay.all {
            return self.run_all(model, out);
        } else if self.goes() && !self.go(model, 0)? {
            return Err(Failure::failed(self.way.nothing_found()));
        }
        self.show(model, out).map(Exit::from)
    }

    fn run_all(&self, model: &mut Model, out: &mut Out) -> Result<Exit, Failure> {
        let mut any = false;
        while self.go(model, usize::from(any))? {
            any = true;
            self.show(model, out)?;
        }
        Ok(if any { Exit::Ok } else { Exit::Failed })
    }

    fn go(&self, model: &mut Model, time: usize) -> Result<bool, Failure> {
        let (verb, way, before) = (&self.replay.verb, self.way, model.cursor);
        if let Some(count) = verb.step.or(verb.back) {
            let target = match way {
                Direction::Forward => before.checked_add(count).filter(|target| *target <= model.past.head()),
                Direction::Back => before.checked_sub(count).filter(|target| *target > 0),
            };
            let Some(target) = target.filter(|_| count > 0) else { return Ok(false) };
            model.attempt(DebuggerAction::Jump(target))?;
        } else if let Some(count) = verb.step_call {
            for _ in 0..count {
                let from = model.cursor;
                model.attempt(DebuggerAction::Call(way))?;
                if model.cursor == from {
                    return Ok(false);
                }
            }
        } else if let Some(pattern) = &verb.search {
            model.attempt(match time {
                0 => DebuggerAction::Answer(Ask::Search(way), pattern.clone()),
                _ => DebuggerAction::Again(way),
            })?;
        } else if let Some(path) = &verb.changes {
            // Showing the last step may have selected another file.
            model.attempt(DebuggerAction::Answer(Ask::Select, path.clone()))?;
            model.attempt(DebuggerAction::Change(way))?;
        } else {
            for condition in verb.until.iter().filter(|_| time == 0) {
                model.attempt(DebuggerAction::Answer(Ask::Breakpoint, condition.clone()))?;
            }
            model.attempt(DebuggerAction::Continue(way))?;
        }
        Ok(model.cursor != before)
    }

    fn show(&self, model: &mut Model, out: &mut Out) -> Result<(), Failure> {
        let because = model.because.clone();
        match &self.pane {
            Pane::Nothing => model.attempt(DebuggerAction::Tab(Tab::Event))?,
            Pane::Tab(tab) => model.attempt(DebuggerAction::Tab(*tab))?,
            Pane::File(path) => model.attempt(DebuggerAction::Answer(Ask::Select, (*path).to_owned()))?,
            Pane::Slice(_) => model.attempt(DebuggerAction::Tab(Tab::Slices))?,
        }
        model.show_whole_file(self.replay.whole);
        let seq = model.cursor;
        model.settle_or_fail()?;
        let Some(step) = model.sight.as_ref().map(|sight| sight.step.clone()) else { return Ok(()) };
        if let (Pane::File(path), false) = (&self.pane, self.replay.verb.is_given()) {
            check_is_there(path, &step)?;
        }
        if out.is_json() {
            let value = self.as_json(model, &step, &because)?;
            return if self.replay.all { out.json_line(&value) } else { out.document(&value) };
        }
        if self.replay.verb.diff.is_none() {
            self.headline(seq, &because, out)?;
        }
        match &self.pane {
            Pane::Nothing => Ok(()),
            Pane::Slice(name) => show_slice(&step, name, out),
            Pane::Tab(_) | Pane::File(_) => model.detail().map_or(Ok(()), |sheet| show_sheet(sheet, out)),
        }
    }

    fn headline(&self, seq: Seq, because: &str, out: &mut Out) -> Result<(), Failure> {
        let event = self.session.event(seq)?;
        let view = event.view();
        let call = event.call.map_or("-".to_owned(), |call| format!("#{call}"));
        let kind = out.paint(events::tone_of(view.kind), text::one_line(view.kind, 100));
        let because = if because.is_empty() { String::new() } else { format!("  ({})", text::one_line(because, 200)) };
        let gist = events::gist(self.session, &view);
        out.line(format!("{seq:>4}  {kind}  {call}  {gist}{because}"))
    }

    fn as_json(&self, model: &Model, step: &ShownStep, because: &str) -> Result<Value, Failure> {
        let event = self.session.event(step.cursor)?;
        let compared = model.choice.compared.as_ref();
        let place = |at: &HistoryPosition| json!({ "session": at.past.id(), "name": at.past.name(), "seq": at.seq });
        Ok(json!({
            "session": self.session.id(),
            "name": self.session.name(),
            "seq": step.cursor,
            "head": model.past.head(),
            "from": step.before,
            "until": step.after,
            "because": because,
            "event": view::event(self.session, &event.view()),
            "compared": compared.map(|(from, to)| json!([place(from), place(to)])),
            "shown": self.shown_json(model, step)?,
        }))
    }

    fn shown_json(&self, model: &Model, step: &ShownStep) -> Result<Value, Failure> {
        let changes = |list: &[Change]| -> Result<Value, Failure> {
            let list: Result<Vec<_>, _> = list.iter().map(|c| view::change(self.session, c)).collect();
            Ok(json!(list?))
        };
        Ok(match &self.pane {
            Pane::Nothing => Value::Null,
            Pane::Tab(Tab::Files) => changes(&step.changes)?,
            Pane::Tab(Tab::File) => self.file_json(model.sight.as_ref().and_then(|sight| sight.file.as_ref()), step)?,
            Pane::File(_) => self.file_json(model.choice.selected.as_ref(), step)?,
            Pane::Tab(Tab::Slices) => {
                let slices = changed_slices(step)?;
                slices.iter().map(|(name, changes)| json!({ "slice": name, "changes": changes })).collect()
            }
            Pane::Slice(name) => {
                json!({ "slice": name, "changes": changes_of(step, name)?, "value": view::slice(&step.new, name)? })
            }
            Pane::Tab(Tab::Diff) => match model.choice.compared.as_ref() {
                None => changes(&step.changes)?,
                Some((from, to)) => {
                    let (old, new) = (from.state()?, to.state()?);
                    changes(&VirtualFileSystem::of(&old).diff(&VirtualFileSystem::of(&new)))?
                }
            },
            Pane::Tab(Tab::Event | Tab::Output) => {
                let lines = model.detail().map(|sheet| sheet.lines.iter().map(|line| line.text.as_str()));
                json!(lines.map(|lines| lines.collect::<Vec<_>>().join("\n")))
            }
        })
    }

    fn file_json(&self, path: Option<&EntryPath>, step: &ShownStep) -> Result<Value, Failure> {
        let Some(path) = path else { return Ok(Value::Null) };
        let files = VirtualFileSystem::of(&step.new);
        let change = step.change(path).map(|change| view::change(self.session, change)).transpose()?;
        let entry = files.get(path).map(|entry| view::entry(path, entry));
        Ok(json!({ "path": path, "entry": entry, "change": change }))
    }
}

fn show_slice(step: &ShownStep, name: &str, out: &mut Out) -> Result<(), Failure> {
    for difference in changes_of(step, name)? {
        let value = |value: &Option<Value>| value.as_ref().map(ToString::to_string).unwrap_or_default();
        let (before, after) = (value(&difference.before), value(&difference.after));
        let arrow = if before.is_empty() || after.is_empty() { "" } else { " -> " };
        let line = format!("{} {}: {before}{arrow}{after}", difference.sign(), difference.pointer);
        out.line(clean(&line, 0, COLUMNS_MAX))?;
    }
    let whole = serde_json::to_string_pretty(&view::slice(&step.new, name)?).unwrap_or_default();
    out.line(out.content(&whole).into_owned())
}

fn show_sheet(sheet: &Sheet, out: &mut Out) -> Result<(), Failure> {
    out.line(out.paint(BOLD, clean(&sheet.title, 0, COLUMNS_MAX)))?;
    for line in &sheet.lines {
        // Without a terminal the text is printed unchanged.
        let text = if out.is_terminal() { clean(&line.text, 0, COLUMNS_MAX) } else { line.text.clone() };
        out.line(out.paint(line.tone, text.trim_end()))?;
    }
    Ok(())
}
