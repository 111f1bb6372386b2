//! Help: the common commands, and all commands with `help --all`.

use clap::{Arg, CommandFactory};

use super::{Cli, CliCommand, Exit};

/// The option that names the session.
pub(super) const OPTION: &str = "named_session";

/// The commands of plain help. A build may lack some.
const COMMON: &[(&str, &[&str])] = &[
    ("Begin", &["new", "exec", "run", "attach"]),
    ("Look", &["sessions", "log", "show", "diff", "ui"]),
    ("Go back", &["undo", "rewind", "bisect"]),
    ("Try other ways", &["fork", "merge"]),
    ("Connect and check", &["mcp", "doctor"]),
];
const MORE: &str = "\
`foldspace help COMMAND` explains a command. `foldspace help --all` lists all commands, the options
that every command takes, positions and exit codes.";
const EXAMPLES: &str = "\
Examples:
  foldspace new NAME --mount ./src              a session, on a copy of ./src
  foldspace exec NAME make test                 a command, run and recorded
  foldspace log NAME --calls                    the calls and their outcomes
  foldspace show NAME 42                        an event, or a call as a whole
  foldspace ls NAME -R --at -10                 the files ten events ago
  foldspace diff NAME 10..                      changes since event 10
  foldspace cat NAME src/main.rs --before 42    a file before call 42
";
const NOTES: &str = "\
A session is given by its name or by the beginning of its id.

Positions: a call or an event (12), an exact event (@12), before a call (before:12), a
number of events ago (-5), a time (2025-01-31T12:00:00Z), an age (10m, 2h, 1h30m), or a
name (tag:NAME). 0 is before the first event. Names are set over HTTP.

Data: --data DIR, else FOLDSPACE_DATA, else XDG_DATA_HOME/foldspace, else
~/.local/share/foldspace. FOLDSPACE_PAGER or PAGER sets the pager; NO_COLOR turns colour off.
";
/// The template of a command's help. It replaces the options that every command takes by a pointer.
const OF_COMMAND: &str = "\
{before-help}{about-with-newline}
{usage-heading} {usage}

{all-args}{after-help}

`foldspace help --all` has the options of every command, such as --data, --json and --in-process.";

/// Returns the definition of the program. Its help lists the common commands.
pub(super) fn definition() -> clap::Command {
    let command = commands();
    let groups = listed(&command, COMMON);
    command
        .help_template(format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{after-help}}"))
        .after_help(MORE)
        .after_long_help(format!("{EXAMPLES}\n{MORE}"))
}

/// Returns the definition of the program. Its help lists all commands and options.
pub(super) fn full() -> clap::Command {
    let command = commands();
    let groups = listed(&command, CliCommand::GROUPS);
    let options = "\n\nOptions of every command:\n{options}{after-help}";
    command
        .help_template(format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{options}"))
        .after_long_help(format!("{EXAMPLES}\n{NOTES}\nExit codes:\n{}", Exit::table()))
}

/// Returns the definition of the program, whose commands hide the options of every command.
fn commands() -> clap::Command {
    let program = Cli::command();
    let globals: Vec<Arg> = program.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    program.mut_subcommands(|command| {
        let hidden = globals.iter().cloned().map(|global| global.hide(true));
        with_option(command).args(hidden).help_template(OF_COMMAND)
    })
}

/// Adds the option `-s` to a command that takes a session as its first argument.
fn with_option(command: clap::Command) -> clap::Command {
    if !takes_session(&command) {
        return command;
    }
    let about = "Names the session [default: the first argument, or the session of the current directory]";
    command.arg(Arg::new(OPTION).short('s').long("session").value_name("NAME").help(about))
}

/// Returns true if a command takes a session as its first argument.
pub(super) fn takes_session(command: &clap::Command) -> bool {
    let is_first = command.get_positionals().next().is_some_and(|first| first.get_id() == "session");
    let has_own = |arg: &Arg| arg.get_short() == Some('s') || arg.get_long() == Some("session");
    is_first && !command.get_arguments().any(|arg| arg.get_id() != OPTION && has_own(arg))
}

fn listed(definition: &clap::Command, groups: &[(&str, &[&str])]) -> String {
    let line = |name: &&str| {
        let is_meant =
            |command: &&clap::Command| command.get_name().replace('-', "") == name.replace('-', "").to_lowercase();
        let command = definition.get_subcommands().find(is_meant).filter(|command| !command.is_hide_set())?;
        Some(format!("  {:<11}  {}\n", command.get_name(), command.get_about().cloned().unwrap_or_default()))
    };
    let group = |(title, names): &(&str, &[&str])| {
        let lines: String = names.iter().filter_map(line).collect();
        if lines.is_empty() { lines } else { format!("{title}:\n{lines}\n") }
    };
    groups.iter().map(group).collect::<String>().trim_end().to_owned()
}
