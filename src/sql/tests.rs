use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::engine::commit::Content;
use crate::engine::event::{DeleteEntry, Node, WriteFile, WriteMode};
use crate::engine::path::EntryPath;
use crate::engine::registry::Registry;
use crate::engine::session::sessions::NewSession;

/// Sessions `s0` to `s3` with 202 events each: 200 writes of ten paths in turn, and a removal.
fn store() -> (tempfile::TempDir, Sessions) {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    for name in ["s0", "s1", "s2", "s3"] {
        let session = sessions.create(NewSession::named(name)).unwrap();
        let mut commit = session.as_agent(name).commit();
        for at in 0..200 {
            let (text, path) = (format!("{name} {at}\n"), EntryPath::for_creation(&format!("d/f{}", at % 10)).unwrap());
            let mode = if at < 10 { WriteMode::Create } else { WriteMode::Overwrite };
            commit.push(&WriteFile { path, mode, node: Node::file(text.as_bytes(), false) }).unwrap();
            commit.keep(Content::of(text));
        }
        commit.push(&DeleteEntry { path: EntryPath::for_creation("d/f9").unwrap() }).unwrap();
        session.record(commit).unwrap();
    }
    (directory, sessions)
}

fn asked(sessions: &Sessions, text: &str) -> Result<SqlAnswer, SqlError> {
    query(sessions, None, text, SqlLimits::default(), || false)
}

fn rows(sessions: &Sessions, text: &str) -> Value {
    asked(sessions, text).unwrap_or_else(|error| panic!("{text}: {error}")).rows.into()
}

#[test]
fn pushed_constraints_return_the_rows_of_a_full_scan() {
    let (_directory, sessions) = store();
    let conditions = [
        "session = 's1'",
        "session = 'S1'",
        "session = NULL",
        "session IN ('s1', 's3', 'x')",
        "session COLLATE NOCASE = 'S1'",
        "seq = 7",
        "seq = 7.0",
        "seq = '7'",
        "seq = 'x'",
        "seq > 198",
        "seq >= 198.5",
        "seq < 3",
        "seq <= -1",
        "seq > -2",
        "seq BETWEEN 3 AND 5 AND seq <> 4",
        "seq > 9223372036854775807",
        "session = 's2' AND seq IN (2, 4)",
        "call = 5",
        "kind = 'DeleteEntry'",
        "kind = 'deleteentry'",
        "path = 'd/f3'",
        "path = '/d/f3'",
        "path = '../x'",
        "path = 'd/f9' AND kind = 'deleted'",
        "session = 's0' OR seq = 5",
        "session = 's0' AND session = 's1'",
        "seq IS NULL",
    ];
    for (table, all) in [("events", 808), ("changes", 804)] {
        assert_eq!(rows(&sessions, &format!("SELECT count(*) FROM {table}")), json!([[all]]));
        for condition in conditions.iter().filter(|condition| table == "changes" || !condition.contains("path")) {
            let pushed = format!("SELECT * FROM {table} WHERE {condition} ORDER BY session, seq");
            // A materialised copy of the table takes no constraints.
            let scanned =
                format!("WITH copy AS MATERIALIZED (SELECT * FROM {table}) {}", pushed.replace(table, "copy"));
            assert_eq!(rows(&sessions, &pushed), rows(&sessions, &scanned), "{pushed}");
        }
    }
}

#[test]
fn plans_have_the_constraints() {
    let (_directory, sessions) = store();
    let plan = |text: &str| rows(&sessions, &format!("EXPLAIN QUERY PLAN {text}")).to_string();
    let pinned = plan("SELECT seq FROM changes WHERE path = 'd/f1' AND session = 's1' AND seq > 5 ORDER BY seq");
    assert!(["i5", "=6", "=0", ">1"].iter().all(|part| pinned.contains(part)), "{pinned}");
    assert!(!pinned.contains("TEMP B-TREE"), "the rows come in order: {pinned}");
    let all = plan("SELECT seq FROM changes ORDER BY seq");
    assert!(all.contains("TEMP B-TREE"), "{all}");
    let joined = rows(&sessions, "SELECT count(*) FROM content(c.digest) t JOIN changes c");
    assert_eq!(joined, json!([[800]]), "the argument comes from the table behind it");
}

