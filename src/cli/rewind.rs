use foldspace::WorkspaceSpec;
use foldspace::http::{ClientError, RewindRefusal};
use foldspace::hub::operations::{RewoundDocument, RewoundRange};
use foldspace::reducers::Change;
use foldspace::view::Position;
use serde_json::json;

use super::not_back::{SHOWN, tell_apart, tell_effects, tell_not_back};
use super::position::before;
use super::undo::{SubjectArgs, UndoArgs, UndoHow, show_changes};
use super::{BOLD, Exit, Failure, FoundSession, Globals, Out, OwnerClient, open, output, text};

/// Takes a session back to an earlier position, as new events
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("goal").args(["to", "before", "run"]).required(true)))]
#[command(after_help = "\
Files and slices go back; the history stays, and rewinding to the position before the rewind undoes it. It is \
all or nothing. It is refused, with a list, if the workspace was changed outside of foldspace, or if it would \
remove files that your own directory had before the session began.

In your own directory it asks on a terminal before it removes files, and `.git` stays as it is unless --git is \
given. In an attached directory it undoes all calls after POSITION, and asks first.

Examples:
  foldspace rewind NAME --to 42             as it was after call or event 42
  foldspace rewind NAME --before 42         as it was before call 42
  foldspace rewind NAME --to -20 --dry-run  what would change
  foldspace rewind NAME --to 10m --force    records external changes first")]
pub(super) struct RewindArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    #[arg(long, alias = "at", value_name = "POSITION", allow_hyphen_values = true)]
    #[arg(help = format!("Goes back to POSITION: {}", Position::FORMS))]
    to: Option<Position>,
    /// Goes back to before CALL: the number of a call or of any of its events
    #[arg(long, value_name = "CALL", conflicts_with = "to", value_parser = before)]
    before: Option<Position>,
    /// Takes back the changes of an agent's run, as `undo --run` does: its id, the beginning of it, or `last`
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Does not ask: in a directory of yours, or about effects outside of the workspace
    #[arg(long, short)]
    yes: bool,
    /// Also rewinds the `.git` of your own directory, and with it the commits made since
    #[arg(long)]
    git: bool,
    /// Records external changes first; removes contents that were never stored; leaves entries that can't be
    /// restored; removes files from before the session
    #[arg(long)]
    force: bool,
    /// Shows the changes without making them
    #[arg(long)]
    dry_run: bool,
}

impl RewindArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let Self { session, to, before, run, force, dry_run, yes, git: _ } = self;
        let undo = |to: Option<Position>| {
            let subject = SubjectArgs { run: run.clone(), to, ..SubjectArgs::default() };
            let how = UndoHow { force: *force, dry_run: *dry_run, yes: *yes, ..UndoHow::default() };
            UndoArgs { session: session.clone(), subject, how }
        };
        let Some(to) = to.as_ref().or(before.as_ref()) else { return undo(None).run(globals, out) };
        let spec = open::session(globals, session)?.session.started().and_then(|it| WorkspaceSpec::of_session(it).ok());
        if spec.as_ref().is_some_and(WorkspaceSpec::only_watches) {
            return undo(Some(to.clone())).run(globals, out);
        }
        let is_own = spec.is_some_and(|spec| spec.given_directory().is_some());
        super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let opened = owner.sessions()?;
            let found = opened.find(&self.session)?;
            let mut asked = json!({ "to": to.to_string(), "force": force, "git": self.git, "dry_run": dry_run });
            let path = format!("/v1/sessions/{}/rewind", found.session.id());
            if !dry_run && !yes && output::can_ask() {
                asked["dry_run"] = true.into();
                if let Ok(planned) = owner.client.work(&path, &asked, output::progress).await {
                    agreed(&planned, is_own, out)?;
                }
                asked["dry_run"] = false.into();
            }
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

/// Asks before a person's files are removed, and if effects stay that no rewind takes back. A refusal of the plan is shown
/// by the rewind itself.
fn agreed(planned: &RewoundDocument, is_own: bool, out: &mut Out) -> Result<(), Failure> {
    let removed = planned.changes.iter().filter(|change| is_own && matches!(change, Change::Removed { .. })).count();
    if removed == 0 && planned.effects.is_empty() {
        return Ok(());
    }
    show_changes(&planned.changes, out)?;
    tell_effects(&planned.effects, out)?;
    let entries = text::count(planned.changes.len() as u64, "entry");
    let question = match removed {
        0 => format!("change {entries}?"),
        _ => format!("change {entries}, and remove {removed} of them?"),
    };
    output::confirm(out, &question, "nothing was done", Failure::usage("no terminal to ask on"))
}

fn show(found: &FoundSession, rewound: &RewoundDocument, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.document(rewound);
    }
    rewound.moved().iter().for_each(|moved| output::note(moved));
    let name = text::one_line(&found.name, 80);
    if rewound.changes.is_empty() && rewound.slices.is_empty() && rewound.recorded.is_none() {
        out.line(format!("nothing to do: session {name} is already as it was at {}", rewound.to))?;
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
    let (git, left): (Vec<_>, Vec<_>) = rewound.left.iter().cloned().partition(|path| path.name() == b".git");
    git.iter().try_for_each(|git| out.line(format!("left     {git}, as it is now: --git takes it back, too")))?;
    tell_not_back(&left, &rewound.lost, out)?;
    tell_apart(&rewound.apart, out)?;
    tell_effects(&rewound.effects, out)
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
            "would be lost or can't be restored, because their contents were never stored; nothing was done",
            "--force removes newer entries, and leaves the others as they are; `foldspace ls --stat` shows one"
                .to_owned(),
        ),
        "earlier" => (
            "would be removed that the directory had before the session began; nothing was done",
            format!(
                "--force removes them; `{} rewind {} --to {}` restores them",
                open::same_program(globals),
                open::named(&found.session),
                found.session.head()?
            ),
        ),
        _ => (
            "changed in the workspace outside of any call; nothing was done",
            "--force records these changes first, so that they can be restored; any call records them, too".to_owned(),
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
