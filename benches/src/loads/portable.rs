//! A long session into one file and out of it, beside zstd and CRC-32C alone on the same bytes.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use foldspace::event::Digest;
use foldspace::history::{export_session, import_session};
use foldspace::session::{Keep, SnapshotPolicy};
use foldspace::store::{Content, Durability};
use foldspace::{Event, NewSession, Session, Sessions};
use serde::{Deserialize, Serialize};

use super::Size;
use crate::disk::{Scratch, bytes_below};
use crate::journal::{self, Plan, Shape};
use crate::sample::median;
use crate::table::{Table, against, number};

const OFF: SnapshotPolicy = SnapshotPolicy { every: 0, keep: Keep::All };
const TARGET: f64 = 300_000.0;
/// As exports are compressed.
const LEVEL: i32 = 3;
const AT_ONCE: usize = 64 << 10;

/// An own event that declares what it refers to, in every tenth a content of 1,000 bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Measured {
    number: u64,
    picture: Option<Digest>,
    text: String,
}

impl Event for Measured {
    const KIND: &'static str = "bench/Measured";

    fn references(&self) -> Option<Vec<Digest>> {
        Some(self.picture.into_iter().collect())
    }
}

fn measured(sessions: &Sessions, events: u64) -> Result<Session> {
    let session = sessions.create(NewSession::named("long"))?;
    for number in 1..events {
        let mut commit = session.commit();
        let picture = number.is_multiple_of(10).then(|| Content::of(format!("{number} ").repeat(1_000 / 7)));
        let text = "measured ".repeat(12);
        commit.push(&Measured { number, picture: picture.as_ref().map(|content| content.digest), text })?;
        picture.into_iter().for_each(|content| commit.keep(content));
        drop(session.submit(commit)?);
    }
    Ok(session)
}

fn open(directory: &Path) -> Result<Sessions> {
    journal::open(directory, Durability::Synced, false, OFF)
}

/// The session in a file; how long it took.
fn export(sessions: &Sessions, session: &Session, path: &Path) -> Result<Duration> {
    let start = Instant::now();
    let mut file = File::create(path)?;
    export_session(sessions, session.id(), &mut file)?;
    Ok(start.elapsed())
}

/// The file's session in a fresh store, durable; how long it took.
fn import(path: &Path, events: u64) -> Result<Duration> {
    let scratch = Scratch::new("imported")?;
    let sessions = open(scratch.path())?;
    let mut file = File::open(path)?;
    let start = Instant::now();
    let summary = import_session(&sessions, &mut file, None)?;
    let took = start.elapsed();
    ensure!(summary.added == events, "the import is not whole");
    sessions.close();
    Ok(took)
}

/// The same bytes through zstd and CRC-32C alone, as many at once as an export and an import take: how long they take to
/// be compressed into a file, and out of it.
fn limit(path: &Path, again: &Path) -> Result<(Duration, Duration)> {
    let bytes = zstd::decode_all(BufReader::new(File::open(path)?))?;
    let (mut found, mut crc, mut buffer) = (0, 0, vec![0; AT_ONCE]);
    let start = Instant::now();
    let mut file = zstd::stream::read::Decoder::new(File::open(path)?)?;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        crc = crc32c::crc32c_append(crc, &buffer[..read]);
        found += read;
    }
    let out = start.elapsed();
    ensure!(found == bytes.len() && crc == crc32c::crc32c(&bytes), "it is not what it was");
    let start = Instant::now();
    let mut file = zstd::stream::write::Encoder::new(File::create(again)?, LEVEL)?;
    crc = 0;
    for part in bytes.chunks(AT_ONCE) {
        crc = crc32c::crc32c_append(crc, part);
        file.write_all(part)?;
    }
    file.finish()?;
    let taken = start.elapsed();
    ensure!(std::fs::metadata(again)?.len() > 0 && crc == crc32c::crc32c(&bytes), "nothing was written");
    Ok((taken, out))
}

/// Measures sessions of each shape.
///
/// # Errors
/// Fails with what the store or the bench reports.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let events = size.of(21_000, 210_000);
    let head = [
        "session",
        "export, events/s (target >= 300,000)",
        "zstd and CRC alone took of that",
        "import, events/s (target >= 300,000)",
        "zstd and CRC alone took of that",
        "journal, bytes an event",
    ];
    let mut table = Table::new(format!("one file: {events} events"), &head);
    for name in ["`WriteFile`, one a commit", "tool calls", "own events, a content of 1,000 bytes in every tenth"] {
        let scratch = Scratch::new("portable")?;
        let sessions = open(scratch.path())?;
        let plan = |shape| Plan { shape, events, paths: 10_000 };
        let session = match name {
            "tool calls" => journal::write(&sessions, "long", plan(Shape::Calls))?,
            "`WriteFile`, one a commit" => journal::write(&sessions, "long", plan(Shape::Writes))?,
            _ => measured(&sessions, events)?,
        };
        sessions.store().sync()?;
        let (path, again) = (scratch.path().join("long.fold"), scratch.path().join("again.zst"));
        let (count, mut figures) = (session.head()?, [const { Vec::new() }; 4]);
        for _ in 0..size.of(3, 5) {
            let exported = export(&sessions, &session, &path)?;
            let (taken, out) = limit(&path, &again)?;
            let imported = import(&path, count)?;
            let all = [exported, taken, imported, out];
            figures.iter_mut().zip(all).for_each(|(figures, took)| figures.push(took.as_secs_f64()));
        }
        let [exported, taken, imported, out] = figures.map(|figures| median(&figures));
        drop(session);
        sessions.close();
        table.row([
            name.to_owned(),
            against(count as f64 / exported, TARGET, true),
            number(taken / exported),
            against(count as f64 / imported, TARGET, true),
            number(out / imported),
            number(bytes_below(&scratch.path().join("journal"))? as f64 / count as f64),
        ]);
    }
    Ok(vec![table])
}
