mod base;
mod report;

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use foldspace::reducers::EffectEntry;
use foldspace::tools::WorkspaceError;
use foldspace::tools::{
    AllowedRoots, CallReport, CallWatch, Forker, NormalRules, RerunReport, RerunWorkspace, Scratch, ShellRules,
    roots_of, subagents_of,
};
use foldspace::view::Position;
use foldspace::{ForkOptions, NewSession, Seq, Session, Tools, WorkspaceSpec};
use tokio_util::sync::CancellationToken;

use super::not_back::effect_line;
use super::position::before;
use super::{
    Exit, Failure, Globals, OpenedStore, Out, OwnerClient, RuleArgs, WorkspaceArgs, files, interrupt, open, output,
    registry, text, workspace,
};
pub(super) use base::BaseArgs;
pub(super) use report::RerunPrinter;

const RULES_MAX: u64 = 1 << 20;

/// Runs a session's recorded calls again, and shows differences
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The workspace and its commands have the options of `foldspace run`: --help lists them.

The session itself is only read. Its calls run in order in a throw-away session, in a fresh workspace of the \
same kind; recorded external changes are repeated. Exits with 1 if a call or the files at the end differ.

Questions about commands are answered as recorded; but if commands are not sandboxed, a recorded yes does \
not count: --allow and --yes allow them. On the host, commands inherit foldspace's environment, which is not \
recorded, so another shell may give other results.

Rules describe accepted differences, as one JSON object:
  {\"texts\": [{\"pattern\": REGEX, \"replace\": TEXT}],
   \"ignore_fields\": [FIELD], \"ignore_paths\": [GLOB], \"text_files\": [GLOB]}
They add to the built-in rules for times, durations, addresses, process numbers, names below /tmp and \
the blocks that `ls -l` counts in the texts of tools, and for compiled Python, its directories and git's index. \
A GLOB without a slash matches names at any depth. Files are compared byte for byte, except for \
`text_files`, to which the rules for texts apply. A field is a name, or a path in a result such as \
\"/entries/*/size\".

In a session that `foldspace import` made from a transcript, calls of other agents' tools are made with \
foldspace's tools; calls that only read, and calls without a counterpart, are skipped. Such a run starts \
with the files of --base. Outputs, exit codes and the files that the transcript states are compared.

Examples:
  foldspace rerun NAME                            in the same kind of workspace
  foldspace rerun NAME --backend host --until 42  on the host, up to event 42
  foldspace rerun NAME --keep again               keeps the new session")]
#[command(mut_args(workspace::again))]
pub(super) struct RerunArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// Runs only calls that started at POSITION or before
    #[arg(long, alias = "at", value_name = "POSITION", allow_hyphen_values = true)]
    until: Option<Position>,
    /// Runs only calls that started before CALL
    #[arg(long, value_name = "CALL", conflicts_with = "until", value_parser = before)]
    before: Option<Position>,
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    options: AgainArgs,
}

/// The calls to rerun.
pub(super) struct RunAgain<'a> {
    /// The session, by name or by the beginning of its id.
    pub(super) session: &'a str,
    pub(super) until: Option<&'a Position>,
    pub(super) base: &'a BaseArgs,
    pub(super) options: &'a AgainArgs,
    /// The name of the new session, if it is stored.
    pub(super) keep: Option<&'a str>,
}

#[derive(Debug, clap::Args)]
pub(super) struct AgainArgs {
    #[command(flatten)]
    pub(super) rules: RuleFileArgs,
    /// Keeps the new session under this name instead of discarding it
    #[arg(long, value_name = "NAME")]
    pub(super) keep: Option<String>,
    /// Makes recorded effects outside of the workspace again, such as a push, without asking
    #[arg(long)]
    repeat_effects: bool,
    /// Replays the HTTP responses recorded with `--record-http`, and refuses all other connections
    #[arg(long)]
    pub(super) offline: bool,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    pub(super) commands: RuleArgs,
}

impl AgainArgs {
    /// Opens the store read-only, or through its owner to store the new session.
    pub(super) fn open(&self, globals: &Globals) -> Result<RerunStore, Failure> {
        RerunStore::open(globals, self.keep.is_some())
    }

