mod settings;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use foldspace::backends::{DoctorReport, Finding, HostPath};
use foldspace::event::Node;
use foldspace::hub::operations::AttachedDocument;
use foldspace::hub::{AttachedDirectory, IgnoredLeftOut, all_attached, attached_at, own_copies_of};
use foldspace::reducers::{AgentRuns, Entry, VirtualFileSystem};
use foldspace::store::Durability;
use foldspace::tools::{AgentKind, CopyProgress};
use foldspace::view::Patch;
use foldspace::{EntryPath, LocalStore, Session, WorkspaceSpec};
use serde::Serialize;
use serde_json::json;

use super::stop::make_way;
use super::{Exit, Failure, Globals, Out, OwnerClient, diffs, open, output, text, workspace};
use settings::{HookPlace, SettingsChange, SettingsScope, UserSettings, apply, hooked, plan, plan_removal};

const KEEPS: &str =
    "keep small files that git ignores, and secrets such as .env, in the local store, so that undo restores them?";

/// Records the work of coding agents in a directory
///
/// Adds hooks for the installed agents to your settings, for all directories; in a directory that is not attached a
/// hook exits at once. The settings keep their comments and their order, and a backup is stored next to them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace attach --dry-run                  its changes to settings, not made
  foldspace attach                            here, for all installed agents
  foldspace attach ../app --agent claude,codex --project
  foldspace attach --status")]
pub(super) struct AttachArgs {
    /// The directory [default: the current one]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: Option<PathBuf>,
    /// The agents [default: all installed agents]
    #[arg(long, value_name = "AGENT", value_delimiter = ',')]
    agent: Vec<AgentKind>,
    /// Adds the hooks to the directory's own settings instead of yours
    #[arg(long)]
    project: bool,
    /// Shows the changes to settings without making them
    #[arg(long)]
    dry_run: bool,
    /// Records PATH and everything below it even if git ignores it; may be given several times
    #[arg(long, value_name = "PATH")]
    include: Vec<String>,
    /// Stores requests to agents and outputs of their tools in full, not only the first line and a digest of each
    #[arg(long)]
    transcripts: bool,
    /// Records small files that git ignores, except in directories that programs generate [default: yes]
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no(), hide_possible_values = true)]
    keep_ignored: Option<bool>,
    /// Stores the contents of likely secrets, on this machine only, and not only their digests [default: yes]
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no(), hide_possible_values = true)]
    keep_secrets: Option<bool>,
    /// Copies up to BYTES of contents that only git stores into the store, in the background [default: 1G]
    #[arg(long, value_name = "BYTES|NO", value_parser = bytes_or_no)]
    own_copy: Option<u64>,
    /// Shows the attached directories and the agents with hooks, and changes nothing
    #[arg(long, conflicts_with_all = ["agent", "project", "dry_run", "include", "transcripts", "keep_ignored", "keep_secrets", "own_copy"])]
    status: bool,
}

/// Stops recording the work of coding agents in a directory
///
/// Removes the hooks that `foldspace attach` added to settings, and nothing else. Hooks in your own settings stay while
/// another directory is attached. The recorded session stays, too, unless --purge is given.
#[derive(Debug, clap::Args)]
pub(super) struct DetachArgs {
    /// The directory [default: the current one]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with = "all")]
    directory: Option<PathBuf>,
    /// Detaches all directories
    #[arg(long)]
    all: bool,
    /// Also removes the recorded session, after a question
    #[arg(long)]
    purge: bool,
    /// Removes without asking
    #[arg(short, long, requires = "purge")]
    yes: bool,
    /// Removes only the hooks of these agents, and continues to record the others
    #[arg(long, value_name = "AGENT", value_delimiter = ',', conflicts_with_all = ["all", "purge"])]
    agent: Vec<AgentKind>,
}

/// The detached directories, and the directories that are still attached.
struct EndedRecording {
    ended: Vec<PathBuf>,
    left: Vec<PathBuf>,
}

/// An attached directory, with the settings that were changed for it.
#[derive(Serialize)]
struct Attached<'a> {
    #[serde(flatten)]
    recorded: &'a AttachedDocument,
    settings: &'a [SettingsChange],
}

