//! A command's standard streams: pipes or a terminal.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::feed::CommandFeed;
use crate::sys::{open_terminal, set_nonblocking, set_window};
use crate::wire::RunRequest;

pub(crate) struct CommandStreams {
    pub(crate) feed: Option<CommandFeed>,
    pub(crate) outputs: [Option<File>; 2],
    /// The runner's side of the terminal.
    pub(crate) terminal: Option<File>,
    /// The command's sides; `None` for the null device.
    inner: [Option<OwnedFd>; 3],
}

impl CommandStreams {
    pub(crate) fn make(run: &RunRequest<'_>) -> io::Result<Self> {
        match run.terminal {
            Some(window) => {
                let (outer, inner) = open_terminal()?;
                set_window(&outer, window.rows, window.columns)?;
                Self::terminal(run, outer, inner)
            }
            None => Self::pipes(run),
        }
    }

    fn terminal(run: &RunRequest<'_>, outer: File, inner: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&outer)?;
        let mut feed = CommandFeed::new(outer.try_clone()?, run.stdin, true);
        if !run.is_fed {
            feed.end();
        }
        let (output, stdin, stdout) = (outer.try_clone()?, inner.try_clone()?, inner.try_clone()?);
        let inner = [Some(stdin), Some(stdout), Some(inner)];
        Ok(Self { feed: Some(feed), outputs: [Some(output), None], terminal: Some(outer), inner })
    }

    fn pipes(run: &RunRequest<'_>) -> io::Result<Self> {
        let mut inner = [None, None, None];
        let mut outputs = [None, None];
        let mut feed = None;
        if run.is_fed || !run.stdin.is_empty() {
            let (reader, writer) = io::pipe()?;
            set_nonblocking(&writer)?;
            let mut fed = CommandFeed::new(File::from(OwnedFd::from(writer)), run.stdin, false);
            if !run.is_fed {
                fed.end();
            }
            (feed, inner[0]) = (Some(fed), Some(reader.into()));
        }
        for (output, inner) in outputs.iter_mut().zip(&mut inner[1..]).filter(|_| !run.discard_output) {
            let (reader, writer) = io::pipe()?;
            set_nonblocking(&reader)?;
            (*output, *inner) = (Some(File::from(OwnedFd::from(reader))), Some(writer.into()));
        }
        if run.merge_output {
            let merged = inner[1].as_ref().map(OwnedFd::try_clone).transpose()?;
            (outputs[1], inner[2]) = (None, merged);
        }
        Ok(Self { feed, outputs, terminal: None, inner })
    }

    pub(crate) fn inner<'a>(&'a self, null: &'a File) -> [BorrowedFd<'a>; 3] {
        self.inner.each_ref().map(|inner| inner.as_ref().map_or(null.as_fd(), AsFd::as_fd))
    }
}
