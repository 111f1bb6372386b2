//! Moves the cursor.

use std::sync::Arc;

use foldspace::Seq;

use super::{
    Brief, DebuggerAction, Direction, Failure, Focus, Model, OutsideRequest, Reached, SeekTarget, Tab, Target, Tone,
};

impl Model {
    pub(super) fn act(&mut self, action: DebuggerAction) -> Result<(), Failure> {
        match action {
            DebuggerAction::Line(way) => return self.line(way),
            DebuggerAction::Page(way) => return self.page(way),
            DebuggerAction::Event(way) => return self.by_event(way),
            DebuggerAction::Call(way) => return self.by_row(way, Brief::is_call),
            DebuggerAction::First => return self.end(Direction::Back),
            DebuggerAction::Last => return self.end(Direction::Forward),
            DebuggerAction::Jump(seq) => return self.go_to(seq),
            DebuggerAction::Change(way) => return self.by_change(way),
            DebuggerAction::Again(way) => return self.again(way),
            DebuggerAction::Continue(way) => return self.run_on(way),
            DebuggerAction::Enter => return self.enter(),
            DebuggerAction::Leave => self.leave(),
            DebuggerAction::FoldAll => self.fold_all(),
            DebuggerAction::Tab(tab) => self.show_tab(tab),
            DebuggerAction::NextFocus(way) => self.next_focus(way),
            DebuggerAction::Sideways(Direction::Forward) => self.sideways = (self.sideways + 16).min(4096),
            DebuggerAction::Sideways(Direction::Back) => self.sideways = self.sideways.saturating_sub(16),
            DebuggerAction::WholeFile => {
                self.choice.whole_file = !self.choice.whole_file;
                self.show_tab(Tab::File);
            }
            DebuggerAction::Zoom => self.zoomed = !self.zoomed,
            DebuggerAction::Help => self.help = if self.help.is_some() { None } else { Some(0) },
            DebuggerAction::Escape => self.escape(),
            DebuggerAction::Ask(ask) => self.ask(ask),
            DebuggerAction::Type(request) => self.type_in(request),
            DebuggerAction::Answer(ask, text) => return self.answer(ask, &text),
            DebuggerAction::Submit => return self.answer_typed(),
            DebuggerAction::ClearBreakpoints => self.clear_breakpoints(),
            DebuggerAction::Shell => {
                let session = self.past.id().to_string();
                self.wishes.push_back(OutsideRequest::Shell { session, at: self.step_end() });
            }
            DebuggerAction::Copy => {
                self.wishes.push_back(OutsideRequest::Copy(format!("{}@{}", self.past.name(), self.cursor)))
            }
            DebuggerAction::Refresh => self.refresh()?,
            DebuggerAction::Resize(heights) => {
                self.look_due |= self.heights.apart != heights.apart;
                self.heights = heights;
            }
            DebuggerAction::Quit => self.wishes.push_back(OutsideRequest::Quit),
        }
        Ok(())
    }

    /// Moves to an event, and unfolds its call.
    pub(super) fn go_to(&mut self, seq: Seq) -> Result<(), Failure> {
        let head = self.past.head();
        if seq == 0 || seq > head {
            return Err(Failure::usage(format!("there is no event {seq}: the events are 1 to {head}")));
        }
        if let Some(call) = self.past.brief(seq)?.and_then(|brief| brief.inner_of()) {
            self.rows.folds.open(call);
        }
        self.settle_on(seq);
        Ok(())
    }

    pub(super) fn settle_on(&mut self, seq: Seq) {
        self.cursor = seq;
        self.look_due = true;
        self.choice.compared = None;
        self.show_window();
    }

    fn line(&mut self, way: Direction) -> Result<(), Failure> {
        match (&mut self.help, self.focus) {
            (Some(top), _) => *top = moved(*top, way, 1),
            (None, Focus::Timeline) => return self.by_row(way, Brief::is_any),
            (None, _) => self.scroll(way, 1),
        }
        Ok(())
    }

    fn page(&mut self, way: Direction) -> Result<(), Failure> {
        match (&mut self.help, self.focus) {
            (Some(top), _) => *top = moved(*top, way, 10),
            (None, Focus::Files) => self.scroll(way, self.heights.files.max(2) - 1),
            (None, Focus::Detail) => self.scroll(way, self.heights.detail.max(2) - 1),
            (None, Focus::Timeline) => {
                for _ in 1..self.heights.timeline.max(2) {
                    match self.rows.next(&self.past, self.cursor, way, None, Brief::is_any)? {
                        Reached::Row(seq) => self.cursor = seq,
                        Reached::End | Reached::TooFar => break,
                    }
                }
                self.settle_on(self.cursor);
            }
        }
        Ok(())
    }

