//! The pager for long output on a terminal.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::Failure;

pub(super) struct Pager(Child);

impl Pager {
    #[expect(clippy::disallowed_methods, reason = "a pager is a process, and a face starts it")]
    pub(super) fn start() -> Option<Self> {
        let chosen = ["FOLDSPACE_PAGER", "PAGER"].iter().find_map(|name| std::env::var(name).ok());
        let mut command = match chosen.as_deref().map(str::trim) {
            Some("" | "cat") => return None,
            Some(line) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(line);
                shell
            }
            None => {
                let mut less = Command::new("less");
                less.arg("-FRX");
                less
            }
        };
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        command.stdin(Stdio::piped()).spawn().ok().map(Self)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.0.stdin {
            Some(stdin) => stdin.write_all(bytes),
            None => Ok(()),
        }
    }

    pub(super) fn finish(mut self) -> Result<(), Failure> {
        drop(self.0.stdin.take());
        match self.0.wait() {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::io("wait for", "the pager", &error)),
        }
    }
}
