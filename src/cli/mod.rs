//! The program `foldspace`: parses arguments and prints results; all rules are in the library.

#[cfg(test)]
mod advice_tests;
mod apply;
pub(crate) mod approver;
mod attach;
mod bar;
mod bisect;
mod blame;
mod calling;
pub(crate) mod calls;
mod cancel;
mod cat;
mod check;
#[cfg(feature = "seal")]
mod check_seal;
mod command_args;
mod compare;
mod completions;
mod data_directory;
mod diff;
pub(crate) mod diffs;
mod dispatch;
mod doctor;
#[cfg(test)]
#[cfg(feature = "full")]
mod documented_tests;
mod du;
mod emit;
mod exchange;
mod exec;
mod export;
pub(crate) mod external_command;
mod files;
mod fork;
mod former;
mod fsck;
mod gc;
mod grep;
mod help;
mod history;
mod hook;
mod hook_log;
mod hook_payload;
mod image;
mod import;
mod interrupt;
mod left_out;
mod line_editor;
mod lineage;
mod lines;
mod live;
mod live_files;
mod local_terminal;
mod log;
mod logs;
mod ls;
#[cfg(feature = "man")]
mod man;
mod mask;
mod materialise;
#[cfg(feature = "mcp")]
mod mcp;
mod merge;
#[cfg(feature = "mount")]
mod mount;
mod move_session;
mod network_args;
mod new;
mod not_back;
mod open;
mod output;
mod owner;
mod pager;
mod play;
mod policy;
mod ports;
mod position;
mod prompt;
mod record;
mod reducer;
mod remove;
#[cfg(feature = "tui")]
mod replay;
#[cfg(feature = "replicate")]
mod replicate;
mod rerun;
mod rescue;
#[cfg(feature = "replicate")]
mod restore;
mod rewind;
mod rollouts;
mod run;
mod runs;
#[cfg(feature = "seal")]
mod seal;
#[cfg(feature = "mcp")]
mod serve;
mod service;
mod session_words;
mod sessions;
mod shared_store;
mod shell;
mod show;
#[cfg(feature = "sql")]
mod sql;
mod stat;
mod state;
mod status;
mod stop;
mod table;
mod thread;
mod tools;
mod tree;
mod ui;
mod undo;
mod unsaid;
mod what_if;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{ColorChoice, FromArgMatches, Parser, Subcommand};

use crate::terminal::exit::{Exit, Failure};
use crate::terminal::style::{BAD, BOLD, DIM, DIRECTORY, GOOD, NOTED, ODD, PLAIN};
use crate::terminal::{events, text};
use foldspace::Registry;
use help::definition;
use interrupt::Signals;
use open::{FoundSession, OpenedStore};
use output::Out;
use owner::OwnerClient;
use position::AtArg;
use table::{Cell, TextTable};
use workspace::{RuleArgs, WorkspaceArgs};

/// Runs tool calls in recorded sessions, and shows every moment of them.
#[derive(Debug, Parser)]
#[command(name = "foldspace", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
struct Globals {
    /// Stores the data in DIR [default: FOLDSPACE_DATA, else the XDG data directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    data: Option<PathBuf>,

    /// Uses the store that several hosts share at nats://HOST,...?stream=NAME, with the data directory as a copy
    /// [default: FOLDSPACE_STORE, else a local store in the data directory]
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    store: Option<String>,

    /// Prints JSON instead of text; docs/JSON.md has the shapes
    #[arg(long, global = true)]
    json: bool,

    /// Uses colour
    #[arg(long, global = true, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,

    /// Prints long output without a pager
    #[arg(long, global = true)]
    no_pager: bool,

    /// Acts in this process rather than through the owner of the data; the same as FOLDSPACE_IN_PROCESS=1
    #[arg(long, global = true)]
    in_process: bool,

