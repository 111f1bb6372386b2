//! Checks of the environment of commands: variables, standard input, working directory.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::rig::{CheckFinding, PLACE, Rig, Suite, ensure, ensure_printed, path, seen, shown};
use crate::backends::{EnvMode, MAX_STDIN_BYTES, MAX_VARIABLES, ShellCommand, ShellEnv};
use crate::engine::path::EntryPath;

pub(super) async fn check(suite: &mut Suite<Rig>) {
    suite.check("environment", "`env` returns PATH, the directory and the shell of commands", told).await;
    suite.check("variables-extend", "given variables are added to the backend's, and take precedence", extend).await;
    suite.check("variables-replace", "with `replace` commands get only the given variables and PATH", replace).await;
    suite.check("variables-any-text", "a variable's value can be any text", any_text).await;
    suite.check("variables-many", "the maximum number of variables arrives", many).await;
    suite.check("stdin", "standard input arrives unchanged, and then ends", stdin).await;
    suite.check("stdin-nothing", "by default, standard input is empty", stdin_nothing).await;
    suite.check("stdin-large", "the maximum standard input arrives", stdin_large).await;
    suite.check("stdin-unread", "a program need not read its standard input", stdin_unread).await;
    suite.check("cwd", "a command starts in the given directory", cwd).await;
    suite.check("cwd-missing", "a missing directory is an error", cwd_missing).await;
    suite.check("cwd-through-links", "no link leads a command's directory out of the workspace", cwd_links).await;
}

async fn env_of(rig: &Rig) -> CheckFinding<ShellEnv> {
    rig.shell().env().await.or_else(|error| seen(format!("an error: {error}")))
}

async fn told(rig: Rig) -> CheckFinding {
    let env = env_of(&rig).await?;
    let is_whole = env.cwd.starts_with('/') && env.shell.starts_with('/') && env.variables.contains_key("PATH");
    ensure(is_whole, || format!("{env:?}"))?;
    if rig.processes().is_ok() {
        let found = rig.sh("pwd -P; printf '%s' \"$PATH\"").await?;
        let path = env.variables.get("PATH").cloned().unwrap_or_default();
        ensure(found == format!("{}\n{path}", env.cwd), || format!("{env:?}, but commands find {found:?}"))?;
    }
    Ok(())
}

fn with(command: ShellCommand, variables: &[(&str, &str)], env_mode: EnvMode) -> ShellCommand {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ShellCommand { env: variables.iter().map(own).collect(), env_mode, ..command }
}

