//! The program as a person runs it.

mod applying;
mod asking_history;
mod at_terminal;
mod beginning;
mod bisecting;
mod changes;
mod commands;
mod completing;
mod containers;
mod daemons;
mod damage;
mod deny;
mod documented;
mod editing_lines;
mod effects;
mod fan_out;
mod first_run;
mod help;
mod hints;
mod hosts;
mod json;
mod ledger;
mod live;
mod long_commands;
mod look;
mod merge;
mod once;
mod operating;
mod own_directory;
mod owner;
mod places;
mod ports;
mod positions;
mod privacy;
mod pulling;
mod readable;
mod replay;
mod replicating;
mod rerun;
mod rescue;
mod rewind;
mod run;
mod sealing;
mod serve;
mod services;
mod signals;
mod sql;
mod store;
mod strangers;
mod terminal;
mod time_limits;
mod together;
mod trust;
pub(crate) mod ui;

use std::path::{Path, PathBuf};

/// The folder of a fixture.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}
