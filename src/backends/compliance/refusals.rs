//! Checks of commands that are refused before anything runs, and of commands just within the limits.

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::rig::{CheckFinding, PLACE, Rig, Suite, ensure, seen, shown};
use crate::backends::{
    MAX_COMMAND_BYTES, MAX_STDIN_BYTES, MAX_TIMEOUT, MAX_VARIABLES, MIN_TIMEOUT, ShellCommand, ShellError, unwatched,
};

/// A command that makes a shell that answers from a list unavailable.
pub(super) const BROKEN: &str = "foldspace-broken-shell";

pub(super) async fn check(suite: &mut Suite<Rig>) {
    suite.check("refuses-long", "an argument above the limit of Linux is an error", long).await;
    suite.check("refuses-no-command", "a command without a program is an error", no_command).await;
    suite.check("refuses-nul", "a NUL character is an error", nul).await;
    suite.check("refuses-timeouts", "a time-out outside of the limits is an error", timeouts).await;
    suite
        .check("refuses-variables", "too many or too long variables, and names with `=`, are an error", variables)
        .await;
    suite.check("refuses-stdin", "too much standard input is an error", stdin).await;
    suite.check("refused-not-run", "no part of a refused command is run", not_run).await;
    suite.check("just-allowed", "a command just within the limits is run", just_allowed).await;
    suite.check("unavailable", "a failing shell reports that it is unavailable", unavailable).await;
}

fn named(what: &str) -> String {
    format!("a command with {what}")
}

async fn long(rig: Rig) -> CheckFinding {
    let over = MAX_COMMAND_BYTES + 1;
    rig.invalid(&named("a long text"), ShellCommand::shell("x".repeat(over))).await?;
    rig.invalid(&named("a long argument"), ShellCommand::args(["true".to_owned(), "x".repeat(over)])).await
}

async fn no_command(rig: Rig) -> CheckFinding {
    rig.invalid("an empty text", ShellCommand::shell("")).await?;
    rig.invalid("a blank text", ShellCommand::shell(" \t\n")).await?;
    rig.invalid("an empty list", ShellCommand::args(Vec::<String>::new())).await?;
    rig.invalid("an empty program", ShellCommand::args(["", "x"])).await?;
    rig.invalid("a script without an interpreter", ShellCommand::script("", "echo no")).await
}

async fn nul(rig: Rig) -> CheckFinding {
    rig.invalid("a text with NUL", ShellCommand::shell("true \0")).await?;
    rig.invalid("a list with NUL", ShellCommand::args(["true", "a\0b"])).await
}

async fn timeouts(rig: Rig) -> CheckFinding {
    for timeout in
        [Duration::ZERO, MIN_TIMEOUT - Duration::from_millis(1), MAX_TIMEOUT + Duration::from_millis(1), Duration::MAX]
    {
        let command = ShellCommand { timeout: Some(timeout), ..ShellCommand::shell("true") };
        rig.invalid(&named(&format!("{timeout:?}")), command).await?;
    }
    Ok(())
}

fn with_variable(name: &str, value: &str) -> ShellCommand {
    let mut command = ShellCommand::shell("true");
    command.env.insert(name.to_owned(), value.to_owned());
    command
}

async fn variables(rig: Rig) -> CheckFinding {
    let mut many = ShellCommand::shell("true");
    many.env = (0..=MAX_VARIABLES).map(|at| (format!("V{at}"), String::new())).collect();
    rig.invalid(&named("too many variables"), many).await?;
    let long = "x".repeat(MAX_COMMAND_BYTES - 1);
    for (name, value) in [("A=B", "x"), ("", "x"), ("=", "x"), ("A\0", "x"), ("A", "x\0"), ("A", &long)] {
        rig.invalid(&named(&format!("the variable {name:?}")), with_variable(name, value)).await?;
    }
    Ok(())
}

async fn stdin(rig: Rig) -> CheckFinding {
    let stdin = Bytes::from(vec![b'x'; MAX_STDIN_BYTES + 1]);
    rig.invalid(&named("much standard input"), ShellCommand { stdin, ..ShellCommand::shell("true") }).await
}

async fn not_run(rig: Rig) -> CheckFinding {
    let directory = rig.directory("refused").await?;
    let mut command = ShellCommand { cwd: directory, ..ShellCommand::shell("touch ran") };
    command.env.insert("A=B".to_owned(), String::new());
    rig.invalid("a bad variable", command.clone()).await?;
    command.env.clear();
    command.timeout = Some(Duration::ZERO);
    rig.invalid("a bad time-out", command).await?;
    let left = rig.sh(&format!("ls {PLACE}/refused")).await?;
    ensure(left.is_empty(), || format!("it has created {left:?}"))
}

pub(super) fn longest() -> String {
    let room = MAX_COMMAND_BYTES - "echo ".len();
    format!("echo {}", "\u{e4}".repeat(room / 2))
}

async fn just_allowed(rig: Rig) -> CheckFinding {
    for timeout in [None, Some(MAX_TIMEOUT)] {
        let result = rig.run(ShellCommand { timeout, ..ShellCommand::shell(longest()) }).await?;
        ensure(result.success(), || format!("the longest text ended with {}", shown(&result)))?;
    }
    // A time-out is a result, not an error.
    let command = ShellCommand { timeout: Some(MIN_TIMEOUT), ..ShellCommand::shell(longest()) };
    rig.run(command).await.map(drop)
}

async fn unavailable(rig: Rig) -> CheckFinding {
    rig.canned()?;
    let answer = rig.shell().execute(ShellCommand::shell(BROKEN), unwatched(), CancellationToken::new()).await;
    match answer {
        Err(ShellError::Unavailable { reason, .. }) if !reason.is_empty() => Ok(()),
        Err(error) => seen(format!("another error: {error}")),
        Ok(result) => seen(shown(&result)),
    }
}
