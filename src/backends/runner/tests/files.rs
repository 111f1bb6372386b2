//! Files without a process.

use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn kind<T: std::fmt::Debug>(result: Result<T, RunnerError>) -> ErrorKind {
    match result {
        Err(RunnerError::Io { kind, .. }) => kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_written_read_listed_and_removed() {
    let world = World::new();
    let (runner, path) = (&world.runner, Path::new("a/b/file"));
    runner.write(path, WriteMode::New, false, b"one").unwrap();
    assert_eq!(kind(runner.write(path, WriteMode::New, false, b"two")), ErrorKind::AlreadyExists);
    assert_eq!(runner.read(path, 3).unwrap(), b"one");
    assert!(matches!(runner.read(path, 2), Err(RunnerError::TooLarge(_))));
    runner.write(path, WriteMode::Append, false, b"two").unwrap();
    assert_eq!(runner.read(Path::new("/a/b/file"), 100).unwrap(), b"onetwo");
    runner.write(path, WriteMode::Replace, true, b"three").unwrap();
    let entries = runner.list(Path::new("a/b")).unwrap();
    let [entry] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(
        (entry.name.as_bytes(), entry.kind, entry.size, entry.mode & 0o100),
        (&b"file"[..], EntryKind::File, 5, 0o100)
    );
    assert_eq!(runner.stat(path).unwrap().size, 5);
    assert_eq!(runner.stat(Path::new("")).unwrap().kind, EntryKind::Directory);
    assert_eq!(kind(runner.remove(Path::new("a"), false)), ErrorKind::DirectoryNotEmpty);
    runner.remove(Path::new("a"), true).unwrap();
    assert_eq!(kind(runner.remove(Path::new("a"), true)), ErrorKind::NotFound);
    assert_eq!(kind(runner.read(path, 1)), ErrorKind::NotFound);
}

#[test]
fn a_file_of_several_pieces_is_read_whole() {
    let world = World::new();
    let content: Vec<u8> = (0..2 * MAX_PIECE + 12345).map(|at| (at % 251) as u8).collect();
    std::fs::write(world.root().join("large"), &content).unwrap();
    assert_eq!(world.runner.read(Path::new("large"), content.len()).unwrap(), content);
    let most = &content[..MAX_PIECE];
    world.runner.write(Path::new("most"), WriteMode::New, false, most).unwrap();
    assert_eq!(std::fs::read(world.root().join("most")).unwrap(), most);
    let more = world.runner.write(Path::new("more"), WriteMode::New, false, &content[..=MAX_PIECE]);
    assert!(matches!(more, Err(RunnerError::TooLarge(_))));
}

#[test]
fn replacing_keeps_permissions_and_leaves_links_and_nothing_else_behind() {
    let world = World::new();
    let (file, link) = (world.root().join("file"), world.root().join("link"));
    std::fs::write(&file, "before").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("file", &link).unwrap();
    world.runner.write(Path::new("file"), WriteMode::Replace, false, b"after").unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o640);
    world.runner.write(Path::new("link"), WriteMode::Replace, false, b"x").unwrap();
    assert_eq!((std::fs::read(&file).unwrap(), link.is_symlink()), (b"x".to_vec(), true));
    assert_eq!(world.runner.list(Path::new("")).unwrap().len(), 2);
}

#[test]
fn no_path_leads_out() {
    let world = World::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    symlink(outside.path(), world.root().join("out")).unwrap();
    symlink(outside.path().join("secret"), world.root().join("secret")).unwrap();
    symlink("/proc/self/root", world.root().join("magic")).unwrap();
    let up = format!("../{}/secret", outside.path().file_name().unwrap().to_str().unwrap());
    for path in ["out/secret", "secret", &up, "magic/etc/passwd"] {
        let path = Path::new(path);
        assert!(
            matches!(world.runner.read(path, 100), Err(RunnerError::Outside(_) | RunnerError::Io { .. })),
            "{path:?}"
        );
        for mode in [WriteMode::Replace, WriteMode::Append, WriteMode::New] {
            let written = world.runner.write(path, mode, false, b"overwritten");
            assert!(written.is_err(), "{path:?}: {written:?}");
        }
        assert!(path == Path::new("secret") || world.runner.remove(path, true).is_err(), "{path:?}");
    }
    assert!(matches!(world.runner.list(Path::new("out")), Err(RunnerError::Outside(_))));
    assert_eq!(world.runner.stat(Path::new("secret")).unwrap().kind, EntryKind::Symlink);
    // The link is removed, not what it leads to.
    world.runner.remove(Path::new("out"), true).unwrap();
    for path in ["", "/", ".", "..", "a/..", "a/."] {
        assert!(matches!(world.runner.remove(Path::new(path), true), Err(RunnerError::Invalid(_))), "{path:?}");
    }
    assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"secret");
}

#[test]
fn what_is_no_regular_file_is_refused_and_hangs_nobody() {
    let world = World::new();
    run(&world.runner, &spec(&["mkfifo", "pipe"])).unwrap();
    std::fs::create_dir(world.root().join("directory")).unwrap();
    for path in ["pipe", "directory"].map(Path::new) {
        assert!(world.runner.read(path, 100).is_err(), "{path:?}");
        for mode in [WriteMode::Replace, WriteMode::Append, WriteMode::New] {
            assert!(world.runner.write(path, mode, false, b"x").is_err(), "{path:?}");
        }
    }
    assert_eq!(world.runner.stat(Path::new("pipe")).unwrap().kind, EntryKind::Other);
    world.runner.ping().unwrap();
}

#[test]
fn paths_are_bytes() {
    let world = World::new();
    let path = Path::new(OsStr::from_bytes(b"\xff\n name"));
    world.runner.write(path, WriteMode::New, false, b"x").unwrap();
    assert_eq!(world.runner.list(Path::new("")).unwrap()[0].name, path.as_os_str());
    assert!(matches!(world.runner.read(Path::new("a\0b"), 1), Err(RunnerError::Invalid(_))));
    let long = "x".repeat(5000);
    assert!(matches!(world.runner.read(Path::new(&long), 1), Err(RunnerError::Invalid(_))));
}
