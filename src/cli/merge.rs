use foldspace::event::{MergeConflict, MergeSide, Node};
use foldspace::hub::operations::{self, HunkDocument};
use foldspace::reducers::MergeChoices;
use foldspace::tools::{MergeOutcome, MergeReport, preview_merge};
use foldspace::{Session, StoreError};
use serde_json::json;

use super::{
    BAD, BOLD, Cell, DIM, Exit, Failure, FoundSession, GOOD, Globals, ODD, OpenedStore, Out, OwnerClient, TextTable,
    open, output, text, workspace,
};

/// Merges a child's changes into its parent
///
/// Takes files that only one side changed, and merges text files line by line, in one commit. If both sides changed the
/// same lines, or one side removed a file that the other changed, nothing is merged: such conflicts are recorded with
/// both versions, and --ours and --theirs resolve them. The child stays as it is.
///
/// Generated files don't conflict: the parent's version stays. They are `__pycache__` and other caches of tools, files
/// that .gitignore files ignore, and files that --generated names.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace merge worker-1 --dry-run          what would be merged
  foldspace merge worker-1 --dry-run --patch  the lines in conflict
  foldspace merge worker-1
  foldspace merge worker-1 --theirs src --ours src/config.toml
  foldspace merge worker-1 --theirs src/main.rs:1 --ours src/main.rs:2
  foldspace merge worker-1 --ours '*.lock' --generated 'reports/**'")]
pub(super) struct MergeArgs {
    /// The child, by name or by the beginning of its id
    child: String,
    /// The session to merge into: the child's parent or another ancestor [default: its parent]
    #[arg(long, value_name = "SESSION")]
    into: Option<String>,
    /// Shows the changes to merge without merging them
    #[arg(long)]
    dry_run: bool,
    /// Shows the lines in conflict, with the number of each hunk: the parent's, the original and the child's
    #[arg(short, long, conflicts_with = "json")]
    patch: bool,
    /// Takes the child's side of conflicts at PATH (a path or a glob) or below it, in text files only for the lines in
    /// conflict; PATH:N is only the hunk N of a file; may be given several times
    #[arg(long, value_name = "PATH")]
    theirs: Vec<String>,
    /// Keeps the parent's side of conflicts at PATH (a path or a glob) or below it, in text files only for the lines in
    /// conflict; PATH:N is only the hunk N of a file; may be given several times
    #[arg(long, value_name = "PATH")]
    ours: Vec<String>,
    /// Treats files that match GLOB as generated: if both sides changed one, the parent's version stays; may be given
    /// several times
    #[arg(long, value_name = "GLOB")]
    generated: Vec<String>,
    /// The agent that merges
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
}

/// Prints notes about unused choices, and about entries that the merge left out.
pub(super) fn note_passed_over(report: &MergeReport) {
    for path in &report.unused {
        output::note(&format!("{}: no conflict there to resolve", path.rooted()));
    }
    for path in &report.left_out {
        output::note(&format!("left out {}: such an entry can't be recreated", path.rooted()));
    }
    if let [first, more @ ..] = &report.generated[..] {
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        output::note(&format!(
            "{}{more}: generated, and changed on both sides; it stays as it is here",
            first.rooted()
        ));
    }
}

