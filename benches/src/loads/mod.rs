//! The loads: each measures and gives tables.

pub mod append;
pub mod bisect;
pub mod calls;
pub mod capture;
pub mod children;
pub mod clone;
pub mod cluster;
pub mod commands;
pub mod exec;
pub mod faces;
pub mod follow;
pub mod fork;
pub mod grown;
pub mod growth;
pub mod look;
pub mod many;
pub mod materialise;
pub mod network;
pub mod no_wait;
pub mod open;
pub mod own;
pub mod policy;
pub mod portable;
pub mod python;
pub mod replay;
pub mod replicate;
pub mod rewind;
pub mod soak;
pub mod state_at;
pub mod terminal;

use anyhow::Result;

use crate::table::Table;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Seconds: to see that it runs.
    Quick,
    /// Minutes: for figures.
    Full,
}

impl Size {
    /// One of two numbers.
    pub fn of<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// A load by its name.
pub type Report = fn(Size) -> Result<Vec<Table>>;

/// The loads that start containers.
pub const NEED_AN_ENGINE: [&str; 4] = ["commands", "capture", "fork", "rewind"];

/// Loads of the whole program, which `FOLDSPACE_PROGRAM` names where it does not lie beside the report.
pub const NEED_THE_PROGRAM: [&str; 9] =
    ["exec", "faces", "follow", "look", "many", "own", "python", "soak", "terminal"];

/// All loads.
pub const ALL: [(&str, Report); 29] = [
    ("append", append::report),
    ("append_no_wait", no_wait::report),
    ("tool_calls", calls::report),
    ("replay", replay::report),
    ("state_at", state_at::report),
    ("network", network::report),
    ("own", own::report),
    ("open", open::report),
    ("look", look::report),
    ("many", many::report),
    ("exec", exec::report),
    ("clone", clone::report),
    ("policy", policy::report),
    ("portable", portable::report),
    ("replicate", replicate::report),
    ("growth", growth::report),
    ("python", python::report),
    ("commands", commands::report),
    ("capture", capture::report),
    ("children", children::report),
    ("fork", fork::report),
    ("rewind", rewind::report),
    ("materialise", materialise::report),
    ("bisect", bisect::report),
    ("faces", faces::report),
    ("follow", follow::report),
    ("terminal", terminal::report),
    ("soak", soak::report),
    ("cluster", cluster::report),
];
