use foldspace::WorkspaceSpec;
use foldspace::http::{ClientError, RewindRefusal};
use foldspace::hub::operations::{RewoundDocument, RewoundRange};
use foldspace::tools::check_position;
use foldspace::view::Position;
use serde_json::json;

use super::not_back::{SHOWN, tell_apart, tell_not_back};
use super::undo::{SubjectArgs, UndoArgs, UndoHow, show_changes};
use super::{BOLD, Exit, Failure, FoundSession, Globals, Out, OwnerClient, open, output, text};

/// Takes a session back to an earlier position, as new events
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Files and slices go back; the history stays, and a rewind to the position before it undoes it. It happens \
whole or not at all. It is refused, with a list, where the workspace was changed outside of foldspace, and where \
it would remove files that your own directory had before the session began.

In a directory that is attached it is an undo of all calls after POSITION, which asks first.

POSITION must be at the end of a commit; for an event inside one the nearest two are named.

Examples:
  foldspace rewind NAME --to 42             as it was after event 42
  foldspace rewind NAME --to -20 --dry-run  what would change
  foldspace rewind NAME --to 10m --force    records changes from outside first")]
pub(super) struct RewindArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    #[arg(help = format!("Goes back to POSITION: {}", Position::FORMS))]
    to: Option<Position>,
    /// Takes back what an agent's run changed, as `undo --run` does: its id, the beginning of that, or `last`
    #[arg(long, value_name = "RUN", required_unless_present = "to", conflicts_with = "to")]
    run: Option<String>,
    /// Asks nothing, in a directory that is attached
    #[arg(long, short)]
    yes: bool,
    /// Records external changes first; removes contents that were never kept; leaves entries that can't be
    /// restored; removes files from before the session
    #[arg(long)]
    force: bool,
    /// Shows the changes, and makes none
    #[arg(long)]
    dry_run: bool,
}

impl RewindArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let Self { session, to, run, force, dry_run, yes } = self;
        let undo = |to: Option<Position>| {
            let subject = SubjectArgs { run: run.clone(), to, ..SubjectArgs::default() };
            let how = UndoHow { force: *force, dry_run: *dry_run, yes: *yes, ..UndoHow::default() };
            UndoArgs { session: session.clone(), subject, how }
        };
        let Some(to) = to else { return undo(None).run(globals, out) };
        let started = open::session(globals, session)?.session.started().map(WorkspaceSpec::of_session);
        if matches!(started, Some(Ok(spec)) if spec.only_watches()) {
            return undo(Some(to.clone())).run(globals, out);
        }
        super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let opened = owner.sessions()?;
            let found = opened.find(&self.session)?;
            let to = to.resolve(&found.session)?;
            check_position(&found.session, to)?;
            let asked = json!({ "to": to, "force": self.force, "dry_run": self.dry_run });
            let path = format!("/v1/sessions/{}/rewind", found.session.id());
            let rewound: Result<RewoundDocument, _> = owner.client.work(&path, &asked, output::progress).await;
            owner.end().await;
            match &rewound {
                Ok(rewound) => show(&found, rewound, globals, out).map(Exit::from),
                Err(ClientError::Refused(problem)) if let Some(why) = &problem.more.rewind => {
                    refused(&found, why, globals, out)
                }
                Err(_) => rewound.map(|_| Exit::Ok).map_err(Failure::from),
            }
        })?
    }
}

fn show(found: &FoundSession, rewound: &RewoundDocument, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.document(rewound);
    }
    let name = text::one_line(&found.name, 80);
    if rewound.changes.is_empty() && rewound.slices.is_empty() && rewound.recorded.is_none() {
        out.line(format!("session {name} is as it was at {}; there is nothing to do", rewound.to))?;
        return tell_rest(rewound, out);
    }
    show_changes(&rewound.changes, out)?;
    rewound.slices.iter().try_for_each(|slice| out.line(format!("slice    {slice}")))?;
    tell_rest(rewound, out)?;
    let entries = text::count(rewound.changes.len() as u64, "entry");
    let name = out.paint(BOLD, name);
    match rewound.recorded {
        None => out.line(format!("\nsession {name} would go back to {} from {}: {entries}", rewound.to, rewound.from)),
        Some(RewoundRange { first, last }) => {
            let positions = format!("events {first} to {last}");
            out.line(format!("\nsession {name} is back at {}: {entries}, {positions}", rewound.to))?;
            let program = open::same_program(globals);
            let named = open::named(&found.session);
            out.line(format!("to undo it: {program} rewind {named} --to {}", rewound.from))
        }
    }
}

fn tell_rest(rewound: &RewoundDocument, out: &mut Out) -> Result<(), Failure> {
    for path in rewound.drift.iter().take(SHOWN) {
        out.line(format!("outside  {path}"))?;
    }
    tell_not_back(&rewound.left, &rewound.lost, out)?;
    tell_apart(&rewound.apart, out)
}

fn refused(found: &FoundSession, refusal: &RewindRefusal, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
    let RewindRefusal { refused: why, entries: paths, count } = refusal;
    let count = *count;
    if out.is_json() {
        let session = found.session.id();
        let told = json!({ "session": session, "refused": why, "entries": paths, "count": count, "recorded": null });
        out.document(&told)?;
        return Ok(Exit::Failed);
    }
    let (what, hint) = match why.as_str() {
        "not_kept" => (
            "would be lost or can't be brought back, as contents were never kept; nothing was done",
            "--force removes what came since, and leaves the rest as it is; `foldspace stat` shows what is known of one"
                .to_owned(),
        ),
        "earlier" => (
            "would be removed that the directory held before the session began; nothing was done",
            format!(
                "--force removes that; `{} rewind {} --to {}` brings it back",
                open::same_program(globals),
                open::named(&found.session),
                found.session.head()?
            ),
        ),
        _ => (
            "changed in the workspace outside of any call; nothing was done",
            "--force records that first, so that it can be had again; or make a call, which records it, too".to_owned(),
        ),
    };
    let mut lines: Vec<String> = paths.iter().take(SHOWN).map(|path| format!("  {path}")).collect();
    if paths.len() > SHOWN {
        lines.push(format!("  and {} more", paths.len() - SHOWN));
    }
    if count > paths.len() {
        lines.push(format!("  and {} below", text::count((count - paths.len()) as u64, "entry")));
    }
    let told = format!("{} {what}:\n{}", text::count(count as u64, "entry"), lines.join("\n"));
    output::tell(&Failure::failed(told).with_hint(hint));
    Ok(Exit::Failed)
}
