use foldspace::hub::operations::{PassedCall, UndoDocument, UndoneCall};
use foldspace::reducers::Change;
use foldspace::tools::{UndoLeft, UndoLeftReason};
use foldspace::view::Position;
use foldspace::{Seq, Timestamp};
use serde_json::{Value, json};

use super::not_back::{SHOWN, tell_apart, tell_effects};
use super::position::{before, settled};
use super::{BAD, Exit, Failure, FoundSession, GOOD, Globals, ODD, Out, OwnerClient, open, output, text};

/// The largest number of paths listed for a skipped call.
const PASSED_SHOWN: usize = 5;

/// Takes back the changes that calls made to files, and keeps everyone else's changes
///
/// It names the call, lists the changes, and asks. Each further undo takes back the call before; `--redo` goes forward
/// again. Later changes by others stay, even in the same file. Changes that can't be taken back are listed with the
/// reason, and the exit status is 1. In an attached directory it
/// never touches `.git`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace undo                   the latest call with changes, not undone
  foldspace undo --redo            takes the latest undo back
  foldspace undo --run last        all changes of the latest run of an agent
  foldspace undo --call 219 -y     one call, without a question
  foldspace undo --to 10m          all calls of the last ten minutes
  foldspace undo --external        the latest change that no call made")]
pub(super) struct UndoArgs {
    /// The session, by name or by the beginning of its id
    pub(super) session: String,
    #[command(flatten)]
    pub(super) subject: SubjectArgs,
    #[command(flatten)]
    pub(super) how: UndoHow,
}

/// Options of an undo: its limits, and its question.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct UndoHow {
    /// Restores a path even if others changed the same place since; `undo --redo` brings their changes back
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Also removes contents that were never stored, so that nothing can restore them
    #[arg(long)]
    pub(super) force: bool,
    /// Shows the changes without making them
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Does not ask
    #[arg(long, short)]
    pub(super) yes: bool,
}

#[derive(Debug, Clone, Default, clap::Args)]
#[group(multiple = false)]
pub(super) struct SubjectArgs {
    /// One call, by its position
    #[arg(long, value_name = "N")]
    pub(super) call: Option<Seq>,
    /// All calls of a run of an agent, by the run's id or the beginning of it; `last` is the latest run
    #[arg(long, value_name = "RUN")]
    pub(super) run: Option<String>,
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    #[arg(help = format!("All calls after POSITION: {}", Position::FORMS))]
    pub(super) to: Option<Position>,
    /// CALL and all calls after it
    #[arg(long, value_name = "CALL", value_parser = before)]
    pub(super) before: Option<Position>,
    /// Changes made outside of any call: the latest, or those at position N
    #[arg(long, value_name = "N")]
    pub(super) external: Option<Option<Seq>>,
    /// The latest undo
    #[arg(long)]
    pub(super) redo: bool,
}

/// Restores files and directories as of a position
///
/// It restores files that are missing or differ, no matter who changed them, and lists them before it asks. Newer files
/// stay. `foldspace undo` takes it back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace revert src/main.rs --at 42     one file as it was after event 42
  foldspace revert src docs --at 10m       both as they were ten minutes ago")]
pub(super) struct RevertArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// Paths in the workspace
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true, required_unless_present = "before")]
    #[arg(help = format!("Restores them as of POSITION: {}", Position::FORMS))]
    at: Option<Position>,
    /// Restores them as they were before CALL
    #[arg(long, value_name = "CALL", conflicts_with = "at", value_parser = before)]
    before: Option<Position>,
    #[command(flatten)]
    how: UndoHow,
}

impl UndoArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let SubjectArgs { call, run, to, before, external, redo } = &self.subject;
        let external = external.map(|at| at.map_or(json!(true), |at| json!(at)));
        let asked = json!({ "call": call, "run": run, "external": external, "redo": redo });
        self.how.run(&self.session, asked, to.as_ref().or(before.as_ref()), globals, out)
    }
}

impl RevertArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let at = self.at.as_ref().or(self.before.as_ref());
        self.how.run(&self.session, json!({ "paths": self.paths }), at, globals, out)
    }
}

