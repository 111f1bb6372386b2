use std::path::PathBuf;

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
            let rendered = clap_mangen::Man::new(super::help::full()).render(&mut page);
            rendered.map_err(|error| Failure::io("write", "the page", &error))?;
            return out.raw(&page);
        };
        files::make_directory(directory)?;
        let written = clap_mangen::generate_to(super::help::full(), directory);
        written.map_err(|error| Failure::io("write", directory.display(), &error))?;
        out.line(format!("manual pages written to {}", directory.display()))
    }
}
