//! A store that several hosts share; the data directory is a copy of it.

use std::io::{self, Write};
use std::path::Path;

use foldspace::backends::Finding;

use super::{Failure, Globals, text};

const VARIABLE: &str = "FOLDSPACE_STORE";
#[cfg(feature = "nats")]
const HOST_VARIABLE: &str = "FOLDSPACE_HOST";
/// The file in the data directory with the store's address.
const NOTE: &str = "store";
const NOTE_MAX: u64 = 4096;

/// This host of a shared store
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct HostArgs {
    /// Names this host in a shared store [default: FOLDSPACE_HOST, else the machine's name]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    host: Option<String>,
    /// The URL of this host for other hosts, which forward calls for its sessions; all need the same token
    #[arg(long, value_name = "URL", hide_short_help = true)]
    at: Option<String>,
    /// Considers a host dead after SECS of silence [default: 2]
    #[arg(long, value_name = "SECS", hide_short_help = true, value_parser = clap::value_parser!(u64).range(1..=300))]
    lease: Option<u64>,
}

impl HostArgs {
    /// Returns the host name in the URL that other hosts use for this one.
    #[cfg(feature = "mcp")]
    pub(super) fn reached_as(&self) -> Option<String> {
        let authority = self.at.as_ref()?.strip_prefix("http://")?;
        Some(authority.rsplit_once(':').map_or(authority, |(name, _)| name).trim_end_matches('/').to_owned())
    }
}