impl UndoHow {
    fn run(
        self,
        session: &str,
        mut asked: Value,
        to: Option<&Position>,
        globals: &Globals,
        out: &mut Out,
    ) -> Result<Exit, Failure> {
        super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let found = owner.sessions()?.find(session)?;
            let path = format!("/v1/sessions/{}/undo", found.session.id());
            let to = to.map(|to| settled(to, &found.session)).transpose()?;
            asked["to"] = json!(to.map(|to| Position::Exact(to).to_string()));
            asked["force"] = self.force.into();
            asked["overwrite"] = self.overwrite.into();
            asked["dry_run"] = true.into();
            let planned = owner.client.work::<UndoDocument>(&path, &asked, output::progress).await?;
            let done = match self.may_go_on(&planned, &found, out)? {
                true => {
                    asked["dry_run"] = false.into();
                    // Without a question, nobody has agreed to these changes and no others.
                    asked["seen"] = json!((!self.yes).then_some(planned.seen));
                    Some(owner.client.work::<UndoDocument>(&path, &asked, output::progress).await?)
                }
                false => None,
            };
            owner.end().await;
            tell(done, planned, &open::named(&found.session), out, globals)
        })?
    }

    /// Shows the planned changes, and returns true if they may be made.
    fn may_go_on(self, planned: &UndoDocument, found: &FoundSession, out: &mut Out) -> Result<bool, Failure> {
        if !out.is_json() {
            show(planned, found.session.now(), out)?;
        }
        if self.dry_run || planned.changes.is_empty() {
            return Ok(false);
        }
        if self.yes {
            return Ok(true);
        }
        let count = text::count(planned.changes.len() as u64, "change");
        let question = match planned.left.len() {
            0 => format!("undo {count}?"),
            left => format!("undo {count}, and leave {left}?"),
        };
        let unasked = Failure::usage(format!("no terminal to ask on: {question}"));
        output::confirm(out, &question, "nothing was done", unasked.with_hint("--yes undoes without asking"))?;
        Ok(true)
    }
}

/// Prints the outcome. Returns [`Exit::Failed`] if a change is left, or would be.
fn tell(
    done: Option<UndoDocument>,
    planned: UndoDocument,
    named: &str,
    out: &mut Out,
    globals: &Globals,
) -> Result<Exit, Failure> {
    let is_done = done.is_some();
    let shown = planned.left.clone();
    let told = done.unwrap_or(planned);
    let exit = if told.left.is_empty() && told.passed.is_empty() { Exit::Ok } else { Exit::Failed };
    if out.is_json() {
        out.document(&told)?;
        return Ok(exit);
    }
    tell_apart(&told.apart, out)?;
    // Changes in a closed directory become visible when the undo opens it.
    let unseen: Vec<UndoLeft> = told.left.iter().filter(|left| !shown.contains(left)).cloned().collect();
    show_left(&unseen, (SHOWN, only_call(&told)), out)?;
    let left = text::count(told.left.len() as u64, "change");
    match told.call {
        Some(call) => {
            let program = open::same_program(globals);
            let rest = if told.left.is_empty() { String::new() } else { format!(" ({left} left)") };
            let done = if told.redoes { "redone" } else { "undone" };
            out.line(format!("{done} as call {call}{rest}; to take that back: {program} undo {named} --call {call}"))?;
        }
        None if !told.changes.is_empty() || is_done => out.line("nothing was done")?,
        None if told.left.is_empty() => out.line("nothing to do: the files are already as they were before")?,
        None => out.line(format!("nothing could be undone: {left} left"))?,
    }
    Ok(exit)
}

/// Prints the first changes, one a line, and the number of the others.
pub(super) fn show_changes(changes: &[Change], out: &mut Out) -> Result<(), Failure> {
    for change in changes.iter().take(SHOWN) {
        let word = match change {
            Change::Added { .. } => out.paint(GOOD, "back   "),
            Change::Removed { .. } => out.paint(BAD, "gone   "),
            Change::Changed { .. } => out.paint(ODD, "changed"),
        };
        out.line(format!("{word}  {}", change.path()))?;
    }
    match changes.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => out.line(format!("and {more} more")),
    }
}

