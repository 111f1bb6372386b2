use std::path::Path;
use std::time::Duration;

use foldspace::store::StoreOwner;
use tokio::time::Instant;

use super::{Exit, Failure, Globals, Out, open, output, owner, text};

/// Ends the owner of the data
///
/// Calls in flight get ten seconds, or the time of `serve --grace`; then they are cancelled and recorded as
/// interrupted. The next command that acts starts another owner.
#[derive(Debug, clap::Args)]
pub(super) struct Stop {}

/// The time limit for an owner to end, beyond the grace period for its calls.
const OWNER_STOP_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
/// The time between two attempts to replace an owner.
const AGAIN: Duration = Duration::from_millis(100);

impl Stop {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let directory = open::existing(globals)?;
        let process = super::block_on(stop(&directory))??;
        out.show(&process, |out| match process {
            Some(process) => out.line(format!("process {process} has ended")),
            None => out.line("no owner is running"),
        })
    }
}

/// Ends the running owner, and returns its process id.
pub(super) async fn stop(directory: &Path) -> Result<Option<u32>, Failure> {
    let until = Instant::now() + OWNER_STOP_LIMIT;
    let mut stopped = None;
    loop {
        if stopped.is_none()
            && let Some((client, status)) = owner::running(directory).await?
        {
            client.post::<()>("/v1/server/stop", &serde_json::json!({})).await?;
            stopped = Some(status.process);
        }
        // An owner that is starting or shutting down holds the store's lock, but answers no requests.
        let is_left = |owner: &StoreOwner| stopped.map_or(is_background(owner), |process| owner.process == process);
        let Some(owner) = StoreOwner::of(directory)?.filter(is_left) else { return Ok(stopped) };
        if Instant::now() >= until {
            return Err(Failure::new(Exit::Busy, format!("process {} is still ending", owner.process)));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns true for an owner that the client of another process started.
fn is_background(owner: &StoreOwner) -> bool {
    owner.command.split(' ').any(|word| word == "--background")
}

/// Ends an unused background owner, so that this process can open the store, and prints a note. It never ends a server
/// that was started by a person or a service manager, because that would be an outage.
pub(super) async fn make_way(directory: &Path) -> Result<(), Failure> {
    if let Some(owner) = StoreOwner::of(directory)?.filter(|owner| !is_background(owner)) {
        let what = "stop it, or wait until it ends, and run this again";
        return Err(
            Failure::new(Exit::Busy, format!("{owner} has the store, and this command needs it alone")).with_hint(what)
        );
    }
    if let Some(process) = end_unused(directory).await? {
        output::note(&format!("ended the idle owner, process {process}; `foldspace ui` opens its page again"));
    }
    Ok(())
}

async fn end_unused(directory: &Path) -> Result<Option<u32>, Failure> {
    let Some((_, status)) = owner::running(directory).await? else { return Ok(None) };
    if status.clients.is_empty() && status.calls.is_empty() {
        return stop(directory).await;
    }
    let (process, clients) = (status.process, text::count(status.clients.len() as u64, "client"));
    let calls = text::count(status.calls.len() as u64, "call");
    Err(Failure::new(Exit::Busy, format!("process {process} has the store, with {clients} and {calls} in flight"))
        .with_hint("`foldspace status` lists them, and `foldspace stop` ends the process"))
}

/// Ends an unused owner in the background, so that this process becomes the owner. A client that has just ended may
/// still count for a moment.
pub(super) async fn take_turn(directory: &Path) -> Result<(), Failure> {
    let until = Instant::now() + open::STORE_LOCK_WAIT;
    while StoreOwner::of(directory)?.as_ref().is_some_and(is_background) {
        match end_unused(directory).await {
            Err(failure) if Instant::now() >= until => return Err(failure),
            Err(_) => tokio::time::sleep(AGAIN).await,
            Ok(_) => return Ok(()),
        }
    }
    Ok(())
}
