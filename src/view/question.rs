//! Approval questions for a command, as text for a person.

use super::text::{visible, visible_lines};
use crate::tools::CommandQuestion;

/// The most characters of a name.
const NAME: usize = 80;
/// The most characters of a list of programs.
const PROGRAMS: usize = 200;
/// The characters to show from each end of a long variable or standard input.
const ENDS: usize = 1000;

/// Returns a question as text for a person: the whole command, set apart, and the ends of its input.
pub fn question(question: &CommandQuestion) -> String {
    let CommandQuestion { session, agent, command, env, stdin, copies, .. } = question;
    let who = if agent.is_empty() { "the agent".to_owned() } else { name(agent) };
    let place = match copies {
        None => format!("in session {}", name(session)),
        Some(positions) => {
            format!("in throw-away copies of session {}, at up to {positions} of its positions", name(session))
        }
    };
    let mut words = format!("{who} wants to run, {place}:{}", apart(&command.to_string()));
    for (variable, value) in env {
        let (shown, hidden) = ends(value);
        words.push_str(&format!("\nwith {}={}{hidden}", visible(variable), visible(&shown)));
    }
    if !stdin.is_empty() {
        let input = String::from_utf8_lossy(stdin);
        let (shown, hidden) = ends(&input);
        words.push_str(&format!("\nwith the standard input{hidden}:{}", apart(&shown)));
    }
    words
}

/// Describes the programs that an answer for the session would allow.
pub fn allowed_by_session(question: &CommandQuestion) -> String {
    let programs = question.programs.join(", ");
    match question.programs.len() {
        _ if programs.chars().count() <= PROGRAMS => visible(&programs).into_owned(),
        1 => "exactly this command".to_owned(),
        count => format!("the {count} programs of this command"),
    }
}

fn name(text: &str) -> String {
    let mut cut: String = text.chars().take(NAME).collect();
    if text.chars().nth(NAME).is_some() {
        cut.push('…');
    }
    visible(&cut).into_owned()
}

fn apart(text: &str) -> String {
    visible_lines(text).split('\n').map(|line| format!("\n  {line}")).collect()
}

/// Returns the ends of a text, and the number of characters between them.
fn ends(text: &str) -> (String, String) {
    let count = text.chars().count();
    let Some(hidden) = count.checked_sub(2 * ENDS).filter(|hidden| *hidden > 0) else {
        return (text.to_owned(), String::new());
    };
    let head: String = text.chars().take(ENDS).collect();
    let tail: String = text.chars().skip(count - ENDS).collect();
    (format!("{head}…{tail}"), format!(" ({hidden} of its {count} characters, in the middle, are not shown)"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::event::CommandLine;

    fn asked(command: &str) -> CommandQuestion {
        CommandQuestion {
            session: "s".to_owned(),
            call: 2,
            agent: String::new(),
            command: CommandLine::Shell(command.to_owned()),
            env: BTreeMap::new(),
            stdin: bytes::Bytes::new(),
            programs: vec!["make".to_owned()],
            copies: None,
        }
    }

    #[test]
    fn question_shows_whole_command() {
        let long = format!("{}\nrm last\u{202e}", "x".repeat(100_000));
        let words = question(&asked(&long));
        assert!(words.starts_with("the agent wants to run, in session s:\n  xxx"), "{}", &words[..60]);
        assert!(words.ends_with("x\n  rm last\\u{202e}"));
        let imitation = question(&asked("make\nwith the standard input:"));
        assert_eq!(imitation, "the agent wants to run, in session s:\n  make\n  with the standard input:");
        let copies = CommandQuestion { agent: "a\nb".to_owned(), copies: Some(7), ..asked("make") };
        let words = "a\\nb wants to run, in throw-away copies of session s, at up to 7 of its positions:\n  make";
        assert_eq!(question(&copies), words);
    }

    #[test]
    fn question_counts_omitted_text() {
        let stdin = format!("first{}last", "\u{e9}".repeat(40_000)).into_bytes().into();
        let words = question(&CommandQuestion { stdin, ..asked("sh") });
        let head = "\nwith the standard input (38009 of its 40009 characters, in the middle, are not shown):\n  first";
        assert!(words.contains(head) && words.ends_with("last"), "{words}");
        let env = BTreeMap::from([("A".to_owned(), "b\nc".to_owned())]);
        assert!(question(&CommandQuestion { env, ..asked("sh") }).ends_with("\nwith A=b\\nc"));
    }

    #[test]
    fn question_for_session_names_programs() {
        assert_eq!(allowed_by_session(&asked("make")), "make");
        let whole = CommandQuestion { programs: vec!["$x ".repeat(100)], ..asked("x") };
        assert_eq!(allowed_by_session(&whole), "exactly this command");
        let many = CommandQuestion { programs: (0..100).map(|n| format!("p{n}")).collect(), ..asked("x") };
        assert_eq!(allowed_by_session(&many), "the 100 programs of this command");
    }
}
