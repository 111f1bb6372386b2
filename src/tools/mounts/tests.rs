//! Tests with small trees in temporary directories.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::*;
use crate::backends::{BackendError, MemoryWorkspace};
use crate::engine::clock::{StepClock, Timestamp};
use crate::engine::event::{DeleteEntry, FileMode};
use crate::engine::registry::Registry;
use crate::engine::session::sessions::NewSession;
use crate::engine::session::sessions::Sessions;
use crate::engine::session::snapshot::SnapshotPolicy;
use crate::engine::store::MemoryStore;

/// A host directory `home` with files, next to directories that must stay unreachable, and a session.
struct World {
    directory: tempfile::TempDir,
    home: PathBuf,
    session: Session,
    _sessions: Sessions,
}

impl World {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().canonicalize().unwrap().join("home");
        std::fs::create_dir(&home).unwrap();
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(StepClock::new(Timestamp(0), 1));
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
        let session = sessions.create(NewSession::default()).unwrap();
        let world = Self { directory, home, session, _sessions: sessions };
        files.iter().for_each(|(path, bytes)| world.host_file(path, bytes));
        world
    }

    fn host_file(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let path = self.home.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn outside(&self) -> PathBuf {
        let outside = self.directory.path().canonicalize().unwrap().join("outside");
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        outside
    }

    fn roots(&self) -> AllowedRoots {
        AllowedRoots::new([&self.home]).unwrap()
    }

    fn spec(&self) -> MountSpec {
        MountSpec { host_path: self.home.clone(), ..MountSpec::default() }
    }

    fn hydrate(&self, mounts: &[MountSpec]) -> Result<Vec<MountHydrated>, MountError> {
        self.hydrate_into(&MemoryWorkspace, mounts)
    }

    fn hydrate_into(&self, workspace: &dyn Workspace, mounts: &[MountSpec]) -> Result<Vec<MountHydrated>, MountError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(hydrate(&self.session, workspace, mounts, &self.roots()))
    }

    /// Returns the error of an attempt that fails and records nothing.
    fn error(&self, mounts: &[MountSpec]) -> MountError {
        let head = self.session.head().unwrap();
        let error = self.hydrate(mounts).unwrap_err();
        assert_eq!(self.session.head().unwrap(), head);
        error
    }

    fn tree(&self) -> VirtualFileSystem {
        self.session.state().unwrap().slice::<VirtualFileSystem>().unwrap().clone()
    }

    fn paths(&self) -> Vec<String> {
        self.tree().iter().map(|(path, _)| path.rooted()).collect()
    }

    fn node(&self, path: &str) -> Node {
        self.tree().get(&EntryPath::lookup(path).unwrap()).unwrap().node.clone()
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        match self.node(path) {
            Node::File { content, .. } => self.session.content(&content).unwrap().to_vec(),
            other => panic!("{path} is {other:?}"),
        }
    }
}

fn path(text: &str) -> Option<EntryPath> {
    Some(EntryPath::lookup(text).unwrap())
}

fn globs(globs: &[&str]) -> Vec<String> {
    globs.iter().map(|glob| (*glob).to_owned()).collect()
}

#[test]
fn mount_copies_byte_for_byte() {
    let binary: Vec<u8> = (0..=255).collect();
    let world = World::new(&[("a.txt", b"hello\r\n"), (".git/x", b""), ("sub/binary", &binary), ("run", b"#!")]);
    std::fs::set_permissions(world.home.join("run"), PermissionsExt::from_mode(0o744)).unwrap();
    std::fs::create_dir_all(world.home.join("sub/empty")).unwrap();
    symlink("../outside/secret", world.home.join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.home.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.home.join("socket")).unwrap();

    let hydrated = world.hydrate(&[MountSpec { mount_path: path("in/here"), ..world.spec() }]).unwrap();
    let expected = [
        "/in",
        "/in/here",
        "/in/here/.git",
        "/in/here/.git/x",
        "/in/here/a.txt",
        "/in/here/link",
        "/in/here/run",
        "/in/here/sub",
        "/in/here/sub/binary",
        "/in/here/sub/empty",
    ];
    assert_eq!(world.paths(), expected);
    assert_eq!(world.bytes("in/here/sub/binary"), binary);
    assert_eq!(world.bytes("in/here/a.txt"), b"hello\r\n");
    assert_eq!(world.node("in/here/run"), Node::file_with(b"#!", FileMode::of(0o744)));
    assert_eq!(world.node("in/here/link"), Node::Symlink { target: b"../outside/secret".to_vec() });
    assert_eq!(world.node("in/here/sub/empty"), Node::DIRECTORY);
    let [mount] = &hydrated[..] else { panic!("{hydrated:?}") };
    assert_eq!((mount.files, mount.bytes), (4, 7 + 256 + 2));
    assert_eq!(mount.host_path, world.home.to_str().unwrap());
    assert_eq!(mount.preview.entries, [".git/", "a.txt", "link", "run", "sub/"]);
}

