//! The progress bar of a run, which is cleared for questions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(120);

#[derive(Clone)]
pub(super) struct Bar(Arc<Mutex<ProgressBar>>);

pub(super) struct BarPause(Bar);

impl Bar {
    pub(super) fn new(length: usize) -> Self {
        Self(Arc::new(Mutex::new(drawn(length as u64))))
    }

    fn lock(&self) -> MutexGuard<'_, ProgressBar> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_drawn(&self) -> bool {
        !self.lock().is_hidden()
    }

    pub(super) fn tell(&self, words: String) {
        self.lock().set_message(words);
    }

    pub(super) fn advance(&self) {
        self.lock().inc(1);
    }

    pub(super) fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.lock().suspend(print)
    }

    pub(super) fn step_aside(&self) -> BarPause {
        let bar = self.lock();
        let position = bar.position();
        bar.disable_steady_tick();
        bar.finish_and_clear();
        // Finishing moves it to its end.
        bar.set_position(position);
        BarPause(self.clone())
    }

    pub(super) fn finish(&self) {
        self.lock().finish_and_clear();
    }
}

impl Drop for BarPause {
    fn drop(&mut self) {
        let mut bar = self.0.lock();
        let again = drawn(bar.length().unwrap_or_default()).with_position(bar.position());
        *bar = again.with_message(bar.message());
    }
}

fn drawn(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    // The template is known to be right; the bar's own style would do, too.
    let style = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len}  {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(TICK);
    bar
}
