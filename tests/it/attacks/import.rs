//! Files that the program must import without harm.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use foldspace::event::{DeleteEntry, Node, WriteFile, WriteMode};
use foldspace::{EntryPath, Event};

use crate::rig::portable::PortableFile;

/// A file event in the journal's form, with other bytes for its path.
fn pathed<E: Event>(event: &E, path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    event.encode(&mut bytes).unwrap();
    let stand_in = b"qqqqqqqqqqqqqqqqqqqqqqqq";
    let at = bytes.windows(path.len()).position(|window| window == &stand_in[..path.len()]).unwrap();
    bytes[at..at + path.len()].copy_from_slice(path);
    bytes
}

#[test]
fn import_path_that_leaves_the_workspace_reaches_nothing() {
    let world = tempfile::tempdir().unwrap();
    let paths: [&[u8]; 12] =
        [b"../1", b"/etc", b"a//b", b"d/..", b"a\0b", b".", b"..", b"./a", b"a/./b", b"../../../../tmp/x", b"/", b"a/"];
    for (number, path) in paths.into_iter().enumerate() {
        let name = EntryPath::lookup(std::str::from_utf8(&b"qqqqqqqqqqqqqqqqqqqqqqqq"[..path.len()]).unwrap()).unwrap();
        let write = |node| WriteFile { path: name.clone(), mode: WriteMode::Create, node };
        let link = Node::Symlink { target: b"../../..".to_vec() };
        let file = PortableFile::named("s")
            .content(b"theirs")
            .event(WriteFile::KIND, 1, &pathed(&write(Node::file(b"theirs", true)), path))
            .event(WriteFile::KIND, 1, &pathed(&write(link), path))
            .event(DeleteEntry::KIND, 1, &pathed(&DeleteEntry { path: name.clone() }, path))
            .event(WriteFile::KIND, 1, &pathed(&write(Node::file(b"theirs", false)), path))
            .whole();
        std::fs::write(world.path().join("odd.fold"), file).unwrap();
        let data = format!("data{number}");
        let run = |arguments: &[&str]| foldspace(world.path(), &[&["--data", &data], arguments].concat());
        assert!(run(&["import", "odd.fold"]).status.success(), "a path that is none is an unreadable event");
        for arguments in [&["ls", "s", "-R"][..], &["log", "s"], &["verify"], &["materialise", "s", "out/in/it"]] {
            let output = run(arguments);
            assert!(output.status.code().is_some_and(|code| code != 101), "{arguments:?}: {output:?}");
        }
        for (directory, only) in [("out", "in"), ("out/in", "it")] {
            let mut entries = std::fs::read_dir(world.path().join(directory)).unwrap();
            assert_eq!(entries.next().unwrap().unwrap().file_name(), only);
            assert!(entries.next().is_none(), "{path:?} is in {directory}");
        }
        std::fs::remove_dir_all(world.path().join("out")).unwrap();
    }
    assert!(!Path::new("/tmp/x").exists());
}

fn foldspace(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
    command.current_dir(directory).env("CONTAINER_HOST", "unix:///nowhere").args(arguments).output().unwrap()
}

/// Imports a file in a process that may have so many KiB of memory of its own.
fn limited(directory: &Path, file: &str, kib: u32) -> Output {
    let script = format!("ulimit -d {kib}; exec \"$0\" --data data import {file}");
    let mut command = Command::new("/bin/sh");
    command.current_dir(directory).args(["-c", &script, env!("CARGO_BIN_EXE_foldspace")]).output().unwrap()
}

/// A file of contents of zeros, each of a GiB, written without having them in memory.
fn bomb(path: &Path, count: usize, end: Option<&PortableFile>) {
    let mut zstd = zstd::stream::write::Encoder::new(std::fs::File::create(path).unwrap(), 3).unwrap();
    let mut hash = blake3::Hasher::new();
    let mut put = |bytes: &[u8]| {
        hash.update(bytes);
        zstd.write_all(bytes).unwrap();
        *hash.finalize().as_bytes()
    };
    let file = end.map_or_else(|| PortableFile::new().bytes, |end| end.bytes.clone());
    put(&file);
    let zeros = vec![0; 1 << 20];
    for _ in 0..count {
        put(&[1]);
        put(&(1u32 << 30).to_le_bytes());
        for _ in 0..1024 {
            put(&zeros);
        }
    }
    if let Some(end) = end {
        put(&[3]);
        put(&end.events.to_le_bytes());
        let checksum = put(&(count as u64).to_le_bytes());
        zstd.write_all(&checksum).unwrap();
    }
    zstd.finish().unwrap();
}

#[test]
fn import_bomb_takes_bounded_memory() {
    const KIB: u32 = 192 << 10;
    let world = tempfile::tempdir().unwrap();
    bomb(&world.path().join("bomb.fold"), 1, None);
    let output = limited(world.path(), "bomb.fold", KIB);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(5) && said.contains("it ends early"), "{said}");
    assert!(std::fs::metadata(world.path().join("bomb.fold")).unwrap().len() < 100_000);

    // A length that lies, an event of more than any may have, and a window as large as zstd allows.
    let mut lies = PortableFile::named("s");
    lies.bytes.extend_from_slice(&[1, 0, 0, 0, 0x40]);
    std::fs::write(world.path().join("lies.fold"), lies.whole()).unwrap();
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    zstd.window_log(27).unwrap();
    zstd.write_all(&PortableFile::named("s").bytes).unwrap();
    std::fs::write(world.path().join("window.fold"), zstd.finish().unwrap()).unwrap();
    for file in ["lies.fold", "window.fold"] {
        let output = limited(world.path(), file, KIB);
        assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = foldspace(world.path(), &["--data", "data", "sessions"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "no sessions\n");

    // One that is right is taken within the same memory.
    bomb(&world.path().join("right.fold"), 1, Some(&PortableFile::named("right")));
    let output = limited(world.path(), "right.fold", KIB);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