#[test]
fn mount_is_one_commit() {
    let world = World::new(&[("a/x", b"1"), ("b/y", b"2")]);
    let of = |name: &str| MountSpec { host_path: name.into(), mount_path: path(name), ..MountSpec::default() };
    assert_eq!(world.hydrate(&[of("a"), of("b")]).unwrap().len(), 2);
    let kinds: Vec<_> = world.session.events(2, 9).unwrap().iter().map(|e| e.event.kind.to_string()).collect();
    assert_eq!(kinds, ["MountHydrated", "WriteFile", "MountHydrated", "WriteFile"]);
    assert_eq!(world.paths(), ["/a", "/a/x", "/b", "/b/y"]);
}

#[test]
fn mount_again_keeps_edits() {
    let world = World::new(&[("a.txt", b"old"), ("b.txt", b"old")]);
    assert_eq!(world.hydrate(&[world.spec()]).unwrap().len(), 1);
    let mut commit = world.session.commit();
    let of = |path: &str| EntryPath::lookup(path).unwrap();
    let edit = WriteFile { path: of("a.txt"), mode: WriteMode::Overwrite, node: Node::file(b"new", false) };
    commit.push(&edit).unwrap();
    commit.keep(Content::of("new"));
    commit.push(&DeleteEntry { path: of("b.txt") }).unwrap();
    world.session.record(commit).unwrap();
    let head = world.session.head().unwrap();
    assert_eq!(world.hydrate(&[world.spec()]).unwrap(), []);
    assert_eq!((world.session.head().unwrap(), world.bytes("a.txt")), (head, b"new".to_vec()));

    // Not even after everything was removed.
    let mut commit = world.session.commit();
    commit.push(&DeleteEntry { path: of("a.txt") }).unwrap();
    world.session.record(commit).unwrap();
    assert_eq!(world.hydrate(&[world.spec()]).unwrap(), []);
    assert!(world.paths().is_empty());
}