    fn end(&mut self, way: Direction) -> Result<(), Failure> {
        if self.focus != Focus::Timeline {
            self.scroll(way, usize::MAX);
            return Ok(());
        }
        match way {
            Direction::Back => self.settle_on(1),
            Direction::Forward => {
                let head = self.past.head();
                // The last row is the call that has the last event.
                let call = self.past.brief(head)?.and_then(|brief| brief.inner_of());
                let row = call.filter(|call| self.rows.kind.is_none() && !self.rows.folds.is_open(*call));
                self.settle_on(row.unwrap_or(head).max(1));
            }
        }
        Ok(())
    }

    fn by_row(&mut self, way: Direction, wanted: fn(&Brief) -> bool) -> Result<(), Failure> {
        match self.rows.next(&self.past, self.cursor, way, None, wanted)? {
            Reached::Row(seq) => self.settle_on(seq),
            Reached::End => self.tell_end(way),
            Reached::TooFar => self.seek(way, SeekTarget::Row(self.rows.clone(), wanted)),
        }
        Ok(())
    }

    pub(super) fn tell_end(&mut self, way: Direction) {
        let words = match way {
            Direction::Forward => "nothing further: this is the last",
            Direction::Back => "nothing before: this is the first",
        };
        self.tell(Tone::Dim, words);
    }

    fn by_event(&mut self, way: Direction) -> Result<(), Failure> {
        match way {
            Direction::Forward if self.cursor < self.past.head() => self.go_to(self.cursor + 1),
            Direction::Back if self.cursor > 1 => self.go_to(self.cursor - 1),
            way => {
                self.tell_end(way);
                Ok(())
            }
        }
    }

    fn by_change(&mut self, way: Direction) -> Result<(), Failure> {
        let shown = self.sight.as_ref().and_then(|sight| sight.file.clone());
        let Some(path) = self.choice.selected.clone().or(shown) else {
            return Err(Failure::usage("no file is chosen: e asks for one, or choose one in the files' pane"));
        };
        // From here on it is about this file, whatever else changes where that leads.
        self.choice.selected = Some(path.clone());
        self.seek(way, SeekTarget::Change(path));
        Ok(())
    }

    fn run_on(&mut self, way: Direction) -> Result<(), Failure> {
        if self.breakpoints.is_empty() {
            return Err(Failure::usage("there is no breakpoint: b sets one"));
        }
        self.seek(way, SeekTarget::Any(self.breakpoints.clone()));
        Ok(())
    }

    fn enter(&mut self) -> Result<(), Failure> {
        let (sheet, at) = match self.focus {
            Focus::Timeline => return self.turn_row(),
            Focus::Files => (self.sight.as_ref().map(|sight| &sight.files), self.file_scroll.line),
            Focus::Detail => (self.detail(), self.detail_scroll.line),
        };
        let target = sheet.and_then(|sheet| sheet.lines.get(at)).and_then(|line| line.target.clone());
        self.turn(target);
        Ok(())
    }

    fn turn_row(&mut self) -> Result<(), Failure> {
        let Some(brief) = self.past.brief(self.cursor)? else { return Ok(()) };
        if brief.is_child() {
            return self.visit_child();
        }
        match (brief.is_call(), brief.inner_of()) {
            (true, _) => {
                self.rows.folds.turn(brief.seq);
                self.look_due = true;
            }
            (false, Some(call)) => {
                self.rows.folds.turn(call);
                self.settle_on(call);
            }
            (false, None) => self.tell(Tone::Dim, "this event is no call"),
        }
        Ok(())
    }

    fn visit_child(&mut self) -> Result<(), Failure> {
        let event = self.past.event(self.cursor)?;
        let json = self.past.plain_json(&event.view());
        let child = json.get("child").or_else(|| json.get("name")).and_then(serde_json::Value::as_str);
        let child = child.ok_or_else(|| Failure::usage("the event does not tell which session"))?;
        if child == self.past.id().to_string() {
            self.tell(Tone::Dim, "a shared child acts in this session, under its agent's name");
            return Ok(());
        }
        // Of a fork the past is known; what is its own comes after that.
        let forked = json.get("isolation").and_then(serde_json::Value::as_str) == Some("fork");
        let begins = json.get("at").and_then(serde_json::Value::as_u64).filter(|_| forked).map_or(1, |at| at + 1);
        let past = Arc::new(self.past.sibling(child)?);
        let before = std::mem::replace(&mut self.past, past);
        self.visits.push((before, self.cursor));
        self.begin_again(begins);
        let name = self.past.name().to_owned();
        self.tell(Tone::Plain, format!("in the child {name}; Backspace leads back"));
        Ok(())
    }