    /// Asks before recorded effects take place again.
    pub(super) fn agreed(&self, effects: &[EffectEntry], out: &mut Out) -> Result<(), Failure> {
        if effects.is_empty() || self.repeat_effects {
            return Ok(());
        }
        let count = text::count(effects.len() as u64, "effect");
        let lines: Vec<String> = effects.iter().map(effect_line).collect();
        let lines = lines.join("\n");
        let unasked = Failure::failed(format!("{count} outside of the workspace would take place again:\n{lines}"));
        let hint = "--repeat-effects allows that; a container without --network can't have them";
        let question = format!("{lines}\nmake {count} outside of the workspace again?");
        output::confirm(out, &question, "nothing was run", unasked.with_hint(hint))
    }

    /// Returns the given workspace. Calls never run again in a person's directory.
    pub(super) fn workspace(&self) -> Result<Option<WorkspaceSpec>, Failure> {
        match self.workspace.spec()? {
            Some(spec) if spec.named_directory().is_some() => {
                let what = "--dir: calls are rerun only in a new directory; leave it out";
                Err(Failure::usage(what).with_hint("--keep NAME keeps the new session"))
            }
            asked => Ok(asked),
        }
    }
}

/// The store with the recorded session.
pub(super) struct RerunStore {
    pub(super) opened: OpenedStore,
    /// Keeps the owner running to store the new session.
    owner: Option<OwnerClient>,
}

impl RerunStore {
    fn open(globals: &Globals, keeps: bool) -> Result<Self, Failure> {
        if !keeps {
            return Ok(Self { opened: open::reading(globals)?, owner: None });
        }
        let owner = crate::cli::block_on(OwnerClient::of_existing(globals))??;
        Ok(Self { opened: owner.sessions()?, owner: Some(owner) })
    }
}

/// The options for accepted differences.
#[derive(Debug, clap::Args)]
pub(super) struct RuleFileArgs {
    /// Adds rules for accepted differences from a JSON file; - is standard input. `foldspace rerun --help` describes it
    #[arg(long = "rules", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Leaves out the built-in rules for times, durations, addresses and the like
    #[arg(long)]
    no_default_rules: bool,
}

impl RuleFileArgs {
    pub(super) fn rules(&self) -> Result<NormalRules, Failure> {
        let rules = if self.no_default_rules { NormalRules::bare() } else { NormalRules::default() };
        let Some(path) = &self.file else { return Ok(rules) };
        let place = text::one_line(&path.display().to_string(), 300);
        let mut written = String::new();
        let read = files::reader(path)?.take(RULES_MAX + 1).read_to_string(&mut written);
        read.map_err(|error| Failure::io("read", &place, &error))?;
        if written.len() as u64 > RULES_MAX {
            return Err(Failure::usage(format!("{place} has more than {}", text::size(RULES_MAX))));
        }
        rules.with_json(&written).map_err(|error| Failure::from(error).at(&place))
    }
}

impl RerunArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let Self { session, until, before, base, options } = self;
        let keep = options.keep.as_deref();
        RunAgain { session, until: until.as_ref().or(before.as_ref()), base, options, keep }.run(globals, out)
    }
}

impl RunAgain<'_> {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let (rules, mut asked) = (self.options.rules.rules()?, self.options.workspace()?);
        let store = RerunStore::open(globals, self.keep.is_some())?;
        let found = store.opened.find(self.session)?;
        let until = self.until.map(|until| until.resolve(&found.session)).transpose()?;
        let rules = rules.with_roots(roots_of(&found.session, &open::directory(globals)?)?);
        let mut rerun = foldspace::tools::Rerun::of(&found.session).with_rules(rules);
        if let Some(until) = until {
            rerun = rerun.until(until);
        }
        if self.options.offline {
            rerun = rerun.offline();
        }
        // Dropped last, since it has the initial files.
        let mut base = None;
        match rerun.transcript()? {
            None => self.base.refused()?,
            Some(run) => {
                let based = self.base.open(&run, asked)?;
                rerun = rerun.with_subagents(&subagents_of(&found.session, &store.opened.sessions)?);
                rerun = based.directory.into_iter().fold(rerun, foldspace::tools::Rerun::was_in);
                base = based.base;
                rerun = base.iter().fold(rerun, |rerun, base| rerun.with_base(base.session()));
                asked = Some(based.spec);
            }
        }
        let rules = self.options.commands.again()?;
        let spec = asked.map_or_else(|| workspace::spec_for_copy(globals, &found.session), Ok)?.forked();
        rerun.check(&spec, &rules)?;
        self.options.agreed(&rerun.repeats(&spec)?, out)?;
        let place = RerunTarget::open(store, spec, self.keep, globals)?;
        let done = place.report(&found.session, rules, out, async |fresh, watch| rerun.run(fresh, watch).await)?;
        place.end(globals, out)?;
        drop(base);
        Ok(exit_of(&done))
    }
}

