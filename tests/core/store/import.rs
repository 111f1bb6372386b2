//! Files that `import` must refuse.

use std::io::Cursor;
use std::sync::Arc;

use foldspace::event::SystemClock;
use foldspace::history::{HistoryError, import_session};
use foldspace::session::SnapshotPolicy;
use foldspace::{MemoryStore, Registry, SessionError, Sessions};

use super::unpacked;
use crate::rig::portable::{PortableFile, SESSION, commit, packed};

fn sessions() -> Sessions {
    let store = Arc::new(MemoryStore::default());
    Sessions::new(store, Registry::standard(), Arc::new(SystemClock::default()), SnapshotPolicy::default()).unwrap()
}

fn refused(sessions: &Sessions, file: &[u8]) -> String {
    let refused = import_session(sessions, &mut Cursor::new(file), None).unwrap_err();
    assert!(sessions.list().unwrap().is_empty(), "nothing is half imported");
    refused.to_string()
}

#[test]
fn import_name_that_create_refuses_is_refused() {
    let sessions = sessions();
    let long = "a".repeat(100_000);
    for name in ["..", "/", "", "a\nb", "\u{1b}[31m", "-rf", ".hidden", "a b", "caf\u{e9}", "a/../b", &long] {
        let file = PortableFile::named(name).whole();
        let error = import_session(&sessions, &mut Cursor::new(&file), None).unwrap_err();
        assert!(matches!(error, HistoryError::Session(SessionError::BadName { .. })), "{name:?}: {error}");
        assert!(!error.to_string().contains(['\n', '\u{1b}']) && error.to_string().len() < 400, "{error}");
        assert!(sessions.list().unwrap().is_empty());
        assert!(import_session(&sessions, &mut Cursor::new(&file), Some("-rf")).is_err());
        let summary = import_session(&sessions, &mut Cursor::new(&file), Some("better")).unwrap();
        assert_eq!((summary.name.as_str(), sessions.find("better").unwrap().id), ("better", SESSION));
        sessions.remove(SESSION).unwrap();
    }
}

#[test]
fn import_count_or_length_out_of_bounds_is_refused() {
    let sessions = sessions();
    for count in [0, 1, 3, 1 << 32, 1 << 63, u64::MAX] {
        let counted = |file: PortableFile, events, contents| refused(&sessions, &file.ended(events, contents));
        let said = counted(PortableFile::named("s").content(b"x").event("Note", 1, b""), count, 1);
        assert!(said.contains("counts of events and contents are wrong"), "{said}");
        let said = counted(PortableFile::named("s"), 1, count.max(2));
        assert!(said.contains("counts of events and contents are wrong"), "{said}");
    }
    for length in [(1u32 << 30) + 1, 1 << 31, u32::MAX] {
        for kind in [1, 2] {
            let mut file = PortableFile::named("s");
            file.bytes.push(kind);
            file.bytes.extend_from_slice(&length.to_le_bytes());
            let said = refused(&sessions, &file.whole());
            assert!(said.contains(&format!("{length} bytes, which is over its limit")), "{said}");
        }
    }
    let odd = [
        commit((SESSION, 2, 0), ("Note", 1), b""),
        commit((SESSION, 2, 2), ("Note", 1), b""),
        commit((SESSION, 2, u32::MAX), ("Note", 1), b""),
        commit((SESSION, 0, 1), ("Note", 1), b""),
        commit((SESSION, 3, 1), ("Note", 1), b""),
        commit((SESSION, 1 << 63, 1), ("Note", 1), b""),
        commit((SESSION, u64::MAX, 1), ("Note", 1), b""),
        commit((foldspace::SessionId::from_bytes([1; 16]), 2, 1), ("Note", 1), b""),
        commit((SESSION, 2, 1), (&"k".repeat(101), 1), b""),
        commit((SESSION, 2, 1), ("Note", u16::MAX), b""),
        [commit((SESSION, 2, 1), ("Note", 1), b""), b"more".to_vec()].concat(),
        [commit((SESSION, 2, 3), ("Note", 1), b""), commit((SESSION, 3, 1), ("Note", 1), b"")].concat(),
        b"no commit".to_vec(),
        Vec::new(),
    ];
    for record in odd {
        let file = PortableFile { events: 2, ..PortableFile::named("s").record(2, &record) };
        refused(&sessions, &file.whole());
    }
    let half: [(&str, u16, &[u8]); 2] = [("Note", 1, b"right"), ("Note", u16::MAX, b"not")];
    refused(&sessions, &PortableFile::named("s").together(&half).whole());
    assert!(refused(&sessions, &PortableFile::new().whole()).contains("no events"));
}

#[test]
fn import_unknown_record_format_or_beginning_is_refused() {
    let sessions = sessions();
    for kind in [0, 5, 9, 255] {
        let said = refused(&sessions, &PortableFile::named("s").record(kind, b"?").whole());
        assert!(said.contains("unknown kind"), "{said}");
    }
    for format in [0u32, 3, u32::MAX] {
        let mut file = PortableFile::named("s");
        file.bytes[8..12].copy_from_slice(&format.to_le_bytes());
        assert!(refused(&sessions, &file.whole()).contains(&format!("it is of format {format}")));
    }
    let mut file = PortableFile::named("s");
    file.bytes[0] = b'X';
    assert!(refused(&sessions, &file.whole()).contains("not a foldspace export"));
    for bytes in [&b""[..], b"hello", &[0x28, 0xb5, 0x2f, 0xfd], &[0; 100]] {
        refused(&sessions, bytes);
    }
}

#[test]
fn import_file_that_ends_early_or_was_changed_leaves_nothing() {
    let sessions = sessions();
    let file = PortableFile::named("s").content(&[7; 3000]).event("Note", 1, b"one").whole();
    for cut in 0..file.len() {
        refused(&sessions, &file[..cut]);
    }
    let mut bytes = unpacked(&file);
    for at in 0..bytes.len() {
        bytes[at] ^= 1;
        refused(&sessions, &packed(&bytes));
        bytes[at] ^= 1;
    }
    assert!(import_session(&sessions, &mut Cursor::new(&file), None).is_ok());
}
