use clap_complete::Shell;

use super::{Failure, Globals, Out};

/// Prints a shell's completions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace completions bash \\
    > ~/.local/share/bash-completion/completions/foldspace
  foldspace completions zsh > \"${fpath[1]}/_foldspace\"")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self, _: &Globals, out: &mut Out) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut super::definition(), "foldspace", &mut text);
        out.raw(&text)
    }
}