/// An attached directory, and the files that undo can't restore there.
#[derive(Serialize)]
struct DirectoryStatus {
    #[serde(flatten)]
    attached: AttachedDirectory,
    /// The progress of own copies, once they have started.
    own_copies: Option<CopyProgress>,
    /// Files with only their digests recorded.
    not_kept: Vec<EntryPath>,
    /// Ignored entries that a limit leaves out.
    ignored: Option<IgnoredLeftOut>,
}

/// The attached directories, and all hooks.
#[derive(Serialize)]
struct AttachStatus {
    /// The attached directory that is or contains the given directory.
    here: Option<AttachedDirectory>,
    directories: Vec<DirectoryStatus>,
    hooks: Vec<HookPlace>,
}

impl AttachArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let named = self.directory.as_deref().filter(|directory| !directory.exists()).and_then(Path::to_str);
        if let Some(agent) = named.and_then(|name| name.parse::<AgentKind>().ok()) {
            let hint = format!("`foldspace attach --agent {agent}` attaches the current directory for one agent");
            return Err(Failure::usage(format!("{agent} is not a directory")).with_hint(hint));
        }
        let directory = given_directory(self.directory.as_deref())?;
        let user = UserSettings::of_environment();
        if self.status {
            return show_status(globals, &user, &directory, out);
        }
        if !cfg!(feature = "mcp") {
            let what = "this program can't record agents: it was built without the feature `mcp`";
            return Err(Failure::usage(what).with_hint("build it with the default features"));
        }
        let agents = if self.agent.is_empty() { user.installed() } else { self.agent.clone() };
        if agents.is_empty() {
            output::note("found no installed agent to add hooks for; name one with --agent");
        }
        let top = top_of(&directory);
        let scope = if self.project { SettingsScope::Project(top) } else { SettingsScope::User(&user) };
        let data = stated_data(globals)?;
        let program = user.program(data.as_deref())?;
        if let Some(installing) = program.installation() {
            output::note(&format!("hooks run this program from a cache that may be emptied; `{installing}` keeps it"));
        }
        let changes = plan(&agents, &scope, &program)?;
        if self.dry_run {
            return show_changes(&changes, out);
        }
        let recorded = self.begin_recording(globals, directory)?;
        changes.iter().try_for_each(apply)?;
        out.show(&Attached { recorded: &recorded, settings: &changes }, |out| {
            tell_recorded(&recorded, out)?;
            // Without agents, no hooks are in place.
            let shown = if agents.is_empty() { None } else { Some(&changes) };
            shown.map_or(Ok(()), |changes| tell(changes, "now has hooks in", "all hooks are already in place", out))
        })?;
        if changes.iter().any(|change| change.agent == AgentKind::Codex) {
            output::note("Codex runs the hooks once you have approved them: type /hooks in it");
        }
        Ok(Exit::Ok)
    }

    /// Starts or continues the recording of a directory.
    fn begin_recording(&self, globals: &Globals, directory: PathBuf) -> Result<AttachedDocument, Failure> {
        let is_known = attached_at(&open::directory(globals)?, &directory).is_some();
        let is_open = !is_known && self.keep_ignored.is_none() && self.keep_secrets.is_none();
        let agreed = if is_open && output::can_ask() { Some(output::agrees(KEEPS, true)) } else { None };
        let asked = json!({
            "directory": HostPath(directory), "include": self.include, "transcripts": self.transcripts,
            "keep_ignored": self.keep_ignored.or(agreed), "keep_secrets": self.keep_secrets.or(agreed),
            "own_copy": self.own_copy,
        });
        super::block_on(async {
            let owner = OwnerClient::of(globals, Durability::default()).await?;
            let attached = owner.client.work("/v1/attached", &asked, output::progress).await;
            owner.end().await;
            Ok(attached?)
        })?
    }
}

