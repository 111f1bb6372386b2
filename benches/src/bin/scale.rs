//! Simulates sessions on many hosts and prints the tables of `docs/scale.md`.

use std::io::Write;

use anyhow::{Error, Result};
use foldspace_benches::scale::{Inputs, tables};

fn main() -> Result<()> {
    let inputs = Inputs::of_flags(std::env::args().skip(1)).map_err(Error::msg)?;
    for table in tables(&inputs) {
        writeln!(std::io::stdout(), "{table}")?;
    }
    Ok(())
}