#[test]
fn arguments_choose_session_position_and_name() {
    let (_directory, sessions) = store();
    let id = sessions.find("s2").unwrap().id.to_string();
    assert_eq!(rows(&sessions, "SELECT count(*) FROM files"), json!([[40]]), "nine files and a directory of four");
    for session in ["s2", &id, &id[..12]] {
        let files = format!("SELECT path, size FROM files('{session}', '@12') WHERE type = 'file'");
        assert_eq!(rows(&sessions, &files).as_array().unwrap().len(), 10);
    }
    let file = "SELECT f.session, trim(t.text, char(10)) FROM files(NULL, '@202') f JOIN content(f.digest) t WHERE path = 'd/f3'";
    assert_eq!(rows(&sessions, file), json!([["s0", "s0 193"], ["s1", "s1 193"], ["s2", "s2 193"], ["s3", "s3 193"]]));
    assert_eq!(rows(&sessions, "SELECT count(*) FROM files('s1', 9999)"), json!([[0]]), "it has no such position");
    assert_eq!(rows(&sessions, "SELECT value ->> '$.writes' FROM slices('s1', 'Usage', '@11')"), json!([[10]]));
    assert_eq!(rows(&sessions, "SELECT count(*) > 5 FROM slices('s1')"), json!([[1]]));
    assert_eq!(rows(&sessions, "SELECT session, writes FROM Usage WHERE session = 's3'"), json!([["s3", 200]]));
    assert_eq!(rows(&sessions, "SELECT count(*), max(mode) FROM WriteFile"), json!([[800, "overwrite"]]));
    assert_eq!(rows(&sessions, &format!("SELECT * FROM content('{}')", "0".repeat(64))), json!([]));
    let only = query(
        &sessions,
        Some(sessions.find("s1").unwrap().id),
        "SELECT DISTINCT session FROM events",
        SqlLimits::default(),
        || false,
    );
    assert_eq!(Value::from(only.unwrap().rows), json!([["s1"]]));
}

#[test]
fn limits_end_queries() {
    let (_directory, sessions) = store();
    let within = |limits, text| query(&sessions, None, text, limits, || false);
    let few = within(SqlLimits { rows: 3, ..SqlLimits::default() }, "SELECT seq FROM events").unwrap();
    assert_eq!((few.rows.len(), few.truncated), (3, true));
    let exact = within(SqlLimits { rows: 3, ..SqlLimits::default() }, "SELECT seq FROM events LIMIT 3").unwrap();
    assert_eq!((exact.rows.len(), exact.truncated), (3, false));
    let short = within(SqlLimits { bytes: 100, ..SqlLimits::default() }, "SELECT seq FROM events").unwrap();
    assert_eq!((short.rows.len(), short.truncated), (12, true));
    let long = within(SqlLimits { bytes: 100, ..SqlLimits::default() }, "SELECT hex(zeroblob(100))");
    assert!(matches!(long, Err(SqlError::TooLarge { limit: 100, .. })), "{long:?}");
    let late = within(SqlLimits { time: Duration::ZERO, ..SqlLimits::default() }, "SELECT seq FROM events");
    assert!(matches!(late, Err(SqlError::TimedOut(_))), "{late:?}");
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";
    let is_cancelled = move || counted.fetch_add(1, Ordering::Relaxed) > 10;
    let cancelled = query(&sessions, None, endless, SqlLimits::default(), is_cancelled);
    assert!(matches!(cancelled, Err(SqlError::Cancelled)), "{cancelled:?}");
    assert_eq!(rows(&sessions, "SELECT count(*) FROM events"), json!([[808]]), "other queries still work");
}

#[test]
fn rows_are_written_as_parquet() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    let (_directory, sessions) = store();
    let written = |text: &str| {
        let mut bytes = Vec::new();
        asked(&sessions, text).unwrap().write_parquet(&mut bytes).map(|()| bytes)
    };
    let bytes =
        written("SELECT seq AS n, seq / 2.0 AS half, nullif(kind, 'WriteFile') AS kind, NULL AS none FROM events");
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes.unwrap())).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4 * 202);
    let first = &rows[0];
    assert_eq!((first.get_long(0).unwrap(), first.get_double(1).unwrap()), (1, 0.5));
    assert_eq!(first.get_string(2).unwrap(), "SessionStarted");
    assert!(rows[1].get_string(2).is_err(), "it is null");
    for (text, count) in [("SELECT 1 AS a WHERE 0", 0), ("SELECT 1 AS a, 'x' AS b", 1)] {
        let reader = SerializedFileReader::new(bytes::Bytes::from(written(text).unwrap())).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), count, "{text}");
    }
    let refused = written("SELECT 1 AS a, 2 AS a").unwrap_err().to_string();
    assert!(refused.contains("two columns are called \"a\""), "{refused}");
}
