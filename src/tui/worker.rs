//! The thread that looks, so that the one that reads keys never waits.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use super::model::{BackgroundTask, TaskDone};

/// A thread that does errands, one after another. It ends with this, once its errand is done or cancelled.
pub(super) struct Worker {
    errands: Sender<BackgroundTask>,
    done: Receiver<TaskDone>,
}

impl Worker {
    pub(super) fn start() -> io::Result<Self> {
        let (errands, asked) = channel::<BackgroundTask>();
        let (tell, done) = channel();
        std::thread::Builder::new().name("foldspace-looking".to_owned()).spawn(move || {
            for errand in asked {
                if tell.send(errand.run()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { errands, done })
    }

    /// Hands an errand over.
    pub(super) fn send(&self, errand: BackgroundTask) -> io::Result<()> {
        self.errands.send(errand).map_err(|_| gone())
    }

    /// What is done by now.
    pub(super) fn take(&self) -> io::Result<Option<TaskDone>> {
        match self.done.try_recv() {
            Ok(done) => Ok(Some(done)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(gone()),
        }
    }
}

/// It ends before its time only by a panic, which has been told.
fn gone() -> io::Error {
    io::Error::other("the thread that looks has ended")
}