#[test]
fn mount_outside_allowed_roots_is_refused() {
    let world = World::new(&[("dir/a", b"1"), ("file", b"1")]);
    let outside = world.outside();
    symlink(&outside, world.home.join("out")).unwrap();
    symlink("dir", world.home.join("in")).unwrap();
    let of = |path: &Path| MountSpec { host_path: path.into(), ..MountSpec::default() };
    for path in [&outside, &world.home.join("out"), Path::new("out"), Path::new("../outside"), Path::new("/")] {
        let error = world.error(&[of(path)]);
        assert!(matches!(error, MountError::Outside { .. }), "{path:?}: {error}");
        assert!(error.to_string().contains(world.home.to_str().unwrap()), "{error}");
    }
    for path in ["none", "file/x", "", "out/none"] {
        assert!(matches!(world.error(&[of(Path::new(path))]), MountError::Missing { .. }), "{path}");
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, world.home.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    assert!(matches!(world.error(&[of(Path::new("pipe"))]), MountError::NotADirectory { .. }));
    let named = Path::new("caf\u{e9}\n");
    assert!(matches!(world.error(&[of(named)]), MountError::OddName { path } if path == "caf\u{e9}\\x0a"));
    assert_eq!(world.hydrate(&[of(Path::new("in"))]).unwrap()[0].preview.entries, ["a"]);
}

#[test]
fn mount_of_a_file_is_that_file_at_its_path() {
    let world = World::new(&[("dir/in.txt", b"five!"), ("dir/other", b"1")]);
    let file = world.home.join("dir/in.txt");
    let of = |path: &str| MountSpec { host_path: path.into(), ..MountSpec::default() };
    let roots = AllowedRoots::new([&file]).unwrap();
    assert_eq!(roots.open(&file).unwrap().0, file);
    assert!(matches!(roots.open(&world.home.join("dir/other")), Err(MountError::Outside { .. })));
    let globs = MountSpec { include_glob: vec!["*".to_owned()], ..of("dir/in.txt") };
    assert!(world.error(&[globs]).to_string().contains("a single file is mounted"));
    let small = MountSpec { max_bytes: Some(4), ..of("dir/in.txt") };
    assert!(matches!(world.error(&[small]), MountError::TooLarge { .. }));
    let at = MountSpec { mount_path: Some(EntryPath::lookup("data/renamed").unwrap()), ..of("dir/in.txt") };
    let hydrated = world.hydrate(&[of("dir/in.txt"), at]).unwrap();
    let entries = |mount: &MountHydrated| (mount.mount_path.to_string(), mount.files, mount.preview.entries.clone());
    assert_eq!(entries(&hydrated[0]), ("in.txt".to_owned(), 1, vec!["in.txt".to_owned()]));
    assert_eq!(entries(&hydrated[1]), ("data/renamed".to_owned(), 1, vec!["renamed".to_owned()]));
}

#[test]
fn mount_without_roots_is_refused() {
    let world = World::new(&[]);
    let error = AllowedRoots::default().open(&world.home).unwrap_err();
    assert!(error.to_string().ends_with("none are allowed"), "{error}");
    assert!(matches!(AllowedRoots::new([world.home.join("none")]), Err(MountError::Missing { .. })));
    rustix::fs::mkfifoat(rustix::fs::CWD, world.home.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    assert!(matches!(AllowedRoots::new([world.home.join("pipe")]), Err(MountError::NotADirectory { .. })));
}

#[test]
fn mount_link_into_another_root_is_allowed() {
    let world = World::new(&[("a/x", b"1")]);
    let outside = world.outside();
    symlink(&outside, world.home.join("out")).unwrap();
    let roots = AllowedRoots::new([&world.home, &outside]).unwrap();
    assert_eq!(roots.open(Path::new("out")).unwrap().0, outside);
}

#[test]
fn mount_followed_link_stays_inside() {
    let world = World::new(&[("dir/a", b"1"), ("dir/deep/b", b"22")]);
    let outside = world.outside();
    let follow = MountSpec { follow_symlinks: true, ..world.spec() };
    for target in [outside.join("secret"), outside.clone(), "../outside/secret".into(), "..".into()] {
        symlink(&target, world.home.join("out")).unwrap();
        let error = world.error(std::slice::from_ref(&follow));
        assert!(matches!(error, MountError::LinkLeaves { .. }), "{target:?}: {error}");
        std::fs::remove_file(world.home.join("out")).unwrap();
    }
    symlink("dir/a", world.home.join("file")).unwrap();
    symlink(world.home.join("dir/deep"), world.home.join("tree")).unwrap();
    symlink("..", world.home.join("dir/up")).unwrap();
    symlink("nowhere", world.home.join("dangling")).unwrap();
    symlink("circle", world.home.join("circle")).unwrap();
    world.hydrate(&[follow]).unwrap();
    assert_eq!(world.bytes("file"), b"1");
    assert_eq!(world.bytes("tree/b"), b"22");
    for kept in ["dangling", "circle", "dir/up"] {
        assert!(matches!(world.node(kept), Node::Symlink { .. }), "{kept}");
    }
}

#[test]
fn mount_unfollowed_link_out_is_kept() {
    let world = World::new(&[]);
    symlink(world.outside(), world.home.join("out")).unwrap();
    world.hydrate(&[world.spec()]).unwrap();
    assert_eq!(world.paths(), ["/out"]);
    assert!(matches!(world.node("out"), Node::Symlink { .. }));
}

#[test]
fn mount_byte_budget_covers_whole_mount() {
    let world = World::new(&[("a", b"12345"), ("b", b"67890")]);
    let of = |max_bytes| MountSpec { max_bytes: Some(max_bytes), ..world.spec() };
    let error = world.error(&[of(9)]);
    assert!(matches!(error, MountError::TooLarge { limit: 9, at_least: 10, .. }), "{error}");
    assert!(error.to_string().contains("holds at least 10 bytes, max_bytes is 9"), "{error}");
    assert!(matches!(world.error(&[of(0)]), MountError::TooLarge { limit: 0, at_least: 5, .. }));
    assert!(world.paths().is_empty());
    assert_eq!(world.hydrate(&[of(10)]).unwrap()[0].bytes, 10);
}

#[test]
fn mount_excluded_files_do_not_count() {
    let world = World::new(&[("a", b"12345"), ("big", b"67890")]);
    let spec = MountSpec { max_bytes: Some(5), exclude_glob: globs(&["big"]), ..world.spec() };
    assert_eq!(world.hydrate(&[spec]).unwrap()[0].bytes, 5);
}

#[test]
fn mount_exclude_glob_wins() {
    let world = World::new(&[
        ("top.rs", b""),
        ("top.txt", b""),
        ("src/a.rs", b""),
        ("src/deep/b.rs", b""),
        ("src/deep/c.txt", b""),
        ("target/d.rs", b""),
    ]);
    std::fs::create_dir_all(world.home.join("empty")).unwrap();
    let chosen = |include: &[&str], exclude: &[&str]| {
        let spec = MountSpec { include_glob: globs(include), exclude_glob: globs(exclude), ..world.spec() };
        let copied = copy(&spec, &world.roots()).unwrap();
        copied.entries.iter().map(|entry| entry.path.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(chosen(&["/*.rs"], &[]), ["top.rs"]);
    // A glob without a slash matches names at any depth.
    assert_eq!(chosen(&["*.rs"], &["target"]), ["src/a.rs", "src/deep/b.rs", "top.rs"]);
    assert_eq!(chosen(&[], &["deep", "*.txt", "d.rs"]), ["empty", "src/a.rs", "top.rs"]);
    assert_eq!(chosen(&["**/*.rs"], &["target"]), ["src/a.rs", "src/deep/b.rs", "top.rs"]);
    assert_eq!(chosen(&["**/*.rs"], &["target/**", "src/*.rs"]), ["src/deep/b.rs", "top.rs"]);
    assert_eq!(chosen(&[], &["src/", "target", "*.txt"]), ["empty", "top.rs"]);
    assert_eq!(chosen(&["e*"], &[]), ["empty"]);
    assert!(chosen(&["**"], &["**"]).is_empty());
    for glob in ["", "/", "[", "../x"] {
        let error = world.error(&[MountSpec { exclude_glob: globs(&["ok", glob]), ..world.spec() }]);
        assert!(matches!(&error, MountError::Glob { glob: named, .. } if named == glob), "{glob}: {error}");
    }
}

#[test]
fn mount_odd_names_are_refused_unless_excluded() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new(&[("ok", b"")]);
    let latin = Path::new(std::ffi::OsStr::from_bytes(b"d/caf\xe9"));
    for (name, shown) in
        [(latin, "d/caf\\xe9"), (Path::new("d/a\nb"), "d/a\\x0ab"), (Path::new("d/\u{202e}"), "d/\u{202e}")]
    {
        world.host_file(name, b"");
        let error = world.error(&[world.spec()]);
        assert!(matches!(&error, MountError::OddName { path } if path == shown), "{error}");
        std::fs::remove_file(world.home.join(name)).unwrap();
    }
    world.host_file(latin, b"");
    world.host_file(Path::new("gr\u{fc}n"), b"");
    world.hydrate(&[MountSpec { exclude_glob: globs(&["d/*"]), ..world.spec() }]).unwrap();
    assert_eq!(world.paths(), ["/gr\u{fc}n", "/ok"]);
}

#[test]
fn mounts_share_directories_not_files() {
    let world = World::new(&[("a/x", b"1"), ("a/lib/one", b"1"), ("b/y", b"2"), ("b/lib/two", b"2"), ("c/y/z", b"3")]);
    let of = |name: &str, at: Option<EntryPath>| MountSpec {
        host_path: name.into(),
        mount_path: at,
        ..MountSpec::default()
    };
    let overlap = |mounts: &[MountSpec]| match world.error(mounts) {
        MountError::Overlap { path } => path.rooted(),
        other => panic!("{other}"),
    };
    assert_eq!(overlap(&[of("a", None), of("a", None)]), "/lib/one");
    assert_eq!(overlap(&[of("b", None), of("c", None)]), "/y");
    assert_eq!(overlap(&[of("c", None), of("b", None)]), "/y");
    assert_eq!(overlap(&[of("b", None), of("a", path("lib/two"))]), "/lib/two");
    world.hydrate(&[of("a", None), of("b", None)]).unwrap();
    assert_eq!(world.paths(), ["/lib", "/lib/one", "/lib/two", "/x", "/y"]);
}

#[test]
fn mount_of_empty_directory_is_a_directory() {
    let world = World::new(&[]);
    world.hydrate(&[MountSpec { mount_path: path("data"), ..world.spec() }]).unwrap();
    assert_eq!((world.paths(), world.node("data")), (vec!["/data".to_owned()], Node::DIRECTORY));
    assert_eq!(
        previews(&world.session.state().unwrap()),
        "Copied from the host:\n- /data (0 files, 0 bytes): nothing\n"
    );
}

#[test]
fn mount_too_deep_is_refused() {
    let world = World::new(&[]);
    std::fs::create_dir_all(world.home.join(vec!["d"; 127].join("/"))).unwrap();
    assert_eq!(copy(&world.spec(), &world.roots()).unwrap().entries.len(), 1);
    std::fs::create_dir_all(world.home.join(vec!["d"; 128].join("/"))).unwrap();
    assert!(matches!(world.error(&[world.spec()]), MountError::TooDeep { limit: 128, .. }));
}

#[test]
fn mount_over_commit_limit_is_refused() {
    let world = World::new(&[("a", b"1")]);
    let copied = copy(&world.spec(), &world.roots()).unwrap();
    let mut commit = world.session.commit();
    let nearly_all = vec![0; crate::engine::commit::MAX_COMMIT_BYTES - 100];
    commit.push_encoded("Other", 1, &nearly_all).unwrap();
    let error = record(copied, &mut commit, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, MountError::TooMany { limit: 33_554_432, .. }), "{error}");
    assert!(error.to_string().contains(" bytes in a commit; the limit is 33554432; "), "{error}");
}

#[test]
fn mount_on_failing_workspace_leaves_nothing() {
    struct Broken;
    impl Workspace for Broken {
        fn backend_name(&self) -> &'static str {
            "broken"
        }
        fn apply(&self, _: &[FileChange]) -> Result<(), BackendError> {
            Err(BackendError { backend: "broken", reason: "the disk is full".to_owned() })
        }
    }
    let world = World::new(&[("a", b"1")]);
    let head = world.session.head().unwrap();
    let error = world.hydrate_into(&Broken, &[world.spec()]).unwrap_err();
    assert_eq!(error.to_string(), "the broken workspace failed: the disk is full");
    assert_eq!(world.session.head().unwrap(), head);
}

#[test]
fn mount_gives_workspace_every_file() {
    #[derive(Default)]
    struct Seen(Mutex<Vec<FileChange>>);
    impl Workspace for Seen {
        fn backend_name(&self) -> &'static str {
            "seen"
        }
        fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError> {
            self.0.lock().unwrap().extend_from_slice(changes);
            Ok(())
        }
    }
    let world = World::new(&[("a", b"1")]);
    let made = std::fs::File::options().write(true).open(world.home.join("a")).unwrap();
    made.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_micros(1_500_000_000_123_456)).unwrap();
    let seen = Seen::default();
    world.hydrate_into(&seen, &[world.spec()]).unwrap();
    let written = FileChange::Write {
        path: path("a").unwrap(),
        node: Node::file(b"1", false),
        bytes: "1".into(),
        modified: Some(Timestamp(1_500_000_000_123)),
    };
    assert_eq!(*seen.0.lock().unwrap(), [written]);
}

