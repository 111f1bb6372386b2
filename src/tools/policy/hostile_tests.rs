//! Hostile texts: each gets a decision, in a bounded number of steps.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::tests::{allowing, check};
use super::*;
use crate::testing::rounds;

const TOKENS: [&str; 64] = [
    "(",
    ")",
    "((",
    "))",
    "$(",
    "`",
    "${",
    "}",
    "{",
    "\"",
    "'",
    "\\",
    "$'",
    "$\"",
    "$((",
    "$[",
    "]",
    "[[",
    "]]",
    "[",
    "<<E",
    "<<-E",
    "<<'E'",
    "<<<",
    "<",
    ">",
    ">>",
    ">|",
    "&>",
    ">&",
    "<(",
    ">(",
    "\n",
    "E\n",
    ";",
    ";;",
    "&",
    "&&",
    "|",
    "||",
    "|&",
    "!",
    "#",
    " ",
    "\t",
    "=",
    "a=",
    "a+=(",
    "$a",
    "$@",
    "~",
    "/",
    "*",
    "?",
    "{a,b}",
    "if ",
    "then ",
    "fi ",
    "for ",
    "case ",
    " in ",
    "esac ",
    "\u{f0001}",
    "function ",
];

const PROGRAMS: [&str; 16] = [
    "rm -rf ", "xargs ", "sudo ", "eval ", "sh -c ", "curl ", "find / ", "f() ", "echo ", "set -- ", "env ",
    "alias x=", "trap ", "while ", "do ", "done ",
];

/// Checks a command. Steps are counted, so a finished check has stayed within the bound.
fn ends(command: &str) -> Decision {
    check(&allowing(&["ls"]), command)
}

#[test]
fn policy_hostile_repetition_is_never_allowed() {
    let endless = ["(", "$(", "`", "\"$(", "${a:-", "$((", "((", "{ ", "<(", "if ", "while ", "case x in a) ", "f(){ "];
    let every = if rounds(1) > 1 { 1 } else { 3 };
    for (at, unit) in TOKENS.iter().chain(&PROGRAMS).chain(&endless).enumerate() {
        for next in ["", " ", "$("].into_iter().skip(at % every).step_by(every) {
            let unit = format!("{unit}{next}");
            let text: String = unit.chars().cycle().take(4_096).collect();
            ends(&text);
        }
    }
    for unit in endless {
        let text: String = unit.chars().cycle().take(4_000).collect();
        let decision = ends(&text);
        assert!(!matches!(decision, Decision::Allow { .. }), "{unit}: {decision:?}");
    }
}

#[test]
fn policy_text_as_long_as_linux_takes_ends() {
    let policy = CommandPolicy::typed();
    for unit in
        ["git status && ls | grep x; ", "f() { echo $(f); }; ", "echo $( ", "sudo env timeout 5 ", "echo rm | sh | "]
    {
        let text: String = unit.chars().cycle().take(crate::backends::MAX_COMMAND_BYTES).collect();
        policy.check(&ShellCommand::shell(text), &BTreeSet::new());
        let words = unit.split_whitespace().cycle().take(20_000);
        policy.check(&ShellCommand::args(words), &BTreeSet::new());
    }
}

#[test]
fn policy_doubling_values_stay_bounded() {
    let mut text = "a=xxxxxxxxxx;".to_owned();
    text.push_str(&"a=$a$a$a$a;".repeat(300));
    ends(&text);
    let text = format!("a='sh -c \"$a\"; sh -c \"$a\"'; {}", "eval \"$a\"; ".repeat(200));
    ends(&text);
    let text = format!("echo {}", "{a,b}".repeat(500));
    ends(&text);
    ends(&"echo rm | ".repeat(400));
    ends(&"echo rm | sh | ".repeat(250));
}

#[test]
fn policy_multiplying_input_is_bounded() {
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    let marks = "a".repeat(4_000);
    for (command, line) in [
        (format!("xargs -Ia {marks}"), "x".repeat(60_000)),
        (format!("parallel {}", "{}".repeat(2_000)), "x".repeat(60_000)),
        ("xargs sh; ".repeat(400), "x ".repeat(30_000)),
        ("sh; ".repeat(1_000), "ls; ".repeat(15_000)),
        ("xargs ".repeat(600), "x\n".repeat(30_000)),
    ] {
        let command = ShellCommand { stdin: line.into(), ..ShellCommand::shell(command) };
        let decision = CommandPolicy::default().check(&command, &BTreeSet::new());
        assert!(!matches!(decision, Decision::Allow { .. }), "{}: {decision:?}", &command.command.to_string()[..20]);
        policy.check(&command, &BTreeSet::new());
    }
    let calls: String = (0..60).map(|n| format!("f{n}() {{ cd a; f{}; f{}; }}; ", n + 1, n + 2)).collect();
    ends(&format!("{calls} f0"));
    ends(&"for i in 1; do cd a; ".repeat(30));
    ends(&format!("{}; f", "f() { cd a; f; f; }; ".repeat(60)));
}

