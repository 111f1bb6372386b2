//! The answers of a correct shell to the commands of this suite, for shells that answer from a list.

use std::time::Duration;

use super::{commands, endings, output, refusals};
use crate::backends::{MockAnswer, MockRule, ShellCommand};
use crate::engine::event::CommandLine;

/// Longer than any check waits.
const LONG: Duration = Duration::from_secs(3600);

/// Returns the commands of the checks with [`Means::Canned`](super::Means::Canned), with the answers of a correct
/// shell. A program without an answer does not exist.
///
/// ```
/// # use foldspace_backends as foldspace;
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
    // Escaping wildcards leaves backslashes as they are, which escape too.
    globset::escape(&text.replace('\\', r"\\"))
}
