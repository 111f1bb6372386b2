use std::collections::BTreeMap;

use clap::ValueEnum;
use foldspace::history::{Cause, SessionChange};
use foldspace::view::{Authorship, AuthorshipError, BlameDocument, RunMention, blamed};
use foldspace::{Seq, Session, SessionId, VirtualFileSystem, view};
use serde_json::json;

use super::{AtArg, Cell, DIM, Failure, Globals, NOTED, Out, TextTable, open, output, position, text, tree};

/// Shows the call that wrote each line of a file, and follows renames; or the lines of a git commit
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Shows the file as it was at", "Shows the file as it was before")))]
#[command(after_help = "\
Each line starts with the event that wrote it, its call and tool (or a mount, drift, a rewind), its agent \
and its time. `foldspace show SESSION CALL` shows a call. A merged line has the child's event, \
as CHILD@EVENT, or the merge if the child was removed.

--write-notes is the only option that writes to git: it replaces the note of the commit in `refs/notes/ai`, \
which `git notes --ref=ai show` prints.")]
#[command(group(clap::ArgGroup::new("of_commit").args(["format", "write_notes"]).multiple(false)))]
pub(super) struct BlameArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The file
    #[arg(required_unless_present = "of_commit", conflicts_with = "of_commit")]
    path: Option<String>,
    #[command(flatten)]
    at: AtArg,
    /// Prints the lines that agents wrote in all files of a git commit
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["at", "before"])]
    format: Option<AuthorshipFormat>,
    /// Writes the lines that agents wrote in a git commit into git's notes, in git-ai's format
    #[arg(long, conflicts_with_all = ["at", "before"])]
    write_notes: bool,
    /// Prints the note without writing it
    #[arg(long, requires = "write_notes")]
    dry_run: bool,
    /// The commit [default: HEAD]
    #[arg(long, value_name = "REV", default_value = "HEAD", hide_default_value = true, requires = "of_commit")]
    rev: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuthorshipFormat {
    /// An Agent Trace 0.1.0 record, in JSON
    AgentTrace,
    /// A git note in git-ai's standard 3.0.0
    GitAiNote,
}

impl BlameArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let found = open::session(globals, &self.session)?;
        if self.write_notes {
            return self.write_note(&authorship(&found.session, &self.rev)?, out);
        }
        if let Some(format) = self.format {
            let authorship = authorship(&found.session, &self.rev)?;
            return match format {
                AuthorshipFormat::AgentTrace => out.document(&view::agent_trace(&authorship)),
                AuthorshipFormat::GitAiNote => out.line(view::git_ai_note(&authorship).trim_end()),
            };
        }
        let path = tree::path(self.path.as_deref().unwrap_or_default())?;
        let seq = self.at.resolve(&found.session)?;
        let document = match blamed(&found.session, &path, seq) {
            Ok(document) => document,
            Err(error) => {
                let files = VirtualFileSystem::of(&found.session.state_at(seq)?);
                let meant = if files.get(&path).is_some() { String::new() } else { tree::meant(&files, &path) };
                return Err(match Failure::from(error) {
                    Failure::Told { exit, message, hint: Some(hint) } => {
                        Failure::Told { exit, message, hint: Some(meant + &hint) }
                    }
                    failure => failure,
                });
            }
        };
        tell(&document);
        out.show(&document, |out| show(found.session.id(), &document, out))
    }

    fn write_note(&self, authorship: &Authorship, out: &mut Out) -> Result<(), Failure> {
        let note = view::git_ai_note(authorship);
        if !self.dry_run {
            authorship.write_note(NOTES, &note).map_err(|error| Failure::io("write", "the note", &error))?;
        }
        let (commit, files) = (&authorship.commit, authorship.files.len());
        let document = json!({ "commit": commit, "files": files, "note": note, "written": !self.dry_run });
        out.show(&document, |out| match self.dry_run {
            true => out.line(note.trim_end()),
            false => out
                .line(format!("wrote the note of {commit}: lines of agents in {}", text::count(files as u64, "file"))),
        })
    }
}

/// Attributes the lines of a commit.
fn authorship(session: &Session, revision: &str) -> Result<Authorship, Failure> {
    Authorship::of(session, revision).map_err(|error| match error {
        AuthorshipError::Session(error) => error.into(),
        AuthorshipError::History(error) => error.into(),
        error @ AuthorshipError::NotWatched => {
            Failure::usage(error.to_string()).with_hint("`foldspace attach` attaches a repository")
        }
        error @ AuthorshipError::Git(_) => Failure::missing(error.to_string()),
    })
}