/// Spells a word in one of several equivalent ways.
fn spelled(word: &str, ways: &[usize]) -> String {
    let mut out = String::new();
    for (c, way) in word.chars().zip(ways.iter().cycle()) {
        match way % 6 {
            1 => out.push_str(&format!("'{c}'")),
            2 => out.push_str(&format!("\"{c}\"")),
            3 => out.push_str(&format!("\\{c}")),
            4 => out.push_str(&format!("{c}\\\n")),
            5 => out.push_str(&format!("{c}''")),
            _ => out.push(c),
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(20), ..ProptestConfig::default() })]

    #[test]
    fn policy_decides_any_text(text in "\\PC{0,300}") {
        ends(&text);
    }

    #[test]
    fn policy_decides_any_tokens(picks in prop::collection::vec(0..TOKENS.len() + PROGRAMS.len(), 0..120)) {
        let text: String = picks.iter().map(|&at| TOKENS.get(at).unwrap_or_else(|| &PROGRAMS[at - TOKENS.len()])).copied().collect();
        ends(&text);
        CommandPolicy::default().check(&ShellCommand::args(text.split(' ')), &BTreeSet::new());
    }

    #[test]
    fn policy_spelling_evades_no_rule(which in 0..6_usize, ways in prop::collection::vec(0..6_usize, 1..12)) {
        let commands = ["rm -rf /", "mkfs.ext4 /dev/sdb", "dd if=/dev/zero of=x", "chmod -R 777 /", "find / -delete", "tee /dev/sda"];
        let text: Vec<String> = commands[which].split(' ').map(|word| spelled(word, &ways)).collect();
        let text = text.join(" ");
        prop_assert!(matches!(check(&CommandPolicy::default(), &text), Decision::Deny { .. }), "{text}");
        for around in ["ls; {}", "( {} )", "echo $( {} )", "ls && {}", "if {}; then :; fi", "sudo {}", "f() { {}; }"] {
            let text = around.replace("{}", &text);
            prop_assert!(matches!(check(&CommandPolicy::default(), &text), Decision::Deny { .. }), "{text}");
        }
    }

    #[test]
    fn policy_unlisted_program_is_never_allowed(picks in prop::collection::vec(0..TOKENS.len() + 4, 0..20)) {
        let words = ["ls ", "ls x ", "echo ", "x "];
        let text: String = picks.iter().map(|&at| TOKENS.get(at).unwrap_or_else(|| &words[at - TOKENS.len()])).copied().collect();
        // The prefix runs before a shell reads the text after it.
        for before in ["make\n", "ls; make; ", "ls | make\n", "(make)\n", "ls $(make)\n", "make & ", "if make; then ls; fi\n"] {
            let decision = ends(&format!("{before}{text}"));
            prop_assert!(!matches!(decision, Decision::Allow { .. }), "{before}{text}");
        }
        // A newline ends comments and the previous command, unless a backslash joins the lines.
        if matches!(ends(&text), Decision::Allow { .. }) && !text.ends_with('\\') {
            let decision = ends(&format!("{text}\nmake"));
            prop_assert!(!matches!(decision, Decision::Allow { .. }), "{text}");
        }
    }
}

/// Returns the steps of a check and their limit.
fn steps_of(command: &str, stdin: &str) -> (usize, usize) {
    let policy = CommandPolicy::default();
    let given = ShellCommand { stdin: stdin.to_owned().into(), ..ShellCommand::shell(command) };
    let mut judge = Judge::new(&policy.deny, &given);
    let _ = judge.look(&given);
    (judge.steps, judge::STEPS + judge::STEPS_PER_BYTE * (command.len() + stdin.len()))
}

#[test]
fn policy_work_is_linear_in_length() {
    let units =
        TOKENS.iter().chain(&PROGRAMS).copied().chain(["rm * ", "cd aaaaaaaaaaaaaaaa/b; ", "f(){ f; }; ", "<<E\n"]);
    for unit in units {
        for (before, behind) in
            [("", ""), ("rm ", " "), ("xargs ", " "), ("echo x | ", " "), ("$(", ""), ("(cd aaaa;", "")]
        {
            let text: String = before.chars().chain(format!("{unit}{behind}").chars().cycle()).take(2_048).collect();
            let script = words::SplitScript::read(&text);
            assert!(script.steps <= 2 * text.len(), "{unit}");
            let (steps, most) = steps_of(&text, "");
            assert!(steps <= 2 * most, "{unit}: {steps} of {most}");
        }
    }
    let (steps, most) = steps_of(&"sh; ".repeat(1_000), &"ls; ".repeat(15_000));
    assert!(steps <= 2 * most, "{steps} of {most}");
}

#[test]
fn policy_never_panics_or_hangs() {
    arbtest::arbtest(|u| {
        let picks: Vec<u8> = u.arbitrary()?;
        let text: String = match u.arbitrary()? {
            true => String::from_utf8_lossy(&picks).into_owned(),
            false => picks.iter().map(|&at| part(at)).collect(),
        };
        let stdin: String = u.arbitrary()?;
        let (steps, most) = steps_of(&text, &stdin);
        assert!(steps <= 2 * most, "{text}");
        let policy = CommandPolicy { auto_confirm: u.arbitrary()?, ..allowing(&["ls", "git"]) };
        let list = ShellCommand::args(text.split(' '));
        for command in [ShellCommand::script("/bin/bash", text.as_str()), list, ShellCommand::shell(text)] {
            policy.check(&ShellCommand { stdin: stdin.clone().into(), ..command }, &BTreeSet::new());
        }
        Ok(())
    })
    .budget_ms(2_000)
    .size_max(4_096);
}

fn part(at: u8) -> &'static str {
    let at = usize::from(at) % (TOKENS.len() + PROGRAMS.len());
    TOKENS.get(at).unwrap_or_else(|| &PROGRAMS[at - TOKENS.len()])
}
