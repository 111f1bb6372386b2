//! Checks of the output of commands: both streams, any bytes, bounded, and live.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use super::rig::{CheckFinding, Rig, Suite, ensure, ensure_printed, shown};
use crate::backends::{OutputStream, OutputWatch, ShellCommand};
use crate::engine::lock::lock;

pub(super) const BOTH: &str = "echo out; echo err >&2";
/// A command that prints this many bytes, between `BEGIN` and `END`.
pub(super) const LONG: (&str, usize) = ("printf BEGIN; head -c 299992 /dev/zero | tr '\\0' x; printf END", 300_000);
pub(super) const BINARY: (&str, &str) = ("printf '\\177ELF\\000\\001\\002\\000'", "\x7fELF\0\x01\x02\0");
const KEEP: usize = 1000;

pub(super) async fn check(suite: &mut Suite<Rig>) {
    suite.check("streams", "standard output and standard error are separate", streams).await;
    suite.check("output-bounded", "both ends of a long output are retained, and all bytes counted", bounded).await;
    suite.check("output-whole", "an output within the limit is retained in full", whole).await;
    suite.check("output-binary", "binary output arrives unchanged, and is detected", binary).await;
    suite.check("output-invalid", "invalid UTF-8 arrives unchanged, and is replaced in the text", invalid).await;
    suite
        .check("output-disregarded", "nothing is retained, counted or shown with `capture_output = false`", disregarded)
        .await;
    suite.check("output-watched", "the output is passed to the watcher, stream by stream", watched).await;
    suite.check("output-live", "the output is passed on before the command ends", live).await;
}

async fn streams(rig: Rig) -> CheckFinding {
    ensure_printed(&rig.run(ShellCommand::shell(BOTH)).await?, "out\n", "err\n")
}

async fn bounded(rig: Rig) -> CheckFinding {
    let command = ShellCommand { keep: KEEP, ..ShellCommand::shell(LONG.0) };
    let result = rig.run(command).await?;
    let stdout = &result.stdout;
    ensure(stdout.bytes == LONG.1 as u64, || format!("{} of {} bytes are counted", stdout.bytes, LONG.1))?;
    ensure(stdout.kept.len() <= KEEP, || format!("{} bytes are retained, not {KEEP}", stdout.kept.len()))?;
    ensure(result.success() && result.truncated(), || "the result is not marked as cut".to_owned())?;
    let whole_in_one_piece = stdout.kept.get(..stdout.cut_at).zip(stdout.kept.get(stdout.cut_at..));
    let both_ends = whole_in_one_piece.is_some_and(|(head, tail)| head.starts_with(b"BEGIN") && tail.ends_with(b"END"));
    ensure(both_ends, || format!("not both ends are retained, cut at {}: {:?}", stdout.cut_at, stdout.text(100).0))?;
    let (text, cut) = stdout.text(500);
    ensure(cut && text.len() <= 500 && text.contains("left out"), || format!("as text it is {text:?}"))
}

async fn whole(rig: Rig) -> CheckFinding {
    let command = ShellCommand { keep: LONG.1, ..ShellCommand::shell(LONG.0) };
    let result = rig.run(command).await?;
    let is_whole = result.stdout.kept.len() == LONG.1 && !result.truncated();
    ensure(is_whole, || format!("{} of {} bytes are retained", result.stdout.kept.len(), LONG.1))?;
    let middle = result.stdout.kept.get(5..LONG.1 - 3).unwrap_or_default();
    ensure(middle.iter().all(|byte| *byte == b'x'), || "the middle differs from the output".to_owned())
}

async fn binary(rig: Rig) -> CheckFinding {
    let result = rig.run(ShellCommand::shell(BINARY.0)).await?;
    ensure_printed(&result, BINARY.1, "")?;
    let (text, cut) = result.stdout.text(100);
    ensure(cut && result.stdout.is_binary() && text.contains("binary"), || format!("as text it is {text:?}"))
}

async fn invalid(rig: Rig) -> CheckFinding {
    rig.processes()?;
    let result = rig.run(ShellCommand::shell("printf 'before \\377 after \\303\\244'")).await?;
    ensure(result.stdout.kept == b"before \xff after \xc3\xa4".as_slice(), || shown(&result))?;
    let text = result.stdout.text(100).0;
    ensure(text == "before \u{fffd} after \u{e4}", || format!("as text it is {text:?}"))
}

async fn disregarded(rig: Rig) -> CheckFinding {
    let command = ShellCommand { capture_output: false, ..ShellCommand::shell(BOTH) };
    let (watch, seen) = watching();
    let result = rig.run_watched(command, watch, CancellationToken::new()).await?;
    let nothing = result.stdout.kept.is_empty() && result.stderr.kept.is_empty();
    let uncounted = result.stdout.bytes == 0 && result.stderr.bytes == 0 && !result.truncated();
    ensure(result.success() && nothing && uncounted, || shown(&result))?;
    let seen = lock(&seen);
    ensure(seen.stdout.is_empty() && seen.stderr.is_empty(), || "the watcher received output".to_owned())
}

#[derive(Default)]
struct WatchedOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

fn watching() -> (OutputWatch, Arc<Mutex<WatchedOutput>>) {
    let seen = Arc::new(Mutex::new(WatchedOutput::default()));
    let noted = Arc::clone(&seen);
    let watch: OutputWatch = Arc::new(move |stream, bytes| {
        let mut seen = lock(&noted);
        match stream {
            OutputStream::Stdout => seen.stdout.extend_from_slice(bytes),
            OutputStream::Stderr => seen.stderr.extend_from_slice(bytes),
        }
    });
    (watch, seen)
}

async fn watched(rig: Rig) -> CheckFinding {
    let (watch, seen) = watching();
    rig.run_watched(ShellCommand::shell(BOTH), watch, CancellationToken::new()).await?;
    let seen = lock(&seen);
    let show = String::from_utf8_lossy;
    ensure(seen.stdout == b"out\n" && seen.stderr == b"err\n", || {
        format!("stdout {:?}, stderr {:?}", show(&seen.stdout), show(&seen.stderr))
    })
}

pub(super) fn cancelling(cancel: &CancellationToken) -> OutputWatch {
    let cancel = cancel.clone();
    Arc::new(move |_, bytes| {
        if !bytes.is_empty() {
            cancel.cancel();
        }
    })
}

async fn live(rig: Rig) -> CheckFinding {
    rig.processes()?;
    // It ends early only if the watcher has seen its output.
    let cancel = CancellationToken::new();
    let mut command = ShellCommand::shell("echo first; sleep 60");
    command.timeout = Some(std::time::Duration::from_secs(30));
    let result = rig.run_watched(command, cancelling(&cancel), cancel).await?;
    ensure(result.cancelled && !result.timed_out, || format!("no output was seen until it ended: {}", shown(&result)))
}
