//! SQL over 1,000,000 events, beside SQLite on a table with the same rows:
//! `cargo run --profile dist -p foldspace-benches --bin sql [SESSIONS]`, with 100 sessions by default.

#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::time::Instant;

use anyhow::Result;
use foldspace::event::{Node, WriteFile, WriteMode};
use foldspace::sql::{SqlLimits, query};
use foldspace::store::Content;
use foldspace::{EntryPath, NewSession, Registry, Sessions};
use rusqlite::{Connection, params};

/// Commits of all sessions.
const COMMITS: u64 = 10_000;
/// Events of a commit.
const EVENTS: u64 = 100;
const PATHS: u64 = 500;

const QUERIES: [(&str, &str); 4] = [
    ("session and path", "SELECT count(*), max(seq) FROM events WHERE session = 's0' AND path = 'src/f7.rs'"),
    ("session and position", "SELECT kind FROM events WHERE session = 's0' AND seq = 5000"),
    ("full scan", "SELECT count(*), sum(seq) FROM events"),
    ("full scan by kind and agent", "SELECT kind, agent, count(*) FROM events GROUP BY kind, agent"),
];

fn main() -> Result<()> {
    let place = std::env::temp_dir().join(format!("foldspace-sql-{}", std::process::id()));
    let sessions = Sessions::open(&place, Registry::standard())?;
    let mut table = Connection::open(place.join("peer.sqlite"))?;
    table.execute_batch(
        "CREATE TABLE events (session TEXT, seq INTEGER, kind TEXT, agent TEXT, path TEXT, data TEXT)",
    )?;
    let rows = table.transaction()?;
    let node = Node::file(b"text", false);
    let count: u64 = std::env::args().nth(1).map_or(Ok(100), |given| given.parse())?;
    for number in 0..count {
        let name = format!("s{number}");
        let session = sessions.create(NewSession::named(name.as_str()))?.as_agent("coder");
        for commit_number in 0..COMMITS / count {
            let mut commit = session.commit();
            commit.keep(Content::of("text"));
            for at in 0..EVENTS {
                let path = format!("src/f{}.rs", (commit_number * EVENTS + at) % PATHS);
                let (entry, mode) = (EntryPath::for_creation(&path)?, WriteMode::Overwrite);
                let write = WriteFile { path: entry, mode, node: node.clone() };
                commit.push(&write)?;
                let (seq, data) = (commit_number * EVENTS + at + 2, serde_json::to_string(&write)?);
                let mut insert = rows.prepare_cached("INSERT INTO events VALUES (?, ?, 'WriteFile', 'coder', ?, ?)")?;
                insert.execute(params![name, seq as i64, path, data])?;
            }
            session.record(commit)?;
        }
    }
    rows.execute_batch(
        "CREATE INDEX by_session ON events (session, seq); CREATE INDEX by_path ON events (session, path)",
    )?;
    rows.commit()?;
    for (what, text) in QUERIES {
        for _ in 0..3 {
            let begun = Instant::now();
            let answer = query(&sessions, None, text, SqlLimits::default(), || false)?;
            let here = begun.elapsed();
            let begun = Instant::now();
            let mut statement = table.prepare(text)?;
            let mut found = statement.query([])?;
            while found.next()?.is_some() {}
            println!("{what}: {here:.1?}, SQLite on a table {:.1?}; {:?}", begun.elapsed(), answer.rows.first());
        }
    }
    sessions.close();
    std::fs::remove_dir_all(&place)?;
    Ok(())
}
