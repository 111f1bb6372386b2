use std::path::{Path, PathBuf};

use foldspace::Timestamp;
use foldspace::seal::{CheckedSeal, Cosignature, NoteVerifier, ProvenEvent, check_event_proof, check_seal};
use serde_json::json;

use super::{BAD, Exit, Failure, GOOD, Globals, ODD, Out, files, open, registry, seal, text};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Proof of integrity")]
pub(super) struct CheckSealArgs {
    /// Compares all histories with a checkpoint of `foldspace seal`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "key", group = "sealed")]
    #[arg(conflicts_with_all = ["session", "bytes", "repair"])]
    checkpoint: Option<PathBuf>,
    /// Checks that a checkpoint covers an event of an export, without a store
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "key", group = "sealed")]
    #[arg(requires = "export", conflicts_with_all = ["session", "bytes", "repair"])]
    proof: Option<PathBuf>,
    /// With --proof: the export of the session
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "proof")]
    export: Option<PathBuf>,
    /// With --checkpoint or --proof: the public key of the log, as `seal --new-key` printed it
    #[arg(long, value_name = "KEY", requires = "sealed")]
    key: Option<String>,
    /// With --checkpoint or --proof: also requires the signature of the witness with this key; may be given several
    /// times
    #[arg(long, value_name = "KEY", requires = "sealed")]
    witness: Vec<String>,
}

impl CheckSealArgs {
    /// Checks a checkpoint or a proof; `None` if neither is given.
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Option<Result<Exit, Failure>> {
        match (&self.checkpoint, &self.proof) {
            (Some(checkpoint), _) => Some(self.check_checkpoint(checkpoint, globals, out)),
            (None, proof) => proof.as_deref().map(|proof| self.check_proof(proof, out)),
        }
    }

    fn keys(&self) -> Result<(NoteVerifier, Vec<NoteVerifier>), Failure> {
        let witnesses = self.witness.iter().map(|key| key.parse()).collect::<Result<_, _>>()?;
        Ok((self.key.as_deref().unwrap_or_default().parse()?, witnesses))
    }

    fn check_checkpoint(&self, file: &Path, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let (key, witnesses) = self.keys()?;
        let note = seal::read(file)?;
        let opened = open::reading(globals)?;
        let checked = check_seal(&opened.sessions, &open::existing(globals)?, &note, &key, &witnesses)?;
        out.show(&checked, |out| show(&checked, out))?;
        Ok(if checked.problems.is_empty() { Exit::Ok } else { Exit::Failed })
    }

    fn check_proof(&self, file: &Path, out: &mut Out) -> Result<Exit, Failure> {
        let (key, witnesses) = self.keys()?;
        let proof = seal::read(file)?;
        let mut export = files::reader(self.export.as_deref().unwrap_or(Path::new("-")))?;
        let proven = check_event_proof(&proof, &mut export, &key, &witnesses)?;
        let ProvenEvent { event, from, until, origin, size, cosignatures } = &proven;
        let value = json!({
            "session": event.session, "seq": event.seq, "time": event.time, "call": event.call, "agent": event.agent,
            "kind": event.event.kind, "version": event.event.version, "event": registry().to_json(&event.view()),
            "from": from, "until": until, "origin": origin, "size": size, "cosignatures": cosignatures,
        });
        out.show(&value, |out| {
            let kind = text::one_line(&event.event.kind, 80);
            let what = format!("event {} of session {}: {kind}", event.seq, event.session.short());
            out.line(format!("{what}, {}, {}", text::exact_moment(event.time), text::fields(&value["event"])))?;
            cosigned(cosignatures, out)?;
            let covers = format!("{} covers the events {from} to {until} of the export", signed(origin, *size));
            out.line(format!("{covers}: {}", out.paint(GOOD, "they are as they were sealed")))
        })?;
        Ok(Exit::Ok)
    }
}

fn signed(origin: &str, size: u64) -> String {
    format!("the checkpoint of {} at {}", text::one_line(origin, 80), text::count(size, "log entry"))
}

fn cosigned(cosignatures: &[Cosignature], out: &mut Out) -> Result<(), Failure> {
    cosignatures.iter().try_for_each(|Cosignature { witness, time }| {
        let millis = i64::try_from(time.saturating_mul(1000)).unwrap_or(i64::MAX);
        out.line(format!("cosigned by {} at {}", text::one_line(witness, 80), text::moment(Timestamp(millis))))
    })
}

fn show(checked: &CheckedSeal, out: &mut Out) -> Result<(), Failure> {
    cosigned(&checked.cosignatures, out)?;
    for session in &checked.removed {
        out.line(out.paint(ODD, format!("session {} was removed, as a seal records", session.short())))?;
    }
    for problem in &checked.problems {
        out.line(out.paint(BAD, problem))?;
    }
    let extended = match checked.extended {
        0 => String::new(),
        extended => format!(", {extended} longer by now"),
    };
    let counts =
        format!("{}{extended}, {}", text::count(checked.sessions, "session"), text::count(checked.events, "event"));
    let outcome = match checked.problems.len() as u64 {
        0 => out.paint(GOOD, "all as sealed"),
        problems => out.paint(BAD, text::count(problems, "session") + " not as sealed"),
    };
    out.line(format!("{}: {counts}: {outcome}", signed(&checked.origin, checked.size)))
}
