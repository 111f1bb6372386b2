//! Runs the loads and prints their figures as markdown.

#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::path::Path;

use anyhow::{Result, bail};
use foldspace_benches::loads::{self, Size};
use foldspace_benches::{plots, served};

fn main() -> Result<()> {
    if let Some(store) = std::env::var_os(loads::open::CHILD) {
        println!("{}", loads::open::child(store.as_ref())?);
        return Ok(());
    }
    if let Some(store) = std::env::var_os(loads::children::CHILD) {
        println!("{}", loads::children::child(store.as_ref())?);
        return Ok(());
    }
    if let Some(store) = std::env::var_os(loads::look::CHILD) {
        match loads::look::child(store.as_ref())? {}
    }
    let (mut size, mut wanted) = (Size::Full, Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => size = Size::Quick,
            "--plots" => {
                let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/BENCHMARKS.md");
                println!("{}", plots::write(&document)?.join("\n"));
                return Ok(());
            }
            name if loads::ALL.iter().any(|(known, _)| *known == name) => wanted.push(argument),
            other => bail!("{other:?} is no load; there are {}", names()),
        }
    }
    println!("{}\n", machine());
    for (name, report) in loads::ALL {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            // Without an engine a run of everything is one of everything else.
            if wanted.is_empty() && loads::NEED_AN_ENGINE.contains(&name) && loads::commands::options().is_err() {
                println!("`{name}` was left out: it needs CONTAINER_HOST and FOLDSPACE_IMAGE.\n");
                continue;
            }
            if wanted.is_empty() && loads::NEED_THE_PROGRAM.contains(&name) && served::program().is_err() {
                println!("`{name}` was left out: it needs the program, or FOLDSPACE_PROGRAM.\n");
                continue;
            }
            if wanted.is_empty() && name == "cluster" && std::env::var_os(loads::cluster::SERVERS).is_none() {
                println!("`{name}` was left out: it needs FOLDSPACE_NATS, which tests/nats/ready.sh prints.\n");
                continue;
            }
            for table in report(size)? {
                println!("{table}");
            }
        }
    }
    Ok(())
}

fn names() -> String {
    loads::ALL.map(|(name, _)| name).join(", ")
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let command: Vec<String> = std::env::args().skip(1).collect();
    format!(
        "`cargo run --profile dist -p foldspace-benches --bin report -- {}`: {cores} cores, {:.0} GiB of memory, Linux {}, \
         allocator mimalloc",
        command.join(" "),
        memory / f64::from(1 << 20),
        kernel.trim()
    )
}
