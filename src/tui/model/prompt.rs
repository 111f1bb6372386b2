//! Questions to the person, and their answers.

use super::{Ask, DebuggerAction, Direction, Failure, Focus, Model, OutsideVerb, Seek, SeekTarget, Tab, Tone};
use foldspace::EntryPath;
use foldspace::view::SearchQuery;
use tui_input::Input;

#[derive(Debug, Clone)]
pub(crate) struct InputPrompt {
    pub(crate) ask: Ask,
    pub(crate) input: Input,
    /// The recalled answer, counted back from the last one; 0 for none.
    recalled: usize,
}

const ANSWER_MAX: usize = 1000;
/// Maximum answers to remember.
const ANSWERS: usize = 200;

impl Model {
    pub(super) fn ask(&mut self, ask: Ask) {
        self.ask_with(ask, "");
    }

    pub(super) fn ask_with(&mut self, ask: Ask, text: &str) {
        self.prompt = Some(InputPrompt { ask, input: Input::new(text.to_owned()), recalled: 0 });
    }

    /// Returns the answers to a question so far, latest first; both directions are the same question.
    pub(crate) fn answers(&self, ask: Ask) -> impl Iterator<Item = &str> {
        let is_same = move |(asked, _): &&(Ask, String)| std::mem::discriminant(asked) == std::mem::discriminant(&ask);
        self.answers.iter().rev().filter(is_same).map(|(_, text)| text.as_str())
    }

    pub(super) fn recall(&mut self, way: Direction) {
        let Some(prompt) = &self.prompt else { return };
        let (ask, count) = (prompt.ask, self.answers(prompt.ask).count());
        let recalled = match way {
            Direction::Back => (prompt.recalled + 1).min(count),
            Direction::Forward => prompt.recalled.saturating_sub(1),
        };
        let text = recalled.checked_sub(1).and_then(|at| self.answers(ask).nth(at)).unwrap_or_default().to_owned();
        self.prompt = Some(InputPrompt { ask, input: Input::new(text), recalled });
    }

    fn remember(&mut self, ask: Ask, text: &str) {
        if text.is_empty() || ask.is_letter() || self.answers(ask).next() == Some(text) {
            return;
        }
        if self.answers.len() >= ANSWERS {
            self.answers.remove(0);
        }
        self.answers.push((ask, text.to_owned()));
    }

    pub(super) fn type_in(&mut self, request: tui_input::InputRequest) {
        let Some(prompt) = &mut self.prompt else { return };
        let is_insertion = matches!(request, tui_input::InputRequest::InsertChar(_));
        if is_insertion && prompt.input.value().chars().count() >= ANSWER_MAX {
            return;
        }
        prompt.input.handle(request);
    }

    pub(super) fn answer_typed(&mut self) -> Result<(), Failure> {
        let Some(prompt) = self.prompt.take() else { return Ok(()) };
        let text = prompt.input.value().trim().to_owned();
        self.remember(prompt.ask, &text);
        self.act(DebuggerAction::Answer(prompt.ask, text))
    }

    pub(super) fn answer(&mut self, ask: Ask, text: &str) -> Result<(), Failure> {
        self.prompt = None;
        let text = text.trim();
        match ask {
            // An empty answer repeats the last search.
            Ask::Search(way) if text.is_empty() => return self.again(way),
            Ask::Search(way) => {
                self.search = Some(SearchQuery::read(text)?.into());
                return self.again(way);
            }
            Ask::Filter => return self.filter(text),
            Ask::Fork => self.wish_fork(text),
            Ask::Compare => {
                self.choice.compared = if text.is_empty() { None } else { Some(self.places(text)?) };
                self.show_tab(Tab::Diff);
                self.focus = Focus::Detail;
            }
            Ask::Until(_) if text.is_empty() => {
                // Enter alone repeats the last condition.
                let last = self.answers(ask).next().map(str::to_owned);
                return last.map_or(Ok(()), |last| self.answer(ask, &last));
            }
            _ if text.is_empty() => {}
            Ask::Jump => {
                let seq = self.position(text)?;
                return self.go_to(seq);
            }
            Ask::Until(way) => {
                let condition = self.past.condition(text)?;
                self.seek(way, SeekTarget::Any(vec![condition]));
            }
            Ask::Breakpoint => {
                let condition = self.past.condition(text)?;
                self.tell(Tone::Plain, format!("breakpoint {}: {}", self.breakpoints.len() + 1, condition.text()));
                self.breakpoints.push(condition);
            }
            Ask::Select => {
                self.choice.selected = Some(EntryPath::lookup(text)?);
                self.show_tab(Tab::File);
            }
            Ask::SetMark => self.set_mark(text)?,
            Ask::GoToMark => {
                let seq = self.marked(text)?;
                return self.go_to(seq);
            }
        }
        Ok(())
    }

    pub(super) fn again(&mut self, way: Direction) -> Result<(), Failure> {
        let Some(search) = self.search.clone() else {
            return Err(Failure::usage("no search yet: / starts one"));
        };
        self.seek(way, SeekTarget::Search(search, self.rows.clone()));
        Ok(())
    }

    pub(super) fn seek(&mut self, way: Direction, wanted: SeekTarget) {
        self.seek_due = Some(Seek { from: self.cursor, way, wanted });
    }

    fn wish_fork(&mut self, name: &str) {
        let name = (!name.is_empty()).then(|| name.to_owned());
        self.wish_command(OutsideVerb::Fork { name });
    }
}
