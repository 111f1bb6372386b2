//! Files as `export` writes them, with anything in them; by `docs/FORMAT.md`, not by the program.

use foldspace::event::SessionStarted;
use foldspace::{Event, SessionId};
use serde_json::json;

/// The session of the files here.
pub(crate) const SESSION: SessionId = SessionId::from_bytes([0x5e; 16]);

/// A file on the way.
pub(crate) struct PortableFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) events: u64,
    pub(crate) contents: u64,
}

impl PortableFile {
    /// A file without records.
    pub(crate) fn new() -> Self {
        let bytes = [b"FOLDOUT\n", &1u32.to_le_bytes()[..], SESSION.as_bytes()].concat();
        Self { bytes, events: 0, contents: 0 }
    }

    /// A file whose session begins under that name.
    pub(crate) fn named(name: &str) -> Self {
        let started = json!({ "name": name, "backend": "memory", "program": "0.1.0" });
        Self::new().event(SessionStarted::KIND, 1, started.to_string().as_bytes())
    }

    pub(crate) fn record(mut self, kind: u8, payload: &[u8]) -> Self {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(payload);
        self
    }

    pub(crate) fn content(mut self, bytes: &[u8]) -> Self {
        self.contents += 1;
        self.record(1, bytes)
    }

    pub(crate) fn event(mut self, kind: &str, version: u16, payload: &[u8]) -> Self {
        self.events += 1;
        let commit = commit((SESSION, self.events, 1), (kind, version), payload);
        self.record(2, &commit)
    }

    /// The file with an end that counts so many events and contents.
    pub(crate) fn ended(mut self, events: u64, contents: u64) -> Vec<u8> {
        self.bytes.push(3);
        self.bytes.extend_from_slice(&events.to_le_bytes());
        self.bytes.extend_from_slice(&contents.to_le_bytes());
        let checksum = *blake3::hash(&self.bytes).as_bytes();
        self.bytes.extend_from_slice(&checksum);
        packed(&self.bytes)
    }

    /// The file with its right end.
    pub(crate) fn whole(self) -> Vec<u8> {
        let (events, contents) = (self.events, self.contents);
        self.ended(events, contents)
    }
}

/// A commit that says it has so many events and has one.
pub(crate) fn commit(head: (SessionId, u64, u32), kind: (&str, u16), payload: &[u8]) -> Vec<u8> {
    let mut commit = commit_head(head);
    put_event(&mut commit, kind, payload);
    commit
}

pub(crate) fn commit_head((session, first, count): (SessionId, u64, u32)) -> Vec<u8> {
    let mut commit = session.as_bytes().to_vec();
    commit.extend_from_slice(&first.to_le_bytes());
    commit.extend_from_slice(&1_700_000_000_000i64.to_le_bytes());
    commit.extend_from_slice(&[0; 24]);
    commit.extend_from_slice(&count.to_le_bytes());
    commit.push(0);
    commit
}

pub(crate) fn put_event(commit: &mut Vec<u8>, (kind, version): (&str, u16), payload: &[u8]) {
    commit.push(kind.len() as u8);
    commit.extend_from_slice(kind.as_bytes());
    commit.extend_from_slice(&version.to_le_bytes());
    commit.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    commit.extend_from_slice(payload);
}

pub(crate) fn packed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}
