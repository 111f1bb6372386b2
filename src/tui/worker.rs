//! The thread that reads histories, so that the input thread never waits.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use super::model::{BackgroundTask, TaskDone};

/// A thread that runs tasks in order. Once this is dropped, it ends after its current task.
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

    pub(super) fn send(&self, errand: BackgroundTask) -> io::Result<()> {
        self.errands.send(errand).map_err(|_| gone())
    }

    pub(super) fn take(&self) -> io::Result<Option<TaskDone>> {
        match self.done.try_recv() {
            Ok(done) => Ok(Some(done)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(gone()),
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the background thread has ended")
}