fn tell(blamed: &BlameDocument) {
    if let Some(last) = blamed.unknown.last() {
        output::note(&format!("the lines at {last} are unknown; older lines may be attributed to later changes"));
    }
    if blamed.coarse {
        output::note("versions differ in very many lines; some lines may be older than shown");
    }
}

fn show(asked: SessionId, blamed: &BlameDocument, out: &mut Out) -> Result<(), Failure> {
    let heads = blamed.changes.iter().map(|by| ((by.session, by.change.seq), head(asked, by, blamed)));
    let heads: BTreeMap<(SessionId, Seq), [String; 4]> = heads.collect();
    let mut table = TextTable::default();
    for line in &blamed.lines {
        let Some([seq, why, agent, time]) = heads.get(&(line.session, line.seq)).cloned() else { continue };
        table.row([
            Cell::right(seq),
            Cell::left(why).styled(NOTED),
            Cell::left(agent),
            Cell::left(time).styled(DIM),
            Cell::right(line.line_number).styled(DIM),
            Cell::left(out.content(&line.line)),
        ]);
    }
    table.show_cut(4, TEXT_ROOM, out)
}

fn head(asked: SessionId, by: &SessionChange, blamed: &BlameDocument) -> [String; 4] {
    let change = &by.change;
    let observed = blamed.observed.iter().find(|observed| by.session == asked && observed.seq == change.seq);
    match observed.map(|observed| &observed.by[..]) {
        Some([]) => {
            let why = "there at attach".to_owned();
            return [change.seq.to_string(), why, "-".to_owned(), text::moment(change.time)];
        }
        Some(mentions) => return observed_head(by, mentions),
        None => {}
    }
    let place = if change.path == blamed.path { String::new() } else { format!(" in {}", change.path.rooted()) };
    let agent = if change.agent.is_empty() { "-".to_owned() } else { text::one_line(&change.agent, 40) };
    let why = text::one_line(&format!("{}{place}", why_of(by)), 80);
    [where_of(asked, by), why, agent, text::moment(change.time)]
}

/// Returns the head of a line that was written by an observed call, or by one of several.
fn observed_head(by: &SessionChange, mentions: &[RunMention]) -> [String; 4] {
    let unique = |mut words: Vec<String>| {
        words.dedup();
        words.join(" or ")
    };
    let calls = unique(mentions.iter().map(|mention| format!("#{}", mention.call)).collect());
    let prompts =
        unique(mentions.iter().map(|mention| mention.prompt.clone()).filter(|line| !line.is_empty()).collect());
    let who = mentions.iter().map(|mention| format!("{} {}", mention.agent, short(&mention.run)));
    let why = text::one_line(&format!("{calls} {prompts}"), PROMPT_CHARS).trim_end().to_owned();
    [by.change.seq.to_string(), why, text::one_line(&unique(who.collect()), 60), text::moment(by.change.time)]
}

/// The name of git-ai's notes: `refs/notes/ai`.
const NOTES: &str = "ai";
/// The number of columns that the line and its number have even on a narrow terminal.
const TEXT_ROOM: usize = 24;
/// The largest number of characters shown of the calls and the request of a line.
const PROMPT_CHARS: usize = 48;

/// Returns the beginning of a run's id.
pub(super) fn short(run: &str) -> String {
    text::one_line(&run.chars().take(RUN_CHARS).collect::<String>(), RUN_CHARS)
}

const RUN_CHARS: usize = 13;

pub(super) fn where_of(asked: SessionId, by: &SessionChange) -> String {
    match by.session == asked {
        true => by.change.seq.to_string(),
        false => format!("{}@{}", text::one_line(&by.session_name, 60), by.change.seq),
    }
}

pub(super) fn why_of(by: &SessionChange) -> String {
    let removed = if by.child_removed { " (removed)" } else { "" };
    format!("{}{removed}", why(&by.change.cause))
}

pub(super) fn why(cause: &Cause) -> String {
    match cause {
        Cause::Call { call, .. } => format!("#{call} {}", text::one_line(cause.name(), 40)),
        Cause::Rewind { to: Some(to) } => format!("rewind to {to}"),
        Cause::Merge { child, from: Some(from), .. } => format!("merge {}@{from}", text::one_line(child, 60)),
        Cause::Merge { child, from: None, .. } => format!("merge {}", text::one_line(child, 60)),
        other => other.name().to_owned(),
    }
}