/// Returns the variables that the program `env` prints, so without variables that only the shell knows.
async fn variables(rig: &Rig, given: &[(&str, &str)], mode: EnvMode) -> CheckFinding<BTreeMap<String, String>> {
    let result = rig.run(with(ShellCommand::args(["env"]), given, mode)).await?;
    ensure(result.success(), || format!("`env` ended with {}", shown(&result)))?;
    let text = String::from_utf8_lossy(&result.stdout.kept).into_owned();
    Ok(text.lines().filter_map(|line| line.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
}

async fn extend(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let before = variables(&rig, &[], EnvMode::Extend).await?;
    let given = [("FOLDSPACE_OWN", "own"), ("LANG", "xx_XX")];
    let after = variables(&rig, &given, EnvMode::Extend).await?;
    let mut expected = before;
    expected.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
    ensure(after == expected, || format!("{after:?} instead of {expected:?}"))
}

async fn replace(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let found = variables(&rig, &[("FOLDSPACE_OWN", "own")], EnvMode::Replace).await?;
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let is_so = names == ["FOLDSPACE_OWN", "PATH"] && found.get("FOLDSPACE_OWN").is_some_and(|value| value == "own");
    ensure(is_so, || format!("{found:?}"))?;
    let own = with(ShellCommand::shell("echo $PATH"), &[("PATH", "/own:/bin")], EnvMode::Replace);
    ensure_printed(&rig.run(own).await?, "/own:/bin\n", "")
}

async fn any_text(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let value = "two words\n'\"$HOME\\ = \u{e4}\u{1f980}";
    let command = with(ShellCommand::args(["printenv", "FOLDSPACE_OWN"]), &[("FOLDSPACE_OWN", value)], EnvMode::Extend);
    ensure_printed(&rig.run(command).await?, &format!("{value}\n"), "")
}

async fn many(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let names: BTreeSet<String> = (0..MAX_VARIABLES).map(|at| format!("FOLDSPACE_{at}")).collect();
    let mut command = ShellCommand::args(["env"]);
    command.env = names.iter().map(|name| (name.clone(), "x".to_owned())).collect();
    let result = rig.run(command).await?;
    let text = String::from_utf8_lossy(&result.stdout.kept).into_owned();
    let arrived = text.lines().filter(|line| names.iter().any(|name| *line == format!("{name}=x"))).count();
    ensure(arrived == MAX_VARIABLES, || format!("{arrived} of {MAX_VARIABLES} arrived"))
}

async fn stdin(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let given: Vec<u8> = (0..=255).collect();
    let mut command = ShellCommand::args(["cat"]);
    command.stdin = Bytes::from(given.clone());
    let result = rig.run(command).await?;
    ensure(result.success() && result.stdout.kept == given, || format!("`cat` ended with {}", shown(&result)))
}

async fn stdin_nothing(rig: Rig) -> CheckFinding {
    rig.processes()?;
    ensure_printed(&rig.run(ShellCommand::args(["cat"])).await?, "", "")
}

async fn stdin_large(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let given = Bytes::from("0123456789abcde\n".repeat(MAX_STDIN_BYTES / 16));
    // A late reader, because a pipe may not hold all of it.
    let mut command = ShellCommand::shell("sleep 0.2; cat");
    command.stdin = given.clone();
    let result = rig.run(command).await?;
    ensure(result.success() && result.stdout.kept == given, || {
        format!("{} of {} bytes, {}", result.stdout.bytes, given.len(), shown(&result))
    })
}

async fn stdin_unread(rig: Rig) -> CheckFinding {
    rig.processes()?;
    for (text, code) in [("true", 0), ("exec <&-; echo closed >&2; exit 3", 3)] {
        let mut command = ShellCommand::shell(text);
        command.stdin = Bytes::from(vec![b'x'; MAX_STDIN_BYTES]);
        let result = rig.run(command).await?;
        let stderr: &[u8] = if code == 0 { b"" } else { b"closed\n" };
        let is_so = result.exit_code == code && result.stderr.kept == stderr && result.stdout.bytes == 0;
        ensure(is_so, || format!("`{text}` ended with {}", shown(&result)))?;
    }
    Ok(())
}

async fn cwd(rig: Rig) -> CheckFinding {
    let directory = rig.directory("cwd").await?;
    let root = rig.sh("pwd -P").await?;
    let expected = format!("{}/{PLACE}/cwd\n", root.trim_end().trim_end_matches('/'));
    let mut command = ShellCommand::args(["pwd", "-P"]);
    command.cwd = directory.clone();
    let result = rig.run(command).await?;
    ensure_printed(&result, &expected, "")?;
    ensure(result.cwd == directory, || format!("the result has {}", result.cwd.rooted()))
}

fn at(directory: EntryPath) -> ShellCommand {
    ShellCommand { cwd: directory, ..ShellCommand::shell("pwd") }
}

async fn cwd_missing(rig: Rig) -> CheckFinding {
    rig.directory("cwd-missing").await?;
    rig.sh(&format!("echo file > {PLACE}/cwd-missing/file")).await?;
    for name in ["nothing", "nothing/below", "file", "file/below"] {
        let directory = path(&format!("{PLACE}/cwd-missing/{name}"))?;
        rig.invalid(name, at(directory)).await?;
    }
    Ok(())
}

async fn cwd_links(rig: Rig) -> CheckFinding {
    rig.directory("cwd-links").await?;
    let links = "mkdir inside && ln -s / slash && ln -s /tmp out && ln -s ../../.. up && ln -s inside/../../../.. round \
                 && ln -s slash twice";
    rig.sh(&format!("cd {PLACE}/cwd-links && {links}")).await?;
    for name in ["slash", "slash/tmp", "out", "up", "round", "twice", "twice/usr"] {
        let directory = path(&format!("{PLACE}/cwd-links/{name}"))?;
        rig.invalid(&format!("the link {name}"), at(directory)).await?;
    }
    Ok(())
}