impl DetachArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let directory = given_directory(self.directory.as_deref())?;
        let user = UserSettings::of_environment();
        let (agents, ended) = if self.agent.is_empty() {
            let of = if self.all { None } else { Some(&*directory) };
            (&AgentKind::ALL[..], self.end_recording(globals, of, out)?)
        } else {
            let ended = vec![top_of(&directory).to_owned()];
            (&self.agent[..], EndedRecording { ended, left: Vec::new() })
        };
        let mut changes = Vec::new();
        for directory in &ended.ended {
            changes.extend(plan_removal(agents, &SettingsScope::Project(directory))?);
        }
        if ended.left.is_empty() {
            changes.extend(plan_removal(agents, &SettingsScope::User(&user))?);
        } else {
            let others = text::count(ended.left.len() as u64, "other directory");
            output::note(&format!("hooks in your own settings stay, for {others}; --all removes them"));
        }
        changes.iter().try_for_each(apply)?;
        out.show(&changes, |out| tell(&changes, "no longer has hooks in", "no hooks to remove", out))?;
        Ok(Exit::Ok)
    }

    /// Ends the recording of the directory that contains a path, or of all directories.
    fn end_recording(&self, globals: &Globals, of: Option<&Path>, out: &mut Out) -> Result<EndedRecording, Failure> {
        let data = open::directory(globals)?;
        let all = attached(&data)?;
        let mut ending = match of {
            Some(path) => attached_at(&data, path).into_iter().collect(),
            None => all,
        };
        // Detaching a repository also detaches its other worktrees.
        ending.retain(|one: &AttachedDirectory| one.worktree_of.is_none() || of.is_some());
        if let (true, true, Some(path)) = (self.purge, ending.is_empty(), of) {
            return Err(unattached(&data, path));
        }
        if self.purge && !self.yes && !ending.is_empty() {
            confirm_purge(&ending, out)?;
        }
        if !ending.is_empty() {
            super::block_on(async {
                let owner = OwnerClient::of_existing(globals).await?;
                for AttachedDirectory { directory, .. } in &ending {
                    let asked = json!({ "directory": directory, "purge": self.purge });
                    let _: AttachedDirectory =
                        owner.client.work("/v1/attached/detach", &asked, output::progress).await?;
                }
                owner.end().await;
                Ok::<(), Failure>(())
            })??;
            if self.purge {
                free(&data)?;
                output::note(&format!("removed what was recorded of {}", named(&ending)));
            }
        }
        let paths = |all: Vec<AttachedDirectory>| all.into_iter().map(|one| one.directory.0).collect::<Vec<_>>();
        let mut ended = paths(ending);
        // Hooks that an earlier detach has left are removed, too.
        ended.extend(of.map(|path| top_of(path).to_owned()).filter(|top| !ended.contains(top)));
        Ok(EndedRecording { ended, left: paths(attached(&data)?) })
    }
}

/// Returns the failure to purge what is not attached, with the session that an earlier detach has left.
fn unattached(data: &Path, path: &Path) -> Failure {
    let what = Failure::missing(format!("{} is not attached", text::one_line(&path.to_string_lossy(), 300)));
    let sessions = open::glance(data).ok().map(|opened| opened.sessions.clone());
    let all = sessions.iter().flat_map(|sessions| {
        let entries = sessions.list().unwrap_or_default().into_iter();
        entries.filter_map(|entry| sessions.session(entry.id).ok())
    });
    let records = |session: &Session| {
        let spec = session.started().and_then(|started| WorkspaceSpec::of_session(started).ok());
        spec.is_some_and(|spec| spec.only_watches() && spec.given_directory().is_some_and(|own| path.starts_with(own)))
    };
    match all.into_iter().find(records) {
        Some(session) => {
            what.with_hint(format!("`foldspace remove {}` removes its recorded history", open::named(&session)))
        }
        None => what,
    }
}

fn named(directories: &[AttachedDirectory]) -> String {
    let named = directories.iter().map(|one| text::one_line(&one.directory.0.to_string_lossy(), 80));
    named.collect::<Vec<_>>().join(", ")
}

fn confirm_purge(ending: &[AttachedDirectory], out: &mut Out) -> Result<(), Failure> {
    let question = format!("remove what was recorded of {} for good?", named(ending));
    let unasked = Failure::usage(format!("no terminal to ask on: {question}"));
    output::confirm(out, &question, "nothing was detached", unasked.with_hint("--yes removes it without asking"))
}

/// Frees the space of removed sessions at once, unless the store is in use.
fn free(data: &Path) -> Result<(), Failure> {
    match super::block_on(make_way(data))? {
        Ok(()) => {
            LocalStore::collect(data, false)?;
        }
        Err(Failure::Told { exit: Exit::Busy, .. }) => {
            output::note("removed the recorded session, but the store is in use: `foldspace gc` frees its space");
        }
        Err(failure) => return Err(failure),
    }
    Ok(())
}

