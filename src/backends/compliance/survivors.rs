//! Checks that nothing that a command started lives on when it has ended.
//!
//! A survivor writes a line every moment to a file of the workspace, and is waited for before the command ends. A shell
//! that keeps its promise can't fail these checks, however slow the machine is.

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
/// Gives signs of life. It ends by itself when the suite's directory is gone.
const LIVING: &str = "trap '' HUP; while echo alive >> signs; do sleep 0.05; done 2>/dev/null";
const SEEN: &str = "while ! test -s signs; do sleep 0.01; done";

pub(super) async fn check(suite: &mut Suite<Rig>) {
    suite.check("survivors-none", "what a command left in the background ends with it", background).await;
    suite.check("survivors-output", "a background program that holds its output open delays no result", held).await;
    suite.check("survivors-setsid", "nor does anything live on in a session of its own", setsid).await;
    suite.check("survivors-timeout", "a time-out ends the whole group, stubborn programs too", timeout).await;
    suite.check("survivors-timeout-setsid", "and what is in a session of its own", timeout_setsid).await;
    suite.check("survivors-cancelled", "so does cancelling", cancelled).await;
    suite.check("dropped", "a dropped command is ended", dropped).await;
}

/// Gives a text that starts a program in the background. It closes its output, which would be waited for.
fn in_background() -> String {
    format!("({LIVING}) >/dev/null 2>&1 </dev/null & {SEEN}")
}

/// A program whose parent is gone and whose session is its own.
async fn escaped(rig: &Rig) -> CheckFinding<String> {
    let program = format!("({}) &", LIVING.replace('\'', "\""));
    let find = "command -v setsid || command -v python3 || true";
    let escaping = match rig.sh(find).await?.trim() {
        "" => return Err(Fault::NotApplicable("there is neither `setsid` nor `python3`".to_owned())),
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
    ensure(is_silent(rig, name).await?, || "something lives on and writes files".to_owned())
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
    // What is to survive ignores the signal, too: so it inherits it.
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
    seen("it lives on and writes files")
}