impl MergeArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let choices = MergeChoices::of_texts(&self.ours, &self.theirs)
            .and_then(|choices| choices.with_generated(&self.generated))
            .map_err(|error| Failure::usage(error.to_string()))?;
        let (report, parent) = match self.dry_run {
            true => {
                let opened = open::reading(globals)?;
                let child = opened.find(&self.child)?;
                let parent = self.parent(&opened, &child)?;
                (preview_merge(&parent, &child.session, &choices)?, parent)
            }
            false => super::block_on(self.merge(globals, &choices))??,
        };
        note_passed_over(&report);
        if out.is_json() {
            let document = operations::merged(report, &parent, self.dry_run);
            out.document(&document)?;
            return Ok(if document.report.outcome == MergeOutcome::Conflicted { Exit::Failed } else { Exit::Ok });
        }
        self.show(&report, &parent, out)
    }

    fn parent(&self, opened: &OpenedStore, child: &FoundSession) -> Result<Session, Failure> {
        if let Some(wanted) = &self.into {
            return Ok(opened.find(wanted)?.session);
        }
        let name = text::one_line(&child.name, 80);
        let Some(origin) = child.session.started().and_then(|started| started.origin.as_ref()) else {
            return Err(Failure::usage(format!("session {name} has no parent"))
                .with_hint("`foldspace fork` makes children; `foldspace sessions --tree` shows them"));
        };
        opened.sessions.session(origin.parent).map_err(|error| {
            let is_gone = matches!(error, foldspace::SessionError::Store(StoreError::NoSession(_)));
            match is_gone {
                false => error.into(),
                true => {
                    let parent = text::one_line(&origin.parent_name, 80);
                    let what = format!("the parent of {name}, {parent}, was removed");
                    let hint = "name another ancestor to merge into with --into";
                    Failure::missing(what).with_hint(hint)
                }
            }
        })
    }

    async fn merge(&self, globals: &Globals, choices: &MergeChoices) -> Result<(MergeReport, Session), Failure> {
        let owner = OwnerClient::of_existing(globals).await?;
        let opened = owner.sessions()?;
        let child = opened.find(&self.child)?.session;
        let parent = self.parent(&opened, &opened.find(&self.child)?)?;
        // Fails early, before a workspace is opened and populated.
        preview_merge(&parent, &child, choices)?;
        let asked = json!({
            "child": child.id(), "ours": self.ours, "theirs": self.theirs, "generated": self.generated,
            "agent": self.agent,
        });
        let path = format!("/v1/sessions/{}/merge", parent.id());
        let merged: Result<MergeReport, _> = owner.client.work(&path, &asked, output::progress).await;
        owner.end().await;
        Ok((merged?, parent))
    }

    fn show(&self, report: &MergeReport, parent: &Session, out: &mut Out) -> Result<Exit, Failure> {
        let (child, into) = (text::one_line(&report.child_name, 80), text::one_line(parent.name(), 80));
        if report.outcome == MergeOutcome::Nothing {
            let since = format!("since {}", report.base);
            out.line(format!("nothing to merge: {child} has not changed any files {since}"))?;
            return Ok(Exit::Ok);
        }
        // With conflicts nothing is merged.
        if report.outcome != MergeOutcome::Conflicted {
            show_merged(report, out)?;
        }
        show_conflicts(&report.conflicts, "here", "child", out)?;
        if self.patch {
            show_hunks(parent, &report.conflicts, &child, out)?;
        }
        if self.dry_run && report.outcome == MergeOutcome::Conflicted && !report.merged.is_empty() {
            out.line("\nalso to be merged, once the conflicts are resolved:")?;
            show_merged(report, out)?;
        }
        hint_at_made_anew(&report.conflicts);
        let entries = text::count(report.merged.len() as u64, "entry");
        if report.outcome == MergeOutcome::Conflicted {
            let open = report.conflicts.iter().filter(|conflict| conflict.resolved.is_none()).count();
            let what = format!("{} to resolve; nothing was merged into {into}", text::count(open as u64, "conflict"));
            let hint = "choose with --ours PATH or --theirs PATH, for a file, a directory, or a hunk as PATH:1; --patch shows them";
            return Err(Failure::failed(what).with_hint(hint));
        }
        let range = format!("changes of {child} from {} to {}", report.base, report.child_at);
        match report.seq {
            Some(seq) => out.line(format!("merged {entries} into {into} at {seq}: {range}"))?,
            None => out.line(format!("would merge {entries} into {into}: {range}"))?,
        }
        Ok(Exit::Ok)
    }
}

