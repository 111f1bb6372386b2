//! The progress bar of a run, which is cleared for questions.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(120);

pub(super) fn drawn(length: usize) -> ProgressBar {
    let bar = ProgressBar::new(length as u64);
    // The template is valid, so the default style is never used.
    let style = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len}  {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(TICK);
    bar
}

/// Hides the bar until this guard is dropped.
pub(super) struct BarPause {
    bar: ProgressBar,
    position: u64,
}

impl BarPause {
    pub(super) fn begin(bar: &ProgressBar) -> Self {
        let position = bar.position();
        bar.disable_steady_tick();
        bar.finish_and_clear();
        Self { bar: bar.clone(), position }
    }
}

impl Drop for BarPause {
    fn drop(&mut self) {
        self.bar.reset();
        self.bar.set_position(self.position);
        self.bar.enable_steady_tick(TICK);
    }
}
