//! Lists the answers that a right shell gives to what this suite asks of one that answers from a list.

use std::time::Duration;

use super::{commands, endings, output, refusals};
use crate::backends::{MockAnswer, MockRule, ShellCommand};
use crate::engine::event::CommandLine;

/// A time that no check waits for.
const LONG: Duration = Duration::from_secs(3600);

/// The commands that the checks of [`Means::Canned`](super::Means::Canned) use, with the answers that a
/// right shell would give. A program without an answer is not there.
///
/// ```
/// use foldspace::{backends::MockWorkspace, backends::compliance::canned_answers};
/// let mock = canned_answers()
///     .into_iter()
///     .try_fold(MockWorkspace::new(), |mock, rule| mock.answering(&rule.command, rule.answer))?;
/// # Ok::<(), foldspace::backends::BackendError>(())
/// ```
pub fn canned_answers() -> Vec<MockRule> {
    let shell = |text: &str| CommandLine::Shell(text.to_owned());
    let long = format!("BEGIN{}END", "x".repeat(output::LONG.1 - "BEGINEND".len()));
    let both = MockAnswer { stderr: "err\n".to_owned(), ..MockAnswer::printing("out\n") };
    let mut answers = vec![
        (shell(commands::TEXT.0), MockAnswer::printing(commands::TEXT.1)),
        (ShellCommand::args(commands::LITERAL).command, MockAnswer::printing(commands::LITERAL_PRINTED)),
        (commands::script().command, MockAnswer::printing(commands::SCRIPT.1)),
        (shell("cat"), MockAnswer::default()),
        (shell(output::BOTH), both),
        (shell(output::LONG.0), MockAnswer::printing(long)),
        (shell(output::BINARY.0), MockAnswer::printing(output::BINARY.1)),
        (shell(&refusals::longest()), MockAnswer::default()),
        (shell(refusals::BROKEN), MockAnswer::failing("it is broken on purpose")),
        (shell(endings::SLOW.0), MockAnswer::printing(endings::SLOW.1).after(LONG)),
    ];
    answers.extend(commands::CODES.map(|code| (shell(&commands::exiting(code)), MockAnswer::exiting(code, ""))));
    let rule =
        |(command, answer): (CommandLine, MockAnswer)| MockRule { command: literal(&command.to_string()), answer };
    answers.into_iter().map(rule).collect()
}

fn literal(text: &str) -> String {
    // What escapes wildcards leaves backslashes, which escape too.
    globset::escape(&text.replace('\\', r"\\"))
}
