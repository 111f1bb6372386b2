//! Two builds side by side: calls of both programs in turn, then the loads of both reports in turn.
//!
//! `compare BEFORE AFTER [--rounds N] [--quick] [calls] [LOAD...]`: each is a directory with a `report` and a
//! `foldspace`. Without names it measures the calls and all loads but the soak.

#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use foldspace_benches::loads::{self, commands};
use foldspace_benches::sample::{median, micros, quantile};
use foldspace_benches::served::{Piped, Served};
use foldspace_benches::table::{Table, against, number};
use serde_json::json;

/// Share by which a figure may be slower, beyond noise.
const SLOWER: f64 = 1.05;

fn main() -> Result<()> {
    let (mut places, mut wanted, mut rounds, mut options) = (Vec::new(), Vec::new(), 5, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => rounds = arguments.next().context("--rounds needs a number")?.parse()?,
            "--quick" => options.push(argument),
            name if name == "calls" || loads::ALL.iter().any(|(known, _)| *known == name) => wanted.push(argument),
            _ if places.len() < 2 => places.push(PathBuf::from(argument)),
            other => bail!("{other:?} is no load"),
        }
    }
    let [before, after] = places.try_into().ok().context("name two directories: before and after")?;
    let sides = [before, after];
    let is_wanted = |name: &str| wanted.iter().any(|wanted| wanted == name) || (wanted.is_empty() && name != "soak");
    if is_wanted("calls") {
        println!("{}", calls(&sides)?);
    }
    for (load, _) in loads::ALL.into_iter().filter(|(load, _)| is_wanted(load)) {
        match in_turn(&sides, load, &options, rounds) {
            Ok(table) => println!("{table}"),
            Err(error) => println!("`{load}` was left out: {error:#}\n"),
        }
    }
    Ok(())
}

type Call = Box<dyn FnMut() -> Result<Duration>>;

/// Starts a program and gives what is measured of it.
type Opener = fn(&Path) -> Result<Call>;

fn calls(sides: &[PathBuf; 2]) -> Result<Table> {
    let head = ["call", "before, p50 us (p90)", "after, p50 us (p90)", "after / before"];
    let mut table = Table::new("calls of both programs in turn, each waiting for the disk", &head);
    let all: [(&str, Opener, usize, f64); 5] = [
        ("MCP `read_file`, in memory", |program| read_over_pipes(program), 2_000, 0.8),
        ("HTTP `read_file`, in memory", |program| over_http(program, true), 2_000, 0.8),
        ("HTTP `write_file`, in memory", |program| over_http(program, false), 2_000, SLOWER),
        ("MCP `write_file` in a container", |program| in_container(program, false), 600, 0.75),
        ("MCP `read_file` in a container", |program| in_container(program, true), 600, SLOWER),
    ];
    for (name, open, count, bar) in all {
        if name.contains("container") && commands::options().is_err() {
            println!("{name} was left out: it needs CONTAINER_HOST and FOLDSPACE_IMAGE.\n");
            continue;
        }
        let mut open = [open(&sides[0].join("foldspace"))?, open(&sides[1].join("foldspace"))?];
        let mut times: [Vec<Duration>; 2] = Default::default();
        for round in 0..count {
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let took = open[side]()?;
                // The first ones only warm up.
                if round >= count / 10 {
                    times[side].push(took);
                }
            }
        }
        let part = |times: &mut Vec<Duration>, part| quantile(times, part).map_or(f64::NAN, micros);
        let middles = times.each_mut().map(|times| part(times, 0.5));
        let [before, after] = [0, 1].map(|side| (number(middles[side]), number(part(&mut times[side], 0.9))));
        let told = |(middle, late): (String, String)| format!("{middle} ({late})");
        table.row([name.to_owned(), told(before), told(after), against(middles[1] / middles[0], bar, false)]);
    }
    Ok(table)
}

fn file(number: u64) -> serde_json::Value {
    json!({ "file_path": format!("{:02}/{number:05}.txt", number % 100), "content": "x".repeat(1 << 10) })
}

fn read_over_pipes(program: &Path) -> Result<Call> {
    reading(Piped::of(program, &[])?)
}