/// Returns findings about agents with hooks in your settings that have never reported from an attached directory.
pub(super) fn silent_hooks(data: &Path) -> Vec<Finding> {
    let Ok(directories) = attached(data) else { return Vec::new() };
    let reported = || {
        let mut agents = BTreeSet::new();
        let opened = open::glance(data)?;
        for AttachedDirectory { session, .. } in &directories {
            let state = opened.sessions.session(*session)?.state()?;
            let runs = state.slice::<AgentRuns>().into_iter().flat_map(|runs| runs.runs.values());
            agents.extend(runs.map(|run| run.agent.clone()));
        }
        Ok::<_, Failure>(agents)
    };
    if directories.is_empty() {
        return Vec::new();
    }
    let Ok(reported) = reported() else { return Vec::new() };
    let hooks = hooked(&SettingsScope::User(&UserSettings::of_environment())).into_iter();
    let silent = hooks.filter(|place| !reported.contains(place.agent.name()));
    let finding = |HookPlace { agent, path }| Finding {
        what: "hooks",
        state: DoctorReport::Limited,
        found: format!("{agent} has hooks in {}, but has not reported yet", path.display()),
        advice: "use it in an attached directory; Codex only runs hooks that were approved with /hooks".to_owned(),
    };
    silent.map(finding).collect()
}

fn yes_or_no() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["yes", "no"]).map(|text| text == "yes")
}

fn bytes_or_no(text: &str) -> Result<u64, String> {
    if text == "no" {
        return Ok(0);
    }
    let units = [("K", 10), ("M", 20), ("G", 30), ("", 0)];
    let found =
        units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?.parse::<u64>().ok()?, shift)));
    let bytes = found.and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "expected a number of bytes, such as 500M or 2G, or no".to_owned())
}

fn given_directory(given: Option<&Path>) -> Result<PathBuf, Failure> {
    workspace::existing_directory("DIR", given.unwrap_or(Path::new(".")))
}

/// Returns the top of the worktree that contains a directory, or the directory itself.
fn top_of(directory: &Path) -> &Path {
    directory.ancestors().find(|above| above.join(".git").exists()).unwrap_or(directory)
}

/// Returns the data directory if it was given explicitly, since agents can't derive it.
fn stated_data(globals: &Globals) -> Result<Option<PathBuf>, Failure> {
    let is_stated = globals.data.is_some() || std::env::var_os("FOLDSPACE_DATA").is_some_and(|data| !data.is_empty());
    let data = is_stated.then(|| open::directory(globals)).transpose()?;
    data.map(|data| std::path::absolute(&data).map_err(|error| Failure::io("find", data.display(), &error))).transpose()
}

fn attached(data: &Path) -> Result<Vec<AttachedDirectory>, Failure> {
    all_attached(data).map_err(|error| Failure::io("read the attached directories in", data.display(), &error))
}

fn show_changes(changes: &[SettingsChange], out: &mut Out) -> Result<Exit, Failure> {
    let show = |out: &mut Out| {
        changes.iter().try_for_each(|change| {
            let [before, after] = [&change.before, &change.after].map(|text| text.as_deref().unwrap_or_default());
            diffs::show(
                &Patch::of_texts(change.path.to_string_lossy().trim_start_matches('/'), before, after).text,
                out,
            )
        })
    };
    out.show(&changes, show)?;
    Ok(Exit::Ok)
}

fn tell_recorded(recorded: &AttachedDocument, out: &mut Out) -> Result<(), Failure> {
    let AttachedDocument { directory, name, files, borrowed, not_kept, ignored, own_copy, .. } = recorded;
    let directory = text::one_line(&directory.0.to_string_lossy(), 300);
    let files = text::count(*files, "file");
    out.line(format!("records {directory} as {}: {files}", text::one_line(name, 80)))?;
    let kept =
        [(recorded.keep_ignored, "small ignored files"), (recorded.keep_secrets, "secrets (on this machine only)")];
    let kept: Vec<&str> = kept.iter().filter(|(keeps, _)| *keeps).map(|(_, what)| *what).collect();
    if !kept.is_empty() {
        out.line(format!("keeps {}, too", kept.join(" and ")))?;
    }
    match (*borrowed, *own_copy) {
        (0, _) => {}
        (borrowed, 0) => {
            let files = text::count(borrowed, "file");
            output::note(&format!("only git stores the contents of {files}; they are lost with .git (see --own-copy)"));
        }
        (borrowed, limit) => {
            let (files, limit) = (text::count(borrowed, "file"), text::size(limit));
            out.line(format!("copies the contents of {files} from git in the background, up to {limit}"))?;
        }
    }
    not_kept_line(not_kept).into_iter().chain(ignored.map(ignored_line)).for_each(|line| output::note(&line));
    Ok(())
}

