use std::path::PathBuf;

use clap::{Arg, Command};

use super::{Failure, Globals, Out, files};

/// Writes manual pages into a directory, or prints the first one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace man ~/.local/share/man/man1
  foldspace man | man -l -")]
pub(super) struct Man {
    /// The directory; it is created if it does not exist
    #[arg(value_hint = clap::ValueHint::DirPath)]
    directory: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(&self, _: &Globals, out: &mut Out) -> Result<(), Failure> {
        let Some(directory) = &self.directory else {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(described(super::help::full())).render(&mut page);
            rendered.map_err(|error| Failure::io("write", "the page", &error))?;
            return out.raw(&page);
        };
        files::make_directory(directory)?;
        let written = clap_mangen::generate_to(described(super::help::full()), directory);
        written.map_err(|error| Failure::io("write", directory.display(), &error))?;
        out.line(format!("manual pages written to {}", directory.display()))
    }
}

fn described(command: Command) -> Command {
    let mut program = command.disable_help_subcommand(true);
    program.build();
    for_page(program)
}

/// Adds values to the options of the synopsis, and the descriptions that short help hides.
fn for_page(command: Command) -> Command {
    let mut command = command.mut_subcommands(for_page).mut_args(|arg| arg.hide_short_help(false));
    let usage = command.render_usage().to_string();
    let is_left_out = |arg: &&Arg| !arg.is_hide_set() && !arg.is_positional() && !usage.contains(&arg.to_string());
    let options = command.get_arguments().filter(is_left_out);
    let options: Vec<String> = options.map(|arg| format!("[{}]", arg.to_string().replace(['<', '>'], ""))).collect();
    let usage = usage.trim_start_matches("Usage: ").replace("[OPTIONS]", &options.join(" "));
    command.override_usage(usage)
}
