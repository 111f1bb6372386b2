//! The program `foldspace`: it parses and prints, and holds no rule.

pub(crate) mod approver;
mod bar;
mod bisect;
mod blame;
pub(crate) mod calls;
mod cat;
mod clone;
mod completions;
mod diff;
pub(crate) mod diffs;
mod doctor;
mod du;
mod exec;
mod export;
pub(crate) mod external_command;
mod files;
mod fsck;
mod gc;
mod grep;
mod history;
mod import;
mod interrupt;
mod lineage;
mod lines;
mod live;
pub(crate) mod local_server;
mod log;
mod logs;
mod ls;
mod man;
mod materialise;
mod mcp;
mod merge;
mod open;
mod output;
mod pager;
mod position;
mod prompt;
mod remove;
#[cfg(feature = "tui")]
mod replay;
mod rerun;
mod rewind;
mod run;
mod serve;
mod sessions;
mod shell;
mod show;
mod stat;
mod state;
mod table;
mod tools;
mod tree;
mod verify;
mod what_if;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ColorChoice, CommandFactory, Parser, Subcommand};

use crate::terminal::exit::{Exit, Failure};
use crate::terminal::{events, exit, text};
use output::Out;

const EXAMPLES: &str = "\
Examples:
  foldspace run script.jsonl --mount ./src      make calls, on a copy of ./src
  foldspace run script.jsonl --backend podman   the same, in a container
  foldspace exec NAME -- make test              a command, run and recorded
  foldspace log NAME --calls                    what was called, what came of it
  foldspace show NAME 42                        an event, or a call as a whole
  foldspace ls NAME -R --at -10                 the files ten events ago
  foldspace diff NAME 10..                      what changed since event 10
  foldspace cat NAME src/main.rs --before 42    a file before call 42

A session is named by its name or by the beginning of its id.

Positions: an event's number (12 or @12), so many events ago (-5), a moment
(2025-01-31T12:00:00Z), or how long ago (10m, 2h, 1h30m). 0 is before the first event.

Data: --data DIR, else FOLDSPACE_DATA, else XDG_DATA_HOME/foldspace, else
~/.local/share/foldspace. FOLDSPACE_PAGER or PAGER is the pager; NO_COLOR turns colour off.
";

/// Runs scripts of tool calls in recorded sessions, and shows what happened at any moment of them.
#[derive(Debug, Parser)]
#[command(name = "foldspace", version, after_help = "`foldspace help` tells more, and what the exit codes mean.")]
#[command(after_long_help = format!("{EXAMPLES}\nExit codes:\n{}", Exit::table()))]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: CliCommand,
}

/// What every command takes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
struct Globals {
    /// Keeps the data in DIR; else FOLDSPACE_DATA tells, else the XDG rules
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    data: Option<PathBuf>,

    /// Prints JSON instead of text; docs/JSON.md has the shapes
    #[arg(long, global = true)]
    json: bool,

    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,

    /// Prints long output without a pager
    #[arg(long, global = true)]
    no_pager: bool,

    /// Tells on the error stream what goes on inside; twice tells more (FOLDSPACE_LOG filters)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Run(Box<run::RunArgs>),
    Exec(exec::Exec),
    Shell(shell::ShellArgs),
    Serve(Box<serve::Serve>),
    Sessions(sessions::SessionsArgs),
    Clone(Box<clone::Clone>),
    Tree(lineage::LineageArgs),
    Log(log::Log),
    Show(show::ShowArgs),
    State(state::StateArgs),
    Ls(ls::Ls),
    Cat(cat::Cat),
    Grep(grep::Grep),
    Stat(stat::Stat),
    Blame(blame::BlameArgs),
    History(history::History),
    Bisect(Box<bisect::BisectArgs>),
    Diff(diff::DiffArgs),
    #[cfg(feature = "tui")]
    Replay(Box<replay::ReplayArgs>),
    Materialise(materialise::Materialise),
    Mcp(Box<mcp::Mcp>),
    Merge(merge::Merge),
    Export(export::ExportArgs),
    Import(import::Import),
    Verify(verify::Verify),
    Fsck(fsck::Fsck),
    Gc(gc::Gc),
    Du(du::Du),
    Remove(remove::Remove),
    Rewind(rewind::Rewind),
    Rerun(Box<rerun::RerunArgs>),
    WhatIf(Box<what_if::WhatIfArgs>),
    Tools(tools::ToolsArgs),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Man(man::Man),
}

impl CliCommand {
    fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        match self {
            Self::Run(command) => command.run(globals, out),
            Self::Exec(command) => command.run(globals, out),
            Self::Shell(command) => command.run(globals, out),
            Self::Serve(command) => command.run(globals, out),
            Self::Sessions(command) => command.run(globals, out),
            Self::Clone(command) => command.run(globals, out),
            Self::Tree(command) => command.run(globals, out),
            Self::Log(command) => command.run(globals, out),
            Self::Show(command) => command.run(globals, out),
            Self::State(command) => command.run(globals, out),
            Self::Ls(command) => command.run(globals, out),
            Self::Cat(command) => command.run(globals, out),
            Self::Grep(command) => command.run(globals, out),
            Self::Stat(command) => command.run(globals, out),
            Self::Blame(command) => command.run(globals, out),
            Self::History(command) => command.run(globals, out),
            Self::Bisect(command) => command.run(globals, out),
            Self::Diff(command) => command.run(globals, out),
            #[cfg(feature = "tui")]
            Self::Replay(command) => command.run(globals, out),
            Self::Materialise(command) => command.run(globals, out),
            Self::Mcp(command) => command.run(globals, out),
            Self::Merge(command) => command.run(globals, out),
            Self::Export(command) => command.run(globals, out),
            Self::Import(command) => command.run(globals, out),
            Self::Verify(command) => command.run(globals, out),
            Self::Fsck(command) => command.run(globals, out),
            Self::Gc(command) => command.run(globals, out),
            Self::Du(command) => command.run(globals, out),
            Self::Remove(command) => command.run(globals, out),
            Self::Rewind(command) => command.run(globals, out),
            Self::Rerun(command) => command.run(globals, out),
            Self::WhatIf(command) => command.run(globals, out),
            Self::Tools(command) => command.run(out),
            Self::Doctor(command) => command.run(out),
            Self::Completions(command) => command.run(out),
            Self::Man(command) => command.run(out),
        }
    }
}

/// How long what nobody waits for any more may take to end.
const LAST: Duration = Duration::from_secs(1);

/// Makes calls, on threads of which one is free while another writes what its task waits for.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("start", "the runtime", &error))?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LAST);
    Ok(done)
}

/// The program's definition, from which help, completions and man pages come.
fn definition() -> clap::Command {
    Cli::command()
}

/// Does what the arguments say, and tells how the program is to end.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let colour = match cli.globals.color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    };
    colour.write_global();
    // A server begins its own.
    if !matches!(cli.command, CliCommand::Serve(_)) {
        logs::begin(cli.globals.verbose);
    }
    let mut out = Out::new(&cli.globals);
    let done = cli.command.run(&cli.globals, &mut out);
    // What a command had to show before it failed is worth seeing.
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
