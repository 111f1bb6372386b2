//! The program `foldspace` with a slice and an event of your own.
//!
//! `cargo run --example own_program -- state SESSION Budget`

use std::process::ExitCode;

use foldspace::event::ValueError;
use foldspace::{Event, Recorded, Registry, Slice};
use serde::{Deserialize, Serialize};

/// Money was spent on a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Spent {
    cents: u64,
}

impl Event for Spent {
    const KIND: &'static str = "spent";
}

/// The total spent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Budget {
    cents: u64,
}

impl Slice for Budget {
    const NAME: &'static str = "Budget";
}

fn main() -> Result<ExitCode, ValueError> {
    let add = |budget: Budget, spent: &Recorded<Spent>| Budget { cents: budget.cents + spent.event.cents };
    Ok(foldspace::program::main_with(Registry::standard().slice::<Budget>()?.reducer(add)?))
}