    /// Logs on the error stream; twice logs more (FOLDSPACE_LOG filters)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

macro_rules! commands {
    ($($group:literal { $($(#[$attribute:meta])* $name:ident($arguments:ty),)* })*) => {
        #[derive(Debug, Subcommand)]
        enum CliCommand {
            $($($(#[$attribute])* $name($arguments),)*)*
        }

        impl CliCommand {
            const GROUPS: &[(&str, &[&str])] = &[$(($group, &[$(stringify!($name)),*])),*];

            fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
                match self {
                    $($($(#[$attribute])* Self::$name(command) => command.run(globals, out).map(Exit::from),)*)*
                }
            }
        }
    };
}

commands! {
    "Run" {
        New(Box<new::NewArgs>),
        Run(Box<run::RunArgs>),
        Exec(exec::Exec),
        Shell(shell::ShellArgs),
        Record(record::RecordArgs),
        Tools(tools::ToolsArgs),
        Emit(emit::Emit),
        Reducer(reducer::ReducerArgs),
        Policy(policy::PolicyArgs),
    }
    "Look" {
        Sessions(sessions::SessionsArgs),
        Log(log::LogArgs),
        Show(show::ShowArgs),
        State(state::StateArgs),
        Ls(ls::Ls),
        Cat(cat::Cat),
        Grep(grep::Grep),
        Diff(diff::DiffArgs),
        Compare(compare::CompareArgs),
        Blame(blame::BlameArgs),
        #[cfg(feature = "sql")]
        Sql(sql::SqlArgs),
        #[cfg(feature = "mount")]
        Mount(mount::MountSessionArgs),
        #[cfg(feature = "mount")]
        Mounts(mount::MountsArgs),
        #[cfg(feature = "mount")]
        Umount(mount::Umount),
    }
    "Go back" {
        #[cfg(feature = "tui")]
        Replay(Box<replay::ReplayArgs>),
        Bisect(Box<bisect::BisectArgs>),
        Rewind(rewind::RewindArgs),
        Undo(undo::UndoArgs),
        Revert(undo::RevertArgs),
        Rescue(rescue::RescueArgs),
        Rerun(Box<rerun::RerunArgs>),
        WhatIf(Box<what_if::WhatIfArgs>),
        Materialise(materialise::Materialise),
    }
    "Children" {
        Fork(Box<fork::ForkArgs>),
        Dispatch(dispatch::DispatchArgs),
        Rollouts(Box<rollouts::RolloutsArgs>),
        Merge(merge::MergeArgs),
        Apply(apply::ApplyArgs),
    }
    "Serve" {
        Ui(ui::UiArgs),
        #[cfg(feature = "mcp")]
        Serve(Box<serve::Serve>),
        #[cfg(feature = "mcp")]
        Mcp(Box<mcp::Mcp>),
        Service(service::ServiceArgs),
        Open(ports::OpenPort),
        Status(status::StatusArgs),
        Cancel(cancel::CancelArgs),
        Move(move_session::MoveArgs),
        Stop(stop::Stop),
    }
    "Agents" {
        Attach(attach::AttachArgs),
        Detach(attach::DetachArgs),
    }
    "Store" {
        Export(export::ExportArgs),
        Import(Box<import::Import>),
        Remove(remove::Remove),
        Check(check::CheckArgs),
        #[cfg(feature = "seal")]
        Seal(seal::SealArgs),
        Gc(gc::Gc),
        Du(du::Du),
        #[cfg(feature = "replicate")]
        Replicate(replicate::ReplicateArgs),
        #[cfg(feature = "replicate")]
        Restore(restore::RestoreArgs),
    }
    "This program" {
        Doctor(doctor::Doctor),
        Image(image::Image),
        Completions(completions::Completions),
        #[cfg(feature = "man")]
        Man(man::Man),
    }
}

const LAST: Duration = Duration::from_secs(1);

/// Runs calls on two threads, so that one is free while the other blocks on a write.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("start", "the runtime", &error))?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LAST);
    Ok(done)
}

/// Shows the help and the latest sessions.
fn overview(globals: &Globals, out: &mut Out) -> Result<(), Failure> {
    let help = definition().render_help();
    let help = if out.is_terminal() { help.ansi().to_string() } else { help.to_string() };
    out.line(help.trim_end())?;
    if open::existing(globals).is_err() {
        return out.line("\nThere are no sessions yet: `foldspace new` creates one.");
    }
    out.line("\nLatest sessions:")?;
    sessions::show_latest(globals, out)
}

/// Returns the start of a hint if a known name resembles `wanted`, else an empty string.
fn did_you_mean<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let meant = foldspace::session::nearest(wanted, known);
    meant.map(|meant| format!("did you mean {}? ", text::one_line(meant, 200))).unwrap_or_default()
}

static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();

/// Returns the slices and kinds that this program knows.
fn registry() -> Arc<Registry> {
    Arc::clone(REGISTRY.get_or_init(|| Arc::new(Registry::standard())))
}

pub(crate) fn main_with(registry: Registry) -> ExitCode {
    // No command has run yet.
    let _ = REGISTRY.set(Arc::new(registry));
    // Agents wait for a hook, so it has no start-up work.
    if std::env::args_os().nth(1).is_some_and(|first| first == "hook") {
        hook::run(std::env::args_os().skip(2).map(|word| word.to_string_lossy().into_owned()));
        return ExitCode::SUCCESS;
    }
    if completions::answer() {
        return ExitCode::SUCCESS;
    }
    let given = unsaid::matches();
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let colour = match cli.globals.color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    };
    colour.write_global();
    // `serve` sets up its own log.
    if given.subcommand_name() != Some("serve") {
        logs::begin(cli.globals.verbose);
    }
    let mut out = Out::new(&cli.globals);
    let done = match &cli.command {
        Some(command) => command.run(&cli.globals, &mut out),
        None => overview(&cli.globals, &mut out).map(Exit::from),
    };
    // A failed command's earlier output is shown, too.
    let finished = out.finish();
    let exit = match done.and_then(|exit| finished.map(|()| exit)) {
        Ok(exit) => exit,
        Err(Failure::Closed) => Exit::Ok,
        Err(failure) => {
            output::tell(&failure);
            let Failure::Told { exit, .. } = failure else { return ExitCode::SUCCESS };
            exit
        }
    };
    ExitCode::from(exit.code())
}