/// Returns the address of the shared store that a directory is a copy of; `None` for a local store.
pub(super) fn address(directory: &Path) -> Result<Option<String>, Failure> {
    let path = directory.join(NOTE);
    let read = read(&path).map_err(|error| Failure::io("read", path.display(), &error))?;
    Ok(read.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
}

#[expect(clippy::disallowed_methods, reason = "the note is a file of the data directory")]
fn read(path: &Path) -> io::Result<Option<String>> {
    use std::io::Read;
    let mut text = String::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(NOTE_MAX).read_to_string(&mut text).map(|_| Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the address of the requested store into a directory that has no store yet.
pub(super) fn note(globals: &Globals, directory: &Path) -> Result<(), Failure> {
    let said = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let Some(wanted) = globals.store.clone().or(said) else { return Ok(()) };
    let there = address(directory)?;
    if there.as_deref() == Some(&wanted) {
        return Ok(());
    }
    let shown = text::one_line(&directory.display().to_string(), 300);
    let other = "use another directory with --data or FOLDSPACE_DATA";
    if let Some(there) = there {
        let (there, wanted) = (plain(&there)?, plain(&wanted)?);
        return Err(Failure::usage(format!("{shown} is a copy of the store {there}, not of {wanted}")).with_hint(other));
    }
    plain(&wanted)?;
    if directory.join("journal").is_dir() {
        return Err(Failure::usage(format!("{shown} already has a local store: it can't be a copy of a shared one"))
            .with_hint(other));
    }
    write(directory, &wanted).map_err(|error| Failure::io("write", directory.join(NOTE).display(), &error))
}

/// Only this user may read it: an address may have a password.
fn write(directory: &Path, address: &str) -> io::Result<()> {
    super::files::make_private(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    writeln!(file, "{address}")?;
    file.persist(directory.join(NOTE))?;
    Ok(())
}

/// Returns an address without its password. Fails if the address is invalid.
#[cfg(feature = "nats")]
fn plain(address: &str) -> Result<String, Failure> {
    let read: Result<foldspace::store::NatsAddress, _> = address.parse();
    Ok(read.map_err(|error| Failure::usage(error.to_string()))?.to_string())
}

#[cfg(not(feature = "nats"))]
fn plain(_: &str) -> Result<String, Failure> {
    Err(Failure::usage("no store on NATS: this program was built without the feature `nats`"))
}

#[cfg(feature = "nats")]
pub(super) use shared::{fsck, health};

/// Returns no findings: without the feature a store can't be shared.
#[cfg(not(feature = "nats"))]
pub(super) fn health(_: &Path) -> Result<Vec<Finding>, Failure> {
    Ok(Vec::new())
}

/// Checks no messages: without the feature a store can't be shared.
#[cfg(not(feature = "nats"))]
pub(super) fn fsck(_: &Path, _: bool) -> Result<StreamFindings, Failure> {
    Ok(StreamFindings::default())
}

/// Problems in the messages of a shared store, as JSON and as text.
#[derive(Debug, Default)]
pub(super) struct StreamFindings {
    pub(super) problems: Option<serde_json::Value>,
    /// The number of remaining problems.
    pub(super) left: usize,
    pub(super) lines: Vec<String>,
}

#[cfg(feature = "nats")]
mod shared {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use foldspace::StoreError;
    use foldspace::backends::DoctorReport;
    use foldspace::store::{NatsAddress, NatsStore, NatsStoreOptions, StoreHost, StreamHealth, StreamProblem};

    use super::*;

    /// Returns the state of the cluster of a shared store, given a directory with a copy. Empty for a local store.
    pub(in crate::cli) fn health(directory: &Path) -> Result<Vec<Finding>, Failure> {
        let Some(address) = address(directory)? else { return Ok(Vec::new()) };
        let address: NatsAddress = address.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        Ok(match StreamHealth::of_store(&address) {
            Ok(streams) => findings(&streams),
            Err(error) => vec![found(DoctorReport::Missing, error.to_string(), "start the servers of NATS")],
        })
    }

    fn found(state: DoctorReport, found: String, advice: &str) -> Finding {
        Finding { what: "cluster", state, found, advice: advice.to_owned() }
    }

    fn findings(streams: &[StreamHealth]) -> Vec<Finding> {
        let names = |streams: &[&StreamHealth]| {
            streams.iter().map(|stream| stream.stream.as_str()).collect::<Vec<_>>().join(", ")
        };
        let mut findings = Vec::new();
        let stopped: Vec<_> = streams.iter().filter(|stream| stream.current == 0).collect();
        if !stopped.is_empty() {
            let what = format!("no leader answers for {}", names(&stopped));
            findings.push(found(DoctorReport::Missing, what, "start the servers that are down; commits wait a minute"));
        }
        let mut servers: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (stream, replica) in streams.iter().flat_map(|stream| stream.behind.iter().map(move |one| (stream, one))) {
            servers.entry((&replica.server, replica.offline)).or_default().push(stream);
        }
        for ((server, offline), streams) in &servers {
            let server = text::one_line(server, 100);
            let state = if *offline { "is offline" } else { "is behind" };
            let spare = streams.iter().map(|stream| stream.spare()).min().unwrap_or_default();
            let what = format!(
                "server {server} {state}, with replicas of {}; {} may fail before sessions stop",
                names(streams),
                if spare == 0 { "no other server".to_owned() } else { text::count(spare as u64, "other server") }
            );
            let advice = "start it; after its disk was full, it works only after a restart";
            findings.push(found(DoctorReport::Limited, what, if *offline { advice } else { "" }));
        }
        if let (true, [first, ..]) = (findings.is_empty(), streams) {
            let leader = first.leader.as_deref().map(|leader| format!("; {} leads", text::one_line(leader, 100)));
            let (count, replicas) = (streams.len(), text::count(first.replicas as u64, "replica"));
            let what = format!("{count} streams of {replicas}, all current{}", leader.unwrap_or_default());
            findings.push(found(DoctorReport::Ok, what, ""));
        }
        findings
    }

    /// Checks the messages of the store that a directory is a copy of. With `repair`, removes the invalid messages.
    pub(in crate::cli) fn fsck(directory: &Path, repair: bool) -> Result<StreamFindings, Failure> {
        let Some(address) = address(directory)? else { return Ok(StreamFindings::default()) };
        let address: NatsAddress = address.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        let copy = tempfile::tempdir().map_err(|error| Failure::io("make", "a temporary directory", &error))?;
        let problems = NatsStore::open(&address, copy.path(), NatsStoreOptions::default())?.fsck(repair)?;
        let shown = |problem: &StreamProblem| {
            let StreamProblem { session, sequence, what, .. } = problem;
            format!("session {session}, message {sequence} of the cluster: {}", text::one_line(what, 300))
        };
        let mut lines: Vec<_> = problems.iter().map(shown).collect();
        let lost = problems.iter().filter(|problem| problem.is_loss).count();
        let senseless = problems.len() - lost;
        let left = if repair { lost } else { problems.len() };
        if repair && senseless > 0 {
            lines.push(format!("repaired: {} removed", text::count(senseless as u64, "invalid message")));
        } else if senseless > 0 {
            lines.push("`foldspace check --repair` removes the invalid messages; sessions skip them".to_owned());
        }
        if lost > 0 {
            lines.push("only a backup of the stream can restore lost events".to_owned());
        }
        let outcome = if left == 0 { "no damage remains".to_owned() } else { text::count(left as u64, "problem") };
        lines.push(format!("on the cluster: {outcome}"));
        Ok(StreamFindings { problems: Some(serde_json::json!(problems)), left, lines })
    }

    impl HostArgs {
        /// Opens the store at an address, with the directory as its copy.
        pub(in crate::cli) fn open(
            &self,
            address: &str,
            directory: &Path,
        ) -> Result<Result<NatsStore, StoreError>, Failure> {
            let address: NatsAddress = address.parse().map_err(|error| Failure::usage(format!("{error}")))?;
            let usual = NatsStoreOptions::default();
            let lease = self.lease.map_or(usual.lease, Duration::from_secs);
            let host = StoreHost { name: self.name()?, at: self.reached()? };
            let options = NatsStoreOptions { host: Some(host), lease, ..usual };
            Ok(NatsStore::open(&address, directory, options))
        }

        fn name(&self) -> Result<String, Failure> {
            let said = || std::env::var(HOST_VARIABLE).ok().filter(|value| !value.is_empty());
            let named = || rustix::system::uname().nodename().to_string_lossy().into_owned();
            let name = self.host.clone().or_else(said).unwrap_or_else(named);
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            let is_right = (1..=64).contains(&name.len())
                && name.bytes().all(is_plain)
                && name.split('.').all(|part| !part.is_empty());
            match is_right {
                true => Ok(name),
                false => {
                    let shown = text::one_line(&name, 80);
                    Err(Failure::usage(format!(
                        "invalid host name {shown:?}: a name has up to 64 letters, digits, - _ ."
                    ))
                    .with_hint("set it with --host or FOLDSPACE_HOST"))
                }
            }
        }

        fn reached(&self) -> Result<Option<String>, Failure> {
            let Some(at) = &self.at else { return Ok(None) };
            let authority = at.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
            let uri = authority.and_then(|authority| format!("http://{authority}").parse::<http::Uri>().ok());
            match uri.filter(|uri| uri.host().is_some_and(|host| !host.is_empty()) && uri.path() == "/") {
                Some(uri) if uri.query().is_none() => Ok(authority.map(|authority| format!("http://{authority}"))),
                _ => Err(Failure::usage(format!("invalid host URL {:?}", text::one_line(at, 200)))
                    .with_hint("use http://HOST:PORT, the address of --http")),
            }
        }
    }
}

#[cfg(not(feature = "nats"))]
impl HostArgs {
    /// Returns the failure of every attempt to open a shared store.
    pub(super) fn refuse(&self, address: &str) -> Failure {
        plain(address).err().unwrap_or_else(|| Failure::failed("no such store"))
    }
}