fn exit_of(report: &RerunReport) -> Exit {
    match (report.interrupted, report.is_same()) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Ok,
        (false, false) => Exit::Failed,
    }
}

/// The throw-away session of a rerun. With `--keep`, it is copied into the store at the end.
pub(super) struct RerunTarget {
    scratch: Scratch,
    store: RerunStore,
}

impl RerunTarget {
    pub(super) fn open(
        store: RerunStore,
        spec: WorkspaceSpec,
        keep: Option<&str>,
        globals: &Globals,
    ) -> Result<Self, Failure> {
        let Some(name) = keep else {
            return Ok(Self { scratch: Scratch::begin(registry(), &spec, "rerun")?, store });
        };
        let backend = Some(spec.backend_name().to_owned());
        let new = NewSession { name: Some(name.to_owned()), backend, options: spec.options(), id: None };
        let session = store.opened.sessions.create(new)?;
        spec.keep_values(session.id(), &open::directory(globals)?)?;
        Self::copy(store, &session, spec)
    }

    pub(super) fn fork(
        globals: &Globals,
        store: RerunStore,
        recorded: &Session,
        asked: Option<WorkspaceSpec>,
        (name, at): (&str, Seq),
    ) -> Result<Self, Failure> {
        let (sessions, roots) = (store.opened.sessions.clone(), AllowedRoots::default());
        let forker = Forker { sessions, home: open::directory(globals)?, roots };
        let workspace = asked.map(|spec| (spec.backend_name().to_owned(), spec.options_with_values()));
        let new = ForkOptions { name: Some(name.to_owned()), workspace, ..ForkOptions::fork_at(at) };
        let session = forker.begin(recorded, new)?;
        let spec = workspace::spec_for_copy(globals, &session)?;
        Self::copy(store, &session, spec)
    }

    fn copy(store: RerunStore, session: &Session, spec: WorkspaceSpec) -> Result<Self, Failure> {
        let original = (session.id(), &store.opened.sessions);
        let scratch = Scratch::copy_of(registry(), &spec, original)?;
        Ok(Self { scratch, store })
    }

    /// Returns the workspace for calls, which Ctrl-C cancels. Needs a runtime.
    fn fresh(&self, rules: ShellRules) -> RerunWorkspace {
        let cancel = CancellationToken::new();
        interrupt::watch(cancel.clone(), interrupt::closing(self.scratch.workspace()));
        RerunWorkspace {
            session: self.scratch.session().clone(),
            workspace: Arc::clone(self.scratch.workspace()),
            tools: Tools::standard().into(),
            rules,
            cancel,
        }
    }

    pub(super) fn report(
        &self,
        recorded: &Session,
        rules: ShellRules,
        out: &mut Out,
        run: impl AsyncFnOnce(RerunWorkspace, CallWatch<'_>) -> Result<RerunReport, WorkspaceError>,
    ) -> Result<RerunReport, Failure> {
        out.go_live_for_good()?;
        let mut report = RerunPrinter::new(recorded, self.scratch.session());
        let done = crate::cli::block_on(async {
            // A failure to print does not stop the calls; the first is returned.
            let mut shown = Ok(());
            let mut watch = |call: &CallReport| {
                if shown.is_ok() {
                    shown = report.call(call, out);
                }
            };
            let done = run(self.fresh(rules), &mut watch).await;
            shown.and(done.map_err(Failure::from))
        })?;
        if self.store.owner.is_some() {
            self.scratch.put_back(&self.store.opened.sessions)?;
        }
        let done = done?;
        report.end(&done, "summary", out)?;
        Ok(done)
    }

    /// Prints the name of a stored session, and releases the store.
    pub(super) fn end(self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let Some(owner) = self.store.owner else { return Ok(()) };
        crate::cli::block_on(owner.end())?;
        if out.is_json() {
            return Ok(());
        }
        let session = self.scratch.session();
        let (name, named) = (text::one_line(session.name(), 80), open::named(session));
        out.line(format!("kept as session {name}: {} log {named} --calls", open::same_program(globals)))
    }
}