fn reading(mut piped: Piped) -> Result<Call> {
    piped.call("write_file", file(0))?;
    Ok(Box::new(move || piped.call("read_file", json!({ "file_path": "00/00000.txt" }))))
}

fn over_http(program: &Path, is_read: bool) -> Result<Call> {
    let served = Served::of(program)?;
    let mut line = served.connect()?;
    line.ask(&line.request("POST", "/v1/sessions", Some(&json!({ "name": "bench" }))))?;
    line.timed(&line.call("bench", "write_file", file(0)))?;
    let read = line.call("bench", "read_file", json!({ "file_path": "00/00000.txt" }));
    let mut written = 0;
    Ok(Box::new(move || {
        // It ends with what asks it.
        let _ = &served;
        if is_read {
            return line.timed(&read);
        }
        written += 1;
        line.timed(&line.call("bench", "write_file", file(written)))
    }))
}

fn in_container(program: &Path, is_read: bool) -> Result<Call> {
    let options = commands::options()?;
    let engine = options.connection.unwrap_or_default();
    let mut piped = Piped::of(program, &["--backend", "podman", "--image", &options.image, "--engine", &engine])?;
    if is_read {
        return reading(piped);
    }
    let mut written = 0;
    Ok(Box::new(move || {
        written += 1;
        piped.call("write_file", file(written))
    }))
}

/// Figures by the row and the column that they stand in.
type Figures = BTreeMap<(String, String), f64>;

fn in_turn(sides: &[PathBuf; 2], load: &str, options: &[String], rounds: usize) -> Result<Table> {
    let mut runs: [Vec<Figures>; 2] = Default::default();
    for round in 0..rounds {
        for turn in 0..2 {
            let side = (round + turn) % 2;
            runs[side].push(run(&sides[side], load, options)?);
        }
    }
    let mut table = Table::new(
        format!("`{load}`, {rounds} runs of each in turn"),
        &["what", "before (from, to)", "after (from, to)", "after / before", "slower by more than 5 %, beyond noise"],
    );
    for key in runs[0][0].keys().filter(|key| runs[1][0].contains_key(*key)) {
        let [before, after] = runs.each_ref().map(|runs| {
            let figures: Vec<f64> = runs.iter().filter_map(|figures| figures.get(key).copied()).collect();
            (
                median(&figures),
                figures.iter().copied().fold(f64::NAN, f64::min),
                figures.iter().copied().fold(f64::NAN, f64::max),
            )
        });
        let told = |(middle, from, to)| format!("{} ({}, {})", number(middle), number(from), number(to));
        let ratio = after.0 / before.0;
        let is_rate = key.1.contains("/s");
        let slower = if is_rate { 1.0 / ratio } else { ratio };
        // The two were never as fast as each other.
        let is_apart = if is_rate { after.2 < before.1 } else { after.1 > before.2 };
        let verdict = if slower > SLOWER && is_apart { "**yes**" } else { "" };
        table.row([format!("{}: {}", key.0, key.1), told(before), told(after), number(ratio), verdict.to_owned()]);
    }
    Ok(table)
}

fn run(side: &Path, load: &str, options: &[String]) -> Result<Figures> {
    let mut command = Command::new(side.join("report"));
    let output = command.env("FOLDSPACE_PROGRAM", side.join("foldspace")).args(options).arg(load).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", side.display(), errors.trim());
    Ok(figures(&String::from_utf8_lossy(&output.stdout)))
}

/// The absolute figures of a report's tables: ratios to a limit are told apart by their columns' names.
fn figures(report: &str) -> Figures {
    let (mut head, mut figures) = (Vec::new(), Figures::new());
    for line in report.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            head.clear();
            continue;
        };
        let cells: Vec<&str> = row.split(" | ").collect();
        if head.is_empty() {
            head = cells;
            continue;
        }
        for (column, cell) in
            head.iter().zip(&cells).skip(1).filter(|(column, _)| !column.contains("ratio") && !column.starts_with("x "))
        {
            let number = cell.split_whitespace().next().unwrap_or_default().replace(',', "");
            figures.extend(number.parse().ok().map(|number| ((cells[0].to_owned(), (*column).to_owned()), number)));
        }
    }
    figures
}