/// Prints a note about conflicts in files that git regenerates.
fn hint_at_made_anew(conflicts: &[MergeConflict]) {
    let is_made = |path: &str| path == ".git/index" || path.ends_with("/.git/index");
    let open = conflicts.iter().filter(|conflict| conflict.resolved.is_none());
    let made: Vec<String> = open.map(|conflict| conflict.path.to_string()).filter(|path| is_made(path)).collect();
    if !made.is_empty() {
        let choices: Vec<String> = made.iter().map(|path| format!("--ours {}", text::shell_word(path))).collect();
        output::note(&format!("git regenerates these: {}", text::one_line(&choices.join(" "), 1000)));
    }
}

pub(super) fn show_merged(report: &MergeReport, out: &mut Out) -> Result<(), Failure> {
    let mut table = TextTable::default();
    for change in &report.merged {
        let style = match change.change.as_ref() {
            "added" => GOOD,
            "removed" => BAD,
            _ => ODD,
        };
        let by = text::one_line(&report.child_name, 80);
        let mut from = change.entry.from.map(|seq| format!("by event {seq} of {by}")).unwrap_or_default();
        if change.entry.both {
            from.push_str(", with the lines of both");
        }
        let cells = [Cell::left(change.change.as_ref()).styled(style), Cell::left(change.entry.path.to_string())];
        table.row(cells.into_iter().chain([Cell::left(from)]));
    }
    table.show(out)
}

pub(super) fn show_conflicts(
    conflicts: &[MergeConflict],
    ours: &str,
    theirs: &str,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut table = TextTable::default();
    for conflict in conflicts {
        let (word, style) = match conflict.resolved {
            None => ("conflict", BAD),
            Some(MergeSide::Ours) => ("kept", ODD),
            Some(MergeSide::Theirs) => ("taken", ODD),
            Some(MergeSide::Mixed) => ("mixed", ODD),
        };
        let sides = [(ours, &conflict.ours), (theirs, &conflict.theirs)];
        let sides = sides.map(|(side, node)| format!("{side}: {}", shown(node.as_ref())));
        let cells = [Cell::left(word).styled(style), Cell::left(conflict.path.to_string())];
        let [ours, theirs] = sides.map(Cell::left);
        table.row(cells.into_iter().chain([ours, theirs, Cell::left(conflict.kind.words())]));
    }
    table.show(out)
}

/// Prints the lines in conflict of texts, as git's diff3 style does.
fn show_hunks(parent: &Session, conflicts: &[MergeConflict], child: &str, out: &mut Out) -> Result<(), Failure> {
    for HunkDocument { path, hunk, ours, base, theirs } in operations::hunks_in_conflict(parent, conflicts)? {
        let conflict = conflicts.iter().find(|conflict| conflict.path == path);
        let at = |node: Option<&Node>, line| node.map_or("removed".to_owned(), |_| format!("line {line}"));
        let sides = (
            at(conflict.and_then(|conflict| conflict.ours.as_ref()), ours.first),
            at(conflict.and_then(|conflict| conflict.theirs.as_ref()), theirs.first),
        );
        let place = format!("{path}:{hunk}  ({} here, {} in {child})", sides.0, sides.1);
        out.line(format!("\n{}", out.paint(BOLD, place)))?;
        let marks = [("<<<<<<< here".to_owned(), ours, ODD), ("||||||| before both".to_owned(), base, BAD)];
        for (mark, side, style) in marks.into_iter().chain([("=======".to_owned(), theirs, GOOD)]) {
            out.line(out.paint(DIM, mark))?;
            side.text.lines().try_for_each(|line| out.line(out.paint(style, out.content(line))))?;
        }
        out.line(out.paint(DIM, format!(">>>>>>> {child}")))?;
    }
    Ok(())
}

fn shown(node: Option<&Node>) -> String {
    match node {
        None => "nothing".to_owned(),
        Some(Node::File { content, size, mode, .. }) => {
            let kind = if mode.is_executable() { "exec" } else { "file" };
            format!("{kind} {} {}", text::size(*size), content.short())
        }
        Some(Node::Symlink { target }) => format!("link to {}", text::one_line(&String::from_utf8_lossy(target), 80)),
        Some(Node::Directory { .. }) => "directory".to_owned(),
        Some(Node::Special { special }) => special.name().to_owned(),
    }
}