    fn leave(&mut self) {
        match self.visits.pop() {
            Some((past, cursor)) => {
                self.past = past;
                self.begin_again(cursor);
            }
            None => self.tell(Tone::Dim, "this is the session with which it began"),
        }
    }

    fn begin_again(&mut self, cursor: Seq) {
        self.rows.folds = super::timeline::Folds::default();
        self.window = super::VisibleRows::default();
        self.marks.clear();
        // What is under way, or was seen, is of the other history.
        self.stop();
        (self.seek_due, self.sight) = (None, None);
        self.settle_on(cursor.clamp(1, self.past.head().max(1)));
    }

    fn turn(&mut self, target: Option<Target>) {
        match target {
            Some(Target::File(path)) => {
                self.choice.selected = Some(path);
                self.show_tab(Tab::File);
                return;
            }
            Some(Target::Directory(path)) => {
                if !self.choice.turned.remove(&path) {
                    self.choice.turned.insert(path);
                }
            }
            Some(Target::Slice(name)) => {
                if !self.choice.slices.remove(&name) {
                    self.choice.slices.insert(name);
                }
            }
            None => return,
        }
        self.look_due = true;
    }

    fn fold_all(&mut self) {
        self.rows.folds.turn_all();
        let inner = self.past.brief(self.cursor).ok().flatten().and_then(|brief| brief.inner_of());
        let hidden = inner.filter(|call| !self.rows.folds.is_open(*call));
        self.settle_on(hidden.unwrap_or(self.cursor));
    }

    fn clear_breakpoints(&mut self) {
        self.breakpoints.clear();
        self.tell(Tone::Plain, "no breakpoints any more");
    }

    fn refresh(&mut self) -> Result<(), Failure> {
        let head = self.past.refresh()?;
        self.look_due = true;
        self.tell(Tone::Plain, format!("the last event is {head}"));
        Ok(())
    }

    fn escape(&mut self) {
        if self.prompt.take().is_some() || self.help.take().is_some() {
            return;
        }
        if self.stop_seek() {
            return self.tell(Tone::Plain, "stopped");
        }
        self.seek_due = None;
        if self.choice.compared.take().is_some() || self.choice.selected.take().is_some() {
            self.look_due = true;
        }
        self.zoomed = false;
    }
}

fn moved(line: usize, way: Direction, by: usize) -> usize {
    match way {
        Direction::Forward => line.saturating_add(by),
        Direction::Back => line.saturating_sub(by),
    }
}

impl Model {
    pub(crate) fn detail(&self) -> Option<&super::Sheet> {
        let sight = self.sight.as_ref()?;
        let is_files = sight.tab == Tab::Files;
        Some(if is_files { &sight.files } else { &sight.detail })
    }

    pub(super) fn show_tab(&mut self, tab: Tab) {
        self.tab = tab;
        self.focus = match (tab, self.heights.apart) {
            (Tab::Files, _) => Focus::Files,
            _ if self.focus == Focus::Timeline => Focus::Timeline,
            _ => Focus::Detail,
        };
        self.look_due = true;
    }

    fn next_focus(&mut self, way: Direction) {
        let shown: &[Focus] = match (self.heights.apart, self.tab) {
            (true, _) => &[Focus::Timeline, Focus::Files, Focus::Detail],
            (false, Tab::Files) => &[Focus::Timeline, Focus::Files],
            (false, _) => &[Focus::Timeline, Focus::Detail],
        };
        let at = shown.iter().position(|focus| *focus == self.focus).unwrap_or(0);
        let step = if way == Direction::Forward { 1 } else { shown.len() - 1 };
        self.focus = shown[(at + step) % shown.len()];
    }

    fn scroll(&mut self, way: Direction, by: usize) {
        let files = self.focus == Focus::Files;
        let Some(sight) = &self.sight else { return };
        let sheet = if files || sight.tab == Tab::Files { &sight.files } else { &sight.detail };
        let last = sheet.lines.len().saturating_sub(1);
        let height = if files && self.heights.apart { self.heights.files } else { self.heights.detail }.max(1);
        let scroll = if files { &mut self.file_scroll } else { &mut self.detail_scroll };
        scroll.line = moved(scroll.line, way, by).min(last);
        scroll.top = scroll.top.clamp((scroll.line + 1).saturating_sub(height), scroll.line);
    }
}
