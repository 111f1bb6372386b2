//! Checks of running commands: command lines, argument lists, scripts, `which`, and regular ends.

use super::rig::{CheckFinding, Rig, Suite, ensure, ensure_printed, seen, shown};
use crate::backends::{MAX_TIMEOUT, MIN_TIMEOUT, ShellCommand};
use crate::engine::event::CommandLine;

const SH: &str = "/bin/sh";
pub(super) const NO_PROGRAM: &str = "foldspace-no-such-program";
pub(super) const TEXT: (&str, &str) =
    ("for word in one two; do echo $word; done | cat; echo $((1 + 2))", "one\ntwo\n3\n");
pub(super) const LITERAL: [&str; 9] =
    ["printf", "%s|", "$HOME", "*", ";", "two words", "", "`id`", "it's \"quoted\" \\n"];
pub(super) const LITERAL_PRINTED: &str = "$HOME|*|;|two words||`id`|it's \"quoted\" \\n|";
/// A script that is hard to quote, and its output.
pub(super) const SCRIPT: (&str, &str) = (
    "name='it'\"'\"'s'\nprintf '%s\\n' \"$name\" '$HOME' '\"'\ncat <<'END'\na `here` document\nEND\n",
    "it's\n$HOME\n\"\na `here` document\n",
);
pub(super) const CODES: [i32; 4] = [0, 1, 42, 255];

pub(super) fn exiting(code: i32) -> String {
    format!("exit {code}")
}

pub(super) fn not_there() -> [CommandLine; 3] {
    let script = CommandLine::Script { interpreter: format!("/nowhere/{NO_PROGRAM}"), script: "echo no\n".to_owned() };
    [CommandLine::Shell(format!("{NO_PROGRAM} --all")), CommandLine::Args(vec![NO_PROGRAM.to_owned()]), script]
}

pub(super) fn script() -> ShellCommand {
    ShellCommand::script(SH, SCRIPT.0)
}

pub(super) async fn check(suite: &mut Suite<Rig>) {
    suite.check("properties", "a name, and a default time within the limits", properties).await;
    suite.check("texts", "a shell runs a command line, with loops, pipes and arithmetic", texts).await;
    suite.check("lists", "a list of arguments bypasses the shell: `$HOME`, `*`, `;` are literal", lists).await;
    suite.check("scripts", "an interpreter runs a script from a file, with any quotes in it", scripts).await;
    suite.check("scripts-vanish", "a script's file is removed after the script has ended", scripts_vanish).await;
    suite.check("as-given", "a result has the command and the directory as given", as_given).await;
    suite.check("which", "`which` finds the same program as commands", which).await;
    suite.check("which-nothing", "`which` of a missing program finds nothing, without an error", which_nothing).await;
    suite.check("exit-codes", "an exit code is the command's; only 0 is success", exit_codes).await;
    suite.check("no-program", "a missing program returns 127, not an error", no_program).await;
    suite.check("signals", "a fatal signal is reported; the exit code is 128 more", signals).await;
}

async fn properties(rig: Rig) -> CheckFinding {
    let properties = rig.shell().properties();
    ensure(!properties.backend_name.is_empty(), || "no name".to_owned())?;
    let limits = MIN_TIMEOUT..=MAX_TIMEOUT;
    ensure(limits.contains(&properties.default_timeout), || format!("{:?}", properties.default_timeout))
}

async fn texts(rig: Rig) -> CheckFinding {
    ensure_printed(&rig.run(ShellCommand::shell(TEXT.0)).await?, TEXT.1, "")
}

async fn lists(rig: Rig) -> CheckFinding {
    ensure_printed(&rig.run(ShellCommand::args(LITERAL)).await?, LITERAL_PRINTED, "")
}

async fn scripts(rig: Rig) -> CheckFinding {
    ensure_printed(&rig.run(script()).await?, SCRIPT.1, "")
}

async fn scripts_vanish(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let text = "if test -f \"$0\"; then printf '%s' \"$0\"; else exit 9; fi";
    let result = rig.run(ShellCommand::script(SH, text)).await?;
    let file = String::from_utf8_lossy(&result.stdout.kept).into_owned();
    ensure(result.success() && file.starts_with('/'), || {
        format!("while it runs, `$0` is not a file with an absolute path: {}", shown(&result))
    })?;
    let looked = rig.run(ShellCommand::args(["test", "-e", &file])).await?;
    ensure(looked.exit_code == 1, || format!("{file} is still there"))
}

async fn as_given(rig: Rig) -> CheckFinding {
    for command in [ShellCommand::shell(TEXT.0), ShellCommand::args(LITERAL), script()] {
        let result = rig.run(command.clone()).await?;
        let told = (&result.command, &result.cwd);
        ensure(told == (&command.command, &command.cwd), || format!("{told:?} instead of {:?}", command.command))?;
    }
    Ok(())
}

async fn which(rig: Rig) -> CheckFinding {
    let which = match rig.shell().which("cat").await {
        Ok(which) => which,
        Err(error) => return seen(format!("an error: {error}")),
    };
    let Some(path) = which.path.filter(|path| path.starts_with('/') && which.command == "cat") else {
        return seen("no absolute path for `cat`, or another name");
    };
    if rig.processes().is_ok() {
        rig.sh(&format!("test -x {path} && test \"$(command -v cat)\" -ef {path}")).await?;
    }
    Ok(())
}

async fn which_nothing(rig: Rig) -> CheckFinding {
    for program in [NO_PROGRAM, "/nowhere/cat", "", "a\0b"] {
        match rig.shell().which(program).await {
            Ok(which) => ensure(which.path.is_none() && which.command == program, || format!("{which:?}"))?,
            Err(error) => return seen(format!("for {program:?} an error: {error}")),
        }
    }
    Ok(())
}

async fn exit_codes(rig: Rig) -> CheckFinding {
    for code in CODES {
        let result = rig.run(ShellCommand::shell(exiting(code))).await?;
        let is_so = result.exit_code == code && result.success() == (code == 0) && result.signal.is_none();
        ensure(is_so, || format!("`{}` ended with {}", exiting(code), shown(&result)))?;
    }
    Ok(())
}

async fn no_program(rig: Rig) -> CheckFinding {
    for line in not_there() {
        let result = rig.run(ShellCommand::new(line.clone())).await?;
        ensure(result.exit_code == 127 && !result.success(), || format!("`{line}` ended with {}", shown(&result)))?;
    }
    Ok(())
}

async fn signals(rig: Rig) -> CheckFinding {
    rig.processes()?;
    for (name, number) in [("KILL", 9), ("TERM", 15), ("HUP", 1)] {
        let result = rig.run(ShellCommand::shell(format!("kill -{name} $$; sleep 60"))).await?;
        let is_so = result.signal == Some(number) && result.exit_code == 128 + number && !result.success();
        ensure(is_so && !result.timed_out, || format!("after SIG{name}: {}", shown(&result)))?;
    }
    Ok(())
}
