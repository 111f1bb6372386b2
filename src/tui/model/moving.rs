//! Moves the cursor.

use std::sync::Arc;

use foldspace::Seq;

use super::{
    Brief, DebuggerAction, Direction, Failure, Focus, Model, OutsideRequest, OutsideVerb, Reached, Scroll, SeekTarget,
    Tab, Target, Tone,
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
            DebuggerAction::Conversation => return self.turn_conversation(),
            DebuggerAction::Zoom => self.zoomed = !self.zoomed,
            DebuggerAction::Help => self.help = if self.help.is_some() { None } else { Some(0) },
            DebuggerAction::Escape => self.escape(),
            DebuggerAction::Ask(ask) => self.ask(ask),
            DebuggerAction::Type(request) => self.type_in(request),
            DebuggerAction::Answer(ask, text) => return self.answer(ask, &text),
            DebuggerAction::Submit => return self.answer_typed(),
            DebuggerAction::AskWith(ask, text) => self.ask_with(ask, &text),
            DebuggerAction::Recall(way) => self.recall(way),
            DebuggerAction::Menu(kind) => return self.open_menu(kind),
            DebuggerAction::Choose(at) => return self.choose(at),
            DebuggerAction::Click(place) => return self.click(place),
            DebuggerAction::Wheel(place, way) => return self.wheel(place, way),
            DebuggerAction::Mouse => self.turn_mouse(),
            DebuggerAction::TurnRow => return self.turn_row(),
            DebuggerAction::ClearBreakpoints => self.clear_breakpoints(),
            DebuggerAction::Shell => {
                let session = self.past.id().to_string();
                self.wishes.push_back(OutsideRequest::Shell { session, at: self.step_end() });
            }
            DebuggerAction::Copy => {
                self.wishes.push_back(OutsideRequest::Copy(format!("{}@{}", self.past.name(), self.cursor)))
            }
            DebuggerAction::CopyText(text) => self.wishes.push_back(OutsideRequest::Copy(text)),
            DebuggerAction::CopyCommand(command) => self.wishes.push_back(OutsideRequest::CopyCommand(command)),
            DebuggerAction::Rewind => self.wish_command(OutsideVerb::Rewind),
            DebuggerAction::Refresh => self.refresh()?,
            DebuggerAction::Resize(heights) => {
                self.look_due |= (self.heights.apart, self.heights.columns) != (heights.apart, heights.columns);
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
            return Err(Failure::usage(format!("no event {seq}: the events are 1 to {head}")));
        }
        let brief = self.past.brief(seq)?;
        self.rows.is_quiet &= !brief.as_ref().is_some_and(|brief| self.rows.hides(brief));
        let call = brief.and_then(|brief| brief.inner_of());
        if !self.rows.lists(seq, call) {
            self.show_all_rows();
        }
        if let Some(call) = call.filter(|_| self.rows.filter.as_ref().is_none_or(|rows| !rows.has(seq))) {
            self.rows.folds.open(call);
        }
        self.settle_on(seq);
        Ok(())
    }

    pub(super) fn settle_on(&mut self, seq: Seq) {
        self.cursor = seq;
        self.look_due = true;
        self.choice.compared = None;
        self.window.come_back();
        self.show_window();
    }

    fn line(&mut self, way: Direction) -> Result<(), Failure> {
        if let Some(menu) = &mut self.menu {
            menu.step(way);
            return Ok(());
        }
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
        if let Some(row) = self.rows.filter.as_ref().and_then(|rows| rows.end(way)) {
            self.settle_on(row);
            return Ok(());
        }
        match way {
            Direction::Back => self.settle_on(1),
            Direction::Forward => {
                let head = self.past.head();
                // The last row is the call of the last event.
                let call = self.past.brief(head)?.and_then(|brief| brief.inner_of());
                let row = call.filter(|call| !self.rows.folds.is_open(*call));
                self.settle_on(row.unwrap_or(head).max(1));
                self.settle_on_shown()?;
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
        let next = match way {
            Direction::Forward if self.cursor < self.past.head() => self.cursor + 1,
            Direction::Back if self.cursor > 1 => self.cursor - 1,
            way => {
                self.tell_end(way);
                return Ok(());
            }
        };
        // An event that the filter hides is skipped.
        let brief = self.past.brief(next)?;
        match brief.is_some_and(|brief| self.rows.lists(next, brief.inner_of()) && !self.rows.hides(&brief)) {
            true => self.go_to(next),
            false => self.by_row(way, Brief::is_any),
        }
    }

    fn by_change(&mut self, way: Direction) -> Result<(), Failure> {
        let shown = self.sight.as_ref().and_then(|sight| sight.file.clone());
        let Some(path) = self.choice.selected.clone().or(shown) else {
            return Err(Failure::usage("no file is chosen: e asks for one, or choose one in the files' pane"));
        };
        // Later steps follow this file, whatever else has changed there.
        self.choice.selected = Some(path.clone());
        self.seek(way, SeekTarget::Change(path));
        Ok(())
    }

    fn run_on(&mut self, way: Direction) -> Result<(), Failure> {
        if self.breakpoints.is_empty() {
            return Err(Failure::usage("no breakpoint is set: b sets one"));
        }
        self.seek(way, SeekTarget::Any(self.breakpoints.clone()));
        Ok(())
    }

    pub(super) fn enter(&mut self) -> Result<(), Failure> {
        if let Some(menu) = &self.menu {
            return self.choose(menu.at);
        }
        let (sheet, at) = match self.focus {
            Focus::Timeline => return self.turn_row(),
            Focus::Files => (self.sight.as_ref().map(|sight| &sight.files), self.file_scroll.line),
            Focus::Detail => (self.detail(), self.detail_scroll.line),
        };
        let target = sheet.and_then(|sheet| sheet.lines.get(at)).and_then(|line| line.target.clone());
        self.turn(target);
        Ok(())
    }

    pub(super) fn turn_row(&mut self) -> Result<(), Failure> {
        let Some(brief) = self.past.brief(self.cursor)? else { return Ok(()) };
        if brief.is_child() {
            return self.visit_child();
        }
        match (brief.folds(), brief.inner_of()) {
            (true, _) => {
                self.rows.folds.turn(brief.seq);
                self.look_due = true;
            }
            (false, Some(call)) if !self.rows.lists(call, None) => {
                self.tell(Tone::Dim, format!("its call {call} is hidden: Esc shows all rows"));
            }
            (false, Some(call)) => {
                self.rows.folds.turn(call);
                self.settle_on(call);
            }
            (false, None) => self.tell(Tone::Dim, "this event belongs to no call"),
        }
        Ok(())
    }

    fn visit_child(&mut self) -> Result<(), Failure> {
        let event = self.past.event(self.cursor)?;
        let json = self.past.plain_json(&event.view());
        let child = json.get("child").or_else(|| json.get("name")).and_then(serde_json::Value::as_str);
        let child = child.ok_or_else(|| Failure::usage("the event names no session"))?;
        if child == self.past.id().to_string() {
            self.tell(Tone::Dim, "a shared child acts in this session, under its agent's name");
            return Ok(());
        }
        // The past of a fork is known; its own events follow.
        let forked = json.get("isolation").and_then(serde_json::Value::as_str) == Some("fork");
        let begins = json.get("at").and_then(serde_json::Value::as_u64).filter(|_| forked).map_or(1, |at| at + 1);
        let past = Arc::new(self.past.sibling(child)?);
        let before = std::mem::replace(&mut self.past, past);
        self.visits.push((before, self.cursor));
        self.begin_again(begins);
        let name = self.past.name().to_owned();
        self.tell(Tone::Plain, format!("in the child {name}; Backspace returns"));
        Ok(())
    }

    fn leave(&mut self) {
        match self.visits.pop() {
            Some((past, cursor)) => {
                self.past = past;
                self.begin_again(cursor);
            }
            None => self.tell(Tone::Dim, "this is the initial session"),
        }
    }

    fn begin_again(&mut self, cursor: Seq) {
        self.rows = super::timeline::Rows::default();
        self.window = super::VisibleRows::default();
        self.marks.clear();
        // Running work and the current view belong to the other history.
        self.stop();
        (self.seek_due, self.filter_due, self.sight) = (None, None, None);
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
        let hidden = inner.filter(|call| !self.rows.folds.is_open(*call) && self.rows.lists(*call, None));
        self.settle_on(hidden.unwrap_or(self.cursor));
    }

    fn turn_conversation(&mut self) -> Result<(), Failure> {
        self.rows.is_quiet = !self.rows.is_quiet;
        self.window.forget();
        self.tell(
            Tone::Plain,
            if self.rows.is_quiet { "prompts and messages are hidden" } else { "all rows are shown" },
        );
        self.settle_on_shown()
    }

    fn clear_breakpoints(&mut self) {
        self.breakpoints.clear();
        self.tell(Tone::Plain, "breakpoints removed");
    }

    fn refresh(&mut self) -> Result<(), Failure> {
        let head = self.past.refresh()?;
        self.look_due = true;
        self.renew_filter();
        self.tell(Tone::Plain, format!("the last event is {head}"));
        Ok(())
    }

    /// Checks the session for new events. A cursor on the last row follows them.
    pub(crate) fn follow(&mut self) -> Result<(), Failure> {
        let before = self.past.head();
        if self.past.refresh()? == before {
            return Ok(());
        }
        let is_last = self.window.rows.last().is_some_and(|row| row.seq == self.cursor);
        let is_idle = self.prompt.is_none() && self.menu.is_none() && self.help.is_none() && self.seeking().is_none();
        self.renew_filter();
        match is_last && is_idle && self.focus == Focus::Timeline && self.rows.filter.is_none() {
            true => self.end(Direction::Forward)?,
            false => self.look_due = true,
        }
        self.show_window();
        Ok(())
    }

    fn escape(&mut self) {
        if self.prompt.take().is_some() || self.menu.take().is_some() || self.help.take().is_some() {
            return;
        }
        if self.stop_seek() {
            return self.tell(Tone::Plain, "stopped");
        }
        self.seek_due = None;
        let mut closed = self.choice.compared.take().is_some() | self.choice.selected.take().is_some();
        self.look_due |= closed;
        closed |= std::mem::replace(&mut self.focus, Focus::Timeline) != Focus::Timeline;
        // The filter is removed last.
        if !std::mem::take(&mut self.zoomed) && !closed {
            self.show_all_rows();
        }
    }
}

pub(super) fn moved(line: usize, way: Direction, by: usize) -> usize {
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
        let Some((scroll, lines, height)) = self.pane(self.focus) else { return };
        scroll.line = moved(scroll.line, way, by).min(lines.saturating_sub(1));
        scroll.top = scroll.top.clamp((scroll.line + 1).saturating_sub(height), scroll.line);
    }

    /// Returns the scroll position of a pane, the number of lines of its sheet, and its height.
    pub(super) fn pane(&mut self, focus: Focus) -> Option<(&mut Scroll, usize, usize)> {
        let sight = self.sight.as_ref()?;
        let (sheet, scroll, height) = match focus {
            Focus::Files => (&sight.files, &mut self.file_scroll, self.heights.files),
            _ if sight.tab == Tab::Files => (&sight.files, &mut self.detail_scroll, self.heights.detail),
            _ => (&sight.detail, &mut self.detail_scroll, self.heights.detail),
        };
        Some((scroll, sheet.lines.len(), height.max(1)))
    }
}
