//! Checks that all processes of a command end with it.
//!
//! A survivor keeps appending lines to a file of the workspace, and the command waits for the first line before it
//! ends. A correct shell passes these checks however slow the machine is.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::endings::SOON;
use super::output::cancelling;
use super::rig::{CheckFinding, Fault, LONG, PLACE, Rig, Suite, ensure, seen, shown};
use crate::backends::{OutputWatch, ShellCommand};
use crate::engine::path::EntryPath;

/// The time without a sign of life that counts as an end.
const SILENCE: Duration = Duration::from_millis(1500);
const LOOKS: usize = 10;
/// Appends signs of life. It ends when the suite's directory is removed.
const LIVING: &str = "trap '' HUP; while echo alive >> signs; do sleep 0.05; done 2>/dev/null";
const SEEN: &str = "while ! test -s signs; do sleep 0.01; done";

pub(super) async fn check(suite: &mut Suite<Rig>) {
    suite.check("survivors-none", "a background process ends with its command", background).await;
    suite.check("survivors-output", "a background process with an open output delays no result", held).await;
    suite.check("survivors-setsid", "a process in its own session ends with its command", setsid).await;
    suite
        .check("survivors-timeout", "a time-out ends the whole group, even processes that ignore SIGTERM", timeout)
        .await;
    suite.check("survivors-timeout-setsid", "a time-out ends a process in its own session", timeout_setsid).await;
    suite.check("survivors-cancelled", "cancelling ends background processes", cancelled).await;
    suite.check("dropped", "a dropped command is ended", dropped).await;
}

/// Returns a script that starts a background program with its output closed, or the shell would wait for it.
fn in_background() -> String {
    format!("({LIVING}) >/dev/null 2>&1 </dev/null & {SEEN}")
}

/// A program without a parent, in its own session.
async fn escaped(rig: &Rig) -> CheckFinding<String> {
    let program = format!("({}) &", LIVING.replace('\'', "\""));
    let find = "command -v setsid || command -v python3 || true";
    let escaping = match rig.sh(find).await?.trim() {
        "" => return Err(Fault::NotApplicable("neither `setsid` nor `python3` was found".to_owned())),
        found if found.ends_with("setsid") => "setsid sh -c",
        _ => "python3 -c 'import os, sys; os.setsid(); os.execvp(\"sh\", [\"sh\", \"-c\", sys.argv[1]])'",
    };
    Ok(format!("({escaping} '{program}' >/dev/null 2>&1 </dev/null &); {SEEN}"))
}

async fn signs(rig: &Rig, name: &str) -> CheckFinding<u64> {
    let text = rig.sh(&format!("cat {PLACE}/{name}/signs 2>/dev/null | wc -c")).await?;
    text.trim().parse().or_else(|_| seen(format!("signs of life can't be counted: {text:?}")))
}

async fn is_silent(rig: &Rig, name: &str) -> CheckFinding<bool> {
    let before = signs(rig, name).await?;
    tokio::time::sleep(SILENCE).await;
    Ok(signs(rig, name).await? == before)
}

async fn ensure_silent(rig: &Rig, name: &str) -> CheckFinding {
    ensure(is_silent(rig, name).await?, || "a process survives and writes files".to_owned())
}

fn at(directory: EntryPath, text: String) -> ShellCommand {
    ShellCommand { cwd: directory, timeout: Some(LONG), ..ShellCommand::shell(text) }
}

async fn background(rig: Rig) -> CheckFinding {
    let directory = rig.directory("background").await?;
    let result = rig.run(at(directory, format!("{}; echo done", in_background()))).await?;
    super::rig::ensure_printed(&result, "done\n", "")?;
    ensure_silent(&rig, "background").await
}

async fn held(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let result = rig.run(ShellCommand::shell("sleep 600 & echo done")).await?;
    super::rig::ensure_printed(&result, "done\n", "")
}

async fn setsid(rig: Rig) -> CheckFinding {
    let directory = rig.directory("setsid").await?;
    let result = rig.run(at(directory, format!("{}; echo done", escaped(&rig).await?))).await?;
    super::rig::ensure_printed(&result, "done\n", "")?;
    ensure_silent(&rig, "setsid").await
}

async fn timeout(rig: Rig) -> CheckFinding {
    ensure_ended_in_time(&rig, "timeout", in_background()).await
}

async fn timeout_setsid(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let escaped = escaped(&rig).await?;
    ensure_ended_in_time(&rig, "timeout-setsid", escaped).await
}

async fn ensure_ended_in_time(rig: &Rig, name: &str, survivor: String) -> CheckFinding {
    let directory = rig.directory(name).await?;
    // The survivor inherits the ignored signal.
    let mut command = at(directory, format!("trap '' TERM; {survivor}; while :; do sleep 0.05; done"));
    command.timeout = Some(2 * SOON);
    let result = rig.run(command).await?;
    ensure(result.timed_out, || format!("{} instead of a time-out", shown(&result)))?;
    ensure_silent(rig, name).await
}

async fn cancelled(rig: Rig) -> CheckFinding {
    let directory = rig.directory("cancelled").await?;
    let cancel = CancellationToken::new();
    let command = at(directory, format!("{}; echo begun; sleep 60", in_background()));
    let result = rig.run_watched(command, cancelling(&cancel), cancel).await?;
    ensure(result.cancelled, || shown(&result))?;
    ensure_silent(&rig, "cancelled").await
}

async fn dropped(rig: Rig) -> CheckFinding {
    let directory = rig.directory("dropped").await?;
    let begun = Arc::new(Notify::new());
    let announced = Arc::clone(&begun);
    let watch: OutputWatch = Arc::new(move |_, _| announced.notify_one());
    let command = at(directory, format!("{}; echo begun; sleep 60", in_background()));
    let running = rig.shell().execute(command, watch, CancellationToken::new());
    tokio::select! {
        ended = running => return seen(format!("it ended before it was dropped: {ended:?}")),
        () = begun.notified() => {}
    }
    for _ in 0..LOOKS {
        if is_silent(&rig, "dropped").await? {
            return Ok(());
        }
    }
    seen("it survives and writes files")
}
