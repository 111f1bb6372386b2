use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use foldspace::seal::{NewSeal, NoteSigner, prove_event, seal_store, seals_of, witness_request};
use serde_json::json;

use super::{Failure, Globals, Out, files, open, output, text};

/// Limit for a key, a checkpoint or a proof, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Signs a checkpoint of all histories, to detect later changes
///
/// The checkpoint is a signed note (C2SP tlog-checkpoint). Store it on another machine. `foldspace verify --checkpoint
/// FILE --key KEY` compares the data with it. The sessions do not change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace seal --new-key example.com/agents    once; prints the public key
  foldspace seal --out checkpoint                new and longer sessions
  foldspace seal --prove demo@42 --out 42.proof  event 42 of the session demo
  foldspace seal --witness-request 0 | curl --data-binary @- URL/add-checkpoint")]
#[command(group = clap::ArgGroup::new("action").args(["new_key", "prove", "witness_request", "accept_changes"]))]
pub(super) struct SealArgs {
    /// The file with the signing key [default: seals/key in the data directory]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    key: Option<PathBuf>,
    /// Creates the signing key of a log called NAME, such as example.com/agents, and prints its public key
    #[arg(long, value_name = "NAME", conflicts_with = "out")]
    new_key: Option<String>,
    /// Writes to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,
    /// Proves that the last checkpoint covers an event. `verify --proof` checks the proof with an export of the session
    #[arg(long, value_name = "SESSION@EVENT")]
    prove: Option<String>,
    /// Prints a request to a witness to cosign the last checkpoint; SIZE is the size of the checkpoint that it last
    /// cosigned, or 0
    #[arg(long, value_name = "SIZE")]
    witness_request: Option<u64>,
    /// Seals even if sessions differ from their last seal, and records the difference in the log
    #[arg(long)]
    accept_changes: bool,
}

impl SealArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let key = match &self.key {
            Some(key) => key.clone(),
            None => seals_of(&open::existing(globals)?).join("key"),
        };
        if let Some(name) = &self.new_key {
            return create_key(name, &key, out);
        }
        let signer = signer(&key)?;
        let data = open::existing(globals)?;
        if let Some(old) = self.witness_request {
            return self.put(&witness_request(&data, signer.verifier(), old)?, out);
        }
        let opened = open::reading(globals)?;
        if let Some(event) = &self.prove {
            let (wanted, seq) = event_named(event)?;
            let session = opened.find(wanted)?.entry.id;
            let proof = prove_event(&opened.sessions, &data, signer.verifier(), session, seq)?;
            return self.put(&proof, out);
        }
        if opened.loss.is_some() {
            return Err(Failure::failed("acknowledged events are lost: nothing was sealed")
                .with_hint("`foldspace check` lists what is missing"));
        }
        let sealed = seal_store(&opened.sessions, &data, &signer, self.accept_changes)?;
        tell(&sealed);
        let file = self.file();
        file.map_or(Ok(()), |file| put(file, &sealed.checkpoint))?;
        out.show(&sealed, |out| match file {
            Some(_) => {
                let (sessions, entries) =
                    (text::count(sealed.sealed, "session"), text::count(sealed.size, "log entry"));
                out.line(format!("{sessions} sealed; the checkpoint covers {entries}"))
            }
            None => out.raw(sealed.checkpoint.as_bytes()),
        })
    }

    /// Writes a text to the file or to standard output.
    fn put(&self, text: &str, out: &mut Out) -> Result<(), Failure> {
        self.file().map_or_else(|| out.raw(text.as_bytes()), |file| put(file, text))
    }

    /// Returns the file to write; `None` for standard output.
    fn file(&self) -> Option<&Path> {
        self.out.as_deref().filter(|file| !files::is_standard(file))
    }
}

fn put(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::io("write", file.display(), &error);
    files::write(file, |out| out.write_all(text.as_bytes()).map_err(failed))
}

/// Prints notes about removed and changed sessions.
fn tell(sealed: &NewSeal) {
    for session in &sealed.removed {
        output::note(&format!("session {} was sealed before and is removed: the log records that", session.short()));
    }
    for problem in &sealed.changed {
        output::note(&format!("{problem}: the log records that"));
    }
}

fn create_key(name: &str, file: &Path, out: &mut Out) -> Result<(), Failure> {
    let signer = NoteSigner::new(name)?;
    if file.exists() {
        let problem = format!("{} exists", text::one_line(&file.display().to_string(), 300));
        return Err(Failure::usage(problem).with_hint("another key begins another log; name another file with --key"));
    }
    if let Some(directory) = file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        files::make_private(directory).map_err(|error| Failure::io("create", directory.display(), &error))?;
    }
    put(file, &signer.secret())?;
    let key = signer.verifier().to_string();
    out.show(&json!({ "key": key }), |out| out.line(&key))
}

fn signer(file: &Path) -> Result<NoteSigner, Failure> {
    let shown = text::one_line(&file.display().to_string(), 300);
    if !file.exists() {
        let missing = Failure::missing(format!("no signing key: {shown} does not exist"));
        return Err(missing.with_hint("`foldspace seal --new-key NAME` creates one, --key names another file"));
    }
    let read = read(file)?.parse::<NoteSigner>();
    read.map_err(|error| Failure::from(error).at(&shown))
}

/// Reads a small text file.
pub(super) fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = files::reader(file)?.take(FILE_MAX).read_to_string(&mut text);
    read.map_err(|error| Failure::io("read", file.display(), &error))?;
    Ok(text)
}

fn event_named(event: &str) -> Result<(&str, u64), Failure> {
    let parts = event.rsplit_once('@').and_then(|(session, seq)| Some((session, seq.parse().ok()?)));
    parts.ok_or_else(|| {
        Failure::usage(format!("invalid event {:?}", text::one_line(event, 80)))
            .with_hint("an event is SESSION@EVENT, such as demo@42; `foldspace log` shows the numbers")
    })
}
