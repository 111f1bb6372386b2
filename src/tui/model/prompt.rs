//! Questions to the person, and their answers.

use super::{
    Ask, DebuggerAction, Direction, Failure, Model, OutsideRequest, SearchQuery, Seek, SeekTarget, StopCondition, Tab,
    Tone,
};
use foldspace::EntryPath;
use tui_input::Input;

#[derive(Debug, Clone)]
pub(crate) struct InputPrompt {
    pub(crate) ask: Ask,
    pub(crate) input: Input,
}

const ANSWER_MAX: usize = 1000;

impl Model {
    pub(super) fn ask(&mut self, ask: Ask) {
        self.prompt = Some(InputPrompt { ask, input: Input::default() });
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
        self.act(DebuggerAction::Answer(prompt.ask, prompt.input.value().to_owned()))
    }

    pub(super) fn answer(&mut self, ask: Ask, text: &str) -> Result<(), Failure> {
        self.prompt = None;
        let text = text.trim();
        match ask {
            // An empty answer takes the last search again.
            Ask::Search(way) if text.is_empty() => return self.again(way),
            Ask::Search(way) => {
                self.search = Some(SearchQuery::read(text)?.into());
                return self.again(way);
            }
            Ask::Filter => return self.filter(text),
            Ask::Fork => self.wish_fork(text),
            _ if text.is_empty() => {}
            Ask::Jump => {
                let seq = self.position(text)?;
                return self.go_to(seq);
            }
            Ask::Until(way) => {
                let condition = StopCondition::read(text)?;
                self.seek(way, SeekTarget::Any(vec![condition]));
            }
            Ask::Breakpoint => {
                let condition = StopCondition::read(text)?;
                self.tell(Tone::Plain, format!("breakpoint {}: {}", self.breakpoints.len() + 1, condition.text()));
                self.breakpoints.push(condition);
            }
            Ask::Compare => {
                self.choice.compared = Some(self.places(text)?);
                self.show_tab(Tab::Diff);
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
            return Err(Failure::usage("nothing was searched for yet: / asks"));
        };
        self.seek(way, SeekTarget::Search(search));
        Ok(())
    }

    pub(super) fn seek(&mut self, way: Direction, wanted: SeekTarget) {
        self.seek_due = Some(Seek { from: self.cursor, way, wanted });
    }

    fn filter(&mut self, text: &str) -> Result<(), Failure> {
        let (word, rest) = text.split_once(' ').map_or((text, ""), |(word, rest)| (word, rest.trim()));
        match (word, rest) {
            ("", _) => (self.rows.agent, self.rows.kind) = (None, None),
            ("agent", name) => self.rows.agent = (!name.is_empty()).then(|| name.into()),
            ("kind", kind) => self.rows.kind = (!kind.is_empty()).then(|| kind.to_lowercase()),
            _ => return Err(Failure::usage("a filter is: agent NAME, or kind TEXT; nothing shows all")),
        }
        self.look_due = true;
        Ok(())
    }

    fn wish_fork(&mut self, name: &str) {
        let name = (!name.is_empty()).then(|| name.to_owned());
        let session = self.past.id().to_string();
        self.wishes.push_back(OutsideRequest::Fork { session, at: self.step_end(), name });
    }
}
