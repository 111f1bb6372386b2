//! Checks of ending commands: by time-out, cancellation and drop.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::output::cancelling;
use super::rig::{CheckFinding, Rig, Suite, ensure, shown};
use crate::backends::{MIN_TIMEOUT, ShellCommand, ShellResult, unwatched};

pub(super) const SLOW: (&str, &str) = ("echo begun; sleep 60", "begun\n");
/// Long enough for a program to start on a slow machine, and short enough to wait for.
pub(super) const SOON: Duration = Duration::from_secs(2);
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

pub(super) async fn check(suite: &mut Suite<Rig>) {
    suite.check("timeout", "a time-out is a result with the output so far", timeout).await;
    suite.check("timeout-shortest", "a command with the minimum time limit is ended", shortest).await;
    suite.check("timeout-polite", "a command first gets SIGTERM, and its output after that is retained", polite).await;
    suite.check("timeout-stubborn", "a command that ignores SIGTERM is killed", stubborn).await;
    suite.check("cancelled", "a cancelled command returns a result with the output so far", cancelled).await;
    suite.check("cancelled-before", "a command that is cancelled before it runs ends", before).await;
    suite.check("afterwards", "a shell continues to work after a command was ended", afterwards).await;
}

fn ensure_timed_out(result: &ShellResult, stdout: &str) -> CheckFinding {
    let is_so = result.timed_out && !result.cancelled && !result.success();
    let by_signal = matches!(result.signal, Some(SIGKILL | SIGTERM));
    ensure(is_so && by_signal, || format!("{} instead of a time-out by signal 9 or 15", shown(result)))?;
    ensure(result.stdout.kept == stdout.as_bytes(), || format!("{} instead of stdout {stdout:?}", shown(result)))
}

fn slow(timeout: Duration) -> ShellCommand {
    ShellCommand { timeout: Some(timeout), ..ShellCommand::shell(SLOW.0) }
}

async fn timeout(rig: Rig) -> CheckFinding {
    ensure_timed_out(&rig.run(slow(SOON)).await?, SLOW.1)
}

async fn shortest(rig: Rig) -> CheckFinding {
    let result = rig.run(slow(MIN_TIMEOUT)).await?;
    ensure(result.timed_out && !result.success(), || shown(&result))
}

async fn polite(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let text = "trap 'echo asked; exit 0' TERM; echo begun; while :; do sleep 0.05; done";
    let result = rig.run(ShellCommand { timeout: Some(SOON), ..ShellCommand::shell(text) }).await?;
    // Exit code 0 does not turn a time-out into a success.
    ensure(result.timed_out && !result.success(), || format!("{} instead of a time-out", shown(&result)))?;
    ensure(result.stdout.kept == b"begun\nasked\n".as_slice(), || shown(&result))
}

async fn stubborn(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let text = "trap '' TERM; echo begun; while :; do sleep 0.05; done";
    let result = rig.run(ShellCommand { timeout: Some(SOON), ..ShellCommand::shell(text) }).await?;
    ensure_timed_out(&result, "begun\n")?;
    ensure(result.signal == Some(SIGKILL), || format!("{} instead of signal 9", shown(&result)))
}

async fn cancelled(rig: Rig) -> CheckFinding {
    let cancel = CancellationToken::new();
    let result = match rig.processes() {
        Ok(()) => rig.run_watched(slow(super::rig::LONG), cancelling(&cancel), cancel).await?,
        Err(_) => {
            cancel.cancel();
            rig.run_watched(slow(super::rig::LONG), unwatched(), cancel).await?
        }
    };
    let is_so = result.cancelled && !result.timed_out && !result.success();
    ensure(is_so, || format!("{} instead of a cancelled result", shown(&result)))?;
    ensure(result.stdout.kept == SLOW.1.as_bytes(), || format!("{} instead of {:?}", shown(&result), SLOW.1))
}

async fn before(rig: Rig) -> CheckFinding {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let result = rig.run_watched(slow(super::rig::LONG), unwatched(), cancel).await?;
    let has_run = rig.processes().is_ok() && !result.stdout.kept.is_empty();
    ensure(result.cancelled && !result.success() && !has_run, || shown(&result))
}

async fn afterwards(rig: Rig) -> CheckFinding {
    rig.run(slow(MIN_TIMEOUT)).await?;
    let result = rig.run(ShellCommand::shell(super::output::BOTH)).await?;
    super::rig::ensure_printed(&result, "out\n", "err\n")
}