#[test]
fn mount_preview_names_fifty_entries() {
    let world = World::new(&[]);
    for n in 0..52 {
        world.host_file(format!("many/f{n:02}"), b"x");
    }
    world.host_file("few/sub/x", b"");
    world.host_file("few/a.txt", b"");
    let of = |name: &str| MountSpec { host_path: name.into(), mount_path: path(name), ..MountSpec::default() };
    let hydrated = world.hydrate(&[of("few"), of("many")]).unwrap();
    assert_eq!((hydrated[1].preview.entries.len(), hydrated[1].preview.more), (50, 2));
    let text = previews(&world.session.state().unwrap());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..2], ["Copied from the host:", "- /few (2 files, 0 bytes): a.txt, sub/"]);
    assert!(lines[2].starts_with("- /many (52 files, 52 bytes): f00, f01, "), "{text}");
    assert!(lines[2].ends_with(", f49 and 2 more"), "{text}");
}

#[test]
fn mount_spec_parses_command_line() {
    let parsed = |text: &str| MountSpec::parse(text).map(|spec| (spec.host_path, spec.mount_path));
    assert_eq!(parsed("/a/b").unwrap(), ("/a/b".into(), None));
    assert_eq!(parsed("/a/b:c/d/").unwrap(), ("/a/b".into(), path("c/d")));
    assert_eq!(parsed("/a:b:/").unwrap(), ("/a:b".into(), None));
    for text in ["", ":x", "/a:", "/a:../b", "/a:a\nb"] {
        assert!(matches!(parsed(text), Err(MountError::Spec { .. })), "{text}");
    }
}

#[test]
fn mount_spec_parses_json() {
    let spec: MountSpec = serde_json::from_str(r#"{ "host_path": "/a", "mount_path": "/b", "max_bytes": 5 }"#).unwrap();
    assert_eq!((spec.mount_path, spec.max_bytes, spec.follow_symlinks), (path("b"), Some(5), false));
    assert!(serde_json::from_str::<MountSpec>(r#"{ "host_path": "/a", "colour": 1 }"#).is_err());
}