fn ignored_line(IgnoredLeftOut { left_out, limits }: IgnoredLeftOut) -> String {
    let (entries, number) = (text::count(left_out, "ignored entry"), limits.entries / 2);
    let [file, all] = [limits.file_bytes, limits.bytes / 2].map(text::size);
    format!("over a limit (below {file} each, {number} entries, {all} in all): {entries}, not recorded (see --include)")
}

fn not_kept_line(not_kept: &[EntryPath]) -> Option<String> {
    let shown: Vec<String> = not_kept.iter().take(10).map(EntryPath::to_string).collect();
    let more = if not_kept.len() > shown.len() { ", ..." } else { "" };
    (!shown.is_empty()).then(|| format!("by digest only, so they can't be restored: {}{more}", shown.join(", ")))
}

fn tell(changes: &[SettingsChange], done: &str, none: &str, out: &mut Out) -> Result<(), Failure> {
    if changes.is_empty() {
        return out.line(none);
    }
    changes.iter().try_for_each(|change| tell_place(change.agent, done, &change.path, out))
}

fn tell_place(agent: AgentKind, done: &str, path: &Path, out: &mut Out) -> Result<(), Failure> {
    out.line(format!("{agent} {done} {}", text::one_line(&path.to_string_lossy(), 300)))
}

fn show_status(globals: &Globals, user: &UserSettings, directory: &Path, out: &mut Out) -> Result<Exit, Failure> {
    let data = open::directory(globals)?;
    let mut hooks = hooked(&SettingsScope::User(user));
    hooks.extend(hooked(&SettingsScope::Project(top_of(directory))));
    let attached = attached(&data)?;
    let opened = if attached.is_empty() { None } else { Some(open::glance(&data)?) };
    let of = |attached: AttachedDirectory| {
        let own_copies = own_copies_of(&data, &attached.directory.0);
        // Other commands report an unreadable session.
        let state = opened.as_ref().and_then(|opened| opened.sessions.session(attached.session).ok()?.state().ok());
        let files = state.map(|state| VirtualFileSystem::of(&state)).unwrap_or_default();
        let is_lost = |entry: &Entry| matches!(entry.node, Node::File { incomplete: true, .. });
        let not_kept = files.iter().filter(|(_, entry)| is_lost(entry)).map(|(path, _)| path.clone()).collect();
        let ignored = IgnoredLeftOut::of(&attached, &files);
        DirectoryStatus { attached, own_copies, not_kept, ignored }
    };
    let directories = attached.into_iter().map(of).collect();
    let status = AttachStatus { here: attached_at(&data, directory), directories, hooks };
    out.show(&status, |out| {
        for DirectoryStatus { attached, own_copies, not_kept, ignored } in &status.directories {
            let directory = text::one_line(&attached.directory.0.to_string_lossy(), 300);
            out.line(format!("{directory} is recorded as session {}", attached.session.short()))?;
            if let Some(CopyProgress { copied, bytes, left, not_copied }) = own_copies {
                let (all, bytes) = (copied + left + not_copied, text::size(*bytes));
                let end = if *left > 0 { format!("; {left} to go") } else { String::new() };
                out.line(format!("  copied from git: {copied} of {all} contents, {bytes}{end}"))?;
            }
            for line in not_kept_line(not_kept).into_iter().chain(ignored.map(ignored_line)) {
                out.line(format!("  {line}"))?;
            }
        }
        if status.directories.is_empty() {
            out.line("no directory is attached")?;
        }
        if status.hooks.is_empty() {
            return out.line("no agent has hooks");
        }
        status.hooks.iter().try_for_each(|HookPlace { agent, path }| tell_place(*agent, "has its hooks in", path, out))
    })?;
    Ok(Exit::Ok)
}
