//! Asks the person at the terminal whether a command may run.

use std::sync::Arc;

use foldspace::tools::{ApprovalAnswer, Asker, Asking, CommandQuestion};
use foldspace::view;
use indicatif::ProgressBar;
use tokio::sync::Mutex;

use super::bar::BarPause;
use super::line_editor::EditorPrompt;
use super::lines::StdinLines;
use super::output;

const TRIES: usize = 3;

pub(super) struct AtTerminal {
    lines: Arc<Mutex<StdinLines>>,
    bar: Option<ProgressBar>,
}

impl AtTerminal {
    pub(super) fn new(bar: Option<ProgressBar>) -> Self {
        Self { lines: Arc::default(), bar }
    }
}

impl Asker for AtTerminal {
    fn ask(&self, question: CommandQuestion) -> Asking {
        let (lines, bar) = (Arc::clone(&self.lines), self.bar.clone());
        Box::pin(async move {
            let mut lines = lines.lock().await;
            let mut open = OpenQuestion { is_answered: false, _aside: bar.as_ref().map(BarPause::begin) };
            lines.forget();
            let answer = answer(&question, &mut lines).await;
            open.is_answered = true;
            answer
        })
    }
}

struct OpenQuestion {
    is_answered: bool,
    _aside: Option<BarPause>,
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if !self.is_answered {
            output::end_question();
        }
    }
}

async fn answer(question: &CommandQuestion, lines: &mut StdinLines) -> ApprovalAnswer {
    let (asked, programs) = (view::question(question), view::allowed_by_session(question));
    let mut words = format!(
        "{asked}\nallow it? y: this once, n: no, a: {programs} for this session, A: everything for this session"
    );
    for _ in 0..TRIES {
        output::ask(&words, "[y/n/a/A]");
        let line = match lines.next(EditorPrompt::default()).await {
            Ok(line) => String::from_utf8_lossy(&line).into_owned(),
            Err(error) => return ApprovalAnswer::Refuse(format!("failed to read the answer: {error}")),
        };
        if line.is_empty() {
            output::end_question();
            return ApprovalAnswer::Refuse("the person did not answer: the input has ended".to_owned());
        }
        if line.trim() == "A" {
            return ApprovalAnswer::Everything;
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return ApprovalAnswer::Once,
            "a" | "always" => return ApprovalAnswer::Session,
            "n" | "no" => return ApprovalAnswer::Refuse("the person said no".to_owned()),
            _ => words = "not one of the answers".to_owned(),
        }
    }
    ApprovalAnswer::Refuse("the person gave no clear answer".to_owned())
}