fn show(planned: &UndoDocument, now: Timestamp, out: &mut Out) -> Result<(), Failure> {
    for PassedCall { call, left } in planned.passed.iter().take(SHOWN) {
        out.line(format!("skips {}; --call {} undoes it", call_words(call, now), call.call))?;
        show_left(left, (PASSED_SHOWN, Some(call.call)), out)?;
    }
    if planned.passed.len() > SHOWN {
        out.line(format!("and skips {}", text::count((planned.passed.len() - SHOWN) as u64, "earlier call")))?;
    }
    if let Some(line) = subject_line(planned, now) {
        out.line(line)?;
    }
    show_changes(&planned.changes, out)?;
    show_left(&planned.left, (SHOWN, only_call(planned)), out)?;
    tell_effects(&planned.effects, out)?;
    if let Some(git) = &planned.git {
        let branch = if git.branch.is_empty() { "no branch" } else { &git.branch };
        let head = git.head.get(..12).unwrap_or("no commit");
        output::note(&format!(
            "git has moved since these calls: the worktree is on {} at {head} now",
            text::one_line(branch, 80)
        ));
    }
    Ok(())
}

/// Returns the call to name in advice: the same command may choose another call the next time.
fn only_call(undone: &UndoDocument) -> Option<Seq> {
    if let [call] = undone.calls[..] { Some(call) } else { None }
}

fn show_left(left: &[UndoLeft], (shown, call): (usize, Option<Seq>), out: &mut Out) -> Result<(), Failure> {
    for UndoLeft { path, reason } in left.iter().take(shown) {
        out.line(format!("{}  {path}  {}", out.paint(ODD, "left   "), reason_words(*reason, call)))?;
    }
    match left.len().saturating_sub(shown) {
        0 => Ok(()),
        more => out.line(format!("and {more} more left")),
    }
}

/// Returns the reason as text, with the options that override it: for an undo of `call`, or for the same command.
fn reason_words(reason: UndoLeftReason, call: Option<Seq>) -> String {
    let call = call.map_or_else(String::new, |call| format!("--call {call} "));
    match reason {
        UndoLeftReason::ChangedSince => format!("changed at the same place since; {call}--overwrite undoes it anyway"),
        UndoLeftReason::Shared => format!("other calls may have changed it; {call}--overwrite undoes it anyway"),
        UndoLeftReason::Doubtful => format!("a person may have changed it; {call}--overwrite undoes it anyway"),
        UndoLeftReason::NotKept => "its earlier contents were not stored".to_owned(),
        UndoLeftReason::NotRecoverable => format!("its current contents were not stored; {call}--force discards them"),
        UndoLeftReason::NotMade => format!("it existed before, moved or ignored; {call}--overwrite removes it"),
        UndoLeftReason::NotEmpty => "it has unrecorded entries".to_owned(),
    }
}

/// Returns the line that names the call, with its command, agent and time, or the event of an external change.
fn subject_line(planned: &UndoDocument, now: Timestamp) -> Option<String> {
    let verb = if planned.redoes { "redoes" } else { "undoes" };
    if let Some(latest) = &planned.latest {
        let call = call_words(latest, now);
        return Some(match planned.calls.len() {
            0 | 1 => format!("{verb} {call}"),
            count => format!("{verb} {count} calls, the latest {call}"),
        });
    }
    let outside = planned.external.first()?;
    Some(format!("undoes what changed outside of any call, event {outside}"))
}

fn call_words(UndoneCall { call, tool, subject, agent, started_at }: &UndoneCall, now: Timestamp) -> String {
    let tool = text::one_line(tool, 100);
    let by = if agent.is_empty() { String::new() } else { format!(" by {}", text::one_line(agent, 40)) };
    let call = match tool.as_ref() {
        "undo" => format!("what #{call} undid"),
        _ => format!("#{call} {tool} {subject}").trim_end().to_owned(),
    };
    format!("{call}{by}, {}", text::ago(*started_at, now))
}
