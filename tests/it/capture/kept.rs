//! Directories that are opened again, and changes of which the kernel does not tell.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use foldspace::event::{DriftFound, Isolation, WriteFile};
use foldspace::hub::{HubOptions, OpenSession};
use foldspace::{
    EntryPath, ForkOptions, Hub, Registry, SessionId, Sessions, ToolCall, VirtualFileSystem, WorkspaceSpec,
};
use serde_json::json;

/// A session in a directory of its user's.
struct Place {
    directory: tempfile::TempDir,
    session: SessionId,
}

impl Place {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("files/d")).unwrap();
        for file in ["one", "d/two", "d/three"] {
            std::fs::write(directory.path().join("files").join(file), format!("{file} as it was")).unwrap();
        }
        let hub = hub(&directory.path().join("data"));
        let spec = WorkspaceSpec::parse("host", &json!({ "directory": directory.path().join("files") })).unwrap();
        let session = hub.create(Some("s".to_owned()), &spec, &[]).await.unwrap().session().id();
        hub.close().await;
        Self { directory, session }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join("files").join(path)
    }

    fn index(&self) -> PathBuf {
        self.directory.path().join("data/workspaces").join(self.session.to_string()).join("index")
    }

    async fn open(&self) -> (Hub, OpenSession) {
        let hub = hub(&self.directory.path().join("data"));
        let session = hub.open(self.session).await.unwrap();
        (hub, session)
    }

    /// Opens it, makes calls that write, and closes it.
    async fn write(&self, paths: &[&str]) {
        let (hub, session) = self.open().await;
        for path in paths {
            let write = json!({ "file_path": path, "content": "by a call\n", "mode": "overwrite" });
            assert!(session.call(ToolCall::new("write_file", write)).await.unwrap().is_ok());
        }
        drop(session);
        hub.close().await;
    }
}

fn hub(home: &Path) -> Hub {
    Hub::new(Sessions::open(home, Registry::standard()).unwrap(), HubOptions::new(home))
}

/// Gives the paths written outside of calls since a position, and how often there was drift, with the late entries.
fn drift(session: &OpenSession, since: u64) -> (Vec<String>, Vec<(u64, u64)>) {
    let events = session.session().events(since + 1, 1000).unwrap();
    let outside = events.iter().filter(|event| event.call.is_none());
    let paths = outside.filter_map(foldspace::Recorded::typed::<WriteFile>);
    let found = events.iter().filter_map(foldspace::Recorded::typed::<DriftFound>);
    let found = found.map(|found| found.unwrap().event).map(|found| (found.entries, found.late));
    (paths.map(|event| event.unwrap().event.path.to_string()).collect(), found.collect())
}

fn agrees(place: &Place, session: &OpenSession) {
    let files = VirtualFileSystem::of(&session.session().state().unwrap());
    for (path, entry) in files.iter().filter(|(_, entry)| !entry.is_directory()) {
        let bytes = std::fs::read(place.at(&path.to_string())).unwrap();
        assert_eq!(foldspace::event::Node::file(&bytes, false), entry.node, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_opened_again_has_only_what_changed_as_drift() {
    let place = Place::new().await;
    assert!(place.index().exists(), "it is kept when the workspace closes");
    place.write(&["one", "new/below"]).await;
    std::fs::write(place.at("d/two"), "from outside").unwrap();
    std::fs::remove_file(place.at("d/three")).unwrap();
    let (hub, session) = place.open().await;
    let (written, found) = drift(&session, 0);
    assert_eq!((&found[1..], written.last().map(String::as_str)), (&[(2, 0)][..], Some("d/two")));
    agrees(&place, &session);
    drop(session);
    hub.remove(place.session).await.unwrap();
    assert!(!place.index().parent().unwrap().exists() && place.at("one").exists());
}

/// As an owner leaves it that is killed.
#[tokio::test(flavor = "multi_thread")]
async fn index_behind_its_session_hides_nothing() {
    let place = Place::new().await;
    let old = std::fs::read(place.index()).unwrap();
    place.write(&["one", "d/two"]).await;
    std::fs::write(place.index(), &old).unwrap();
    // Somebody puts the old contents back, with the old times: only the index knew that stat.
    let metadata = std::fs::metadata(place.at("d/three")).unwrap();
    std::fs::write(place.at("d/two"), "d/two as it was").unwrap();
    let times = std::fs::FileTimes::new().set_modified(metadata.modified().unwrap());
    std::fs::File::options().write(true).open(place.at("d/two")).unwrap().set_times(times).unwrap();
    let (hub, session) = place.open().await;
    let (written, found) = drift(&session, 0);
    assert_eq!((found.len(), written.last().map(String::as_str)), (2, Some("d/two")));
    agrees(&place, &session);
    drop(session);
    hub.close().await;
}

const MAPPED: &str = "import mmap, sys
file = open(sys.argv[1], 'r+b')
mapped = mmap.mmap(file.fileno(), 0)
for line in sys.stdin:
    mapped[0:1] = line[0:1].encode()
    print('written', flush=True)
";

#[tokio::test(flavor = "multi_thread")]
async fn write_through_a_mapping_is_late_drift_before_a_fork() {
    let place = Place::new().await;
    let (hub, session) = place.open().await;
    let call = || session.call(ToolCall::new("ls", json!({})));
    assert!(call().await.unwrap().is_ok());
    let mut python = Command::new("python3");
    python.args(["-c", MAPPED]).arg(place.at("one")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    let (mut input, mut line) = (python.stdin.take().unwrap(), String::new());
    input.write_all(b"O\n").unwrap();
    BufReader::new(python.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "written\n");
    assert!(call().await.unwrap().is_ok());
    let head = session.session().head().unwrap();
    let is_watched = !drift(&session, 0).0.iter().skip(3).any(|path| path == "one");
    let child = hub.start_child(place.session, ForkOptions::new(Isolation::Fork)).await.unwrap();
    // Where inotify is used up, the look before the call has found it already.
    if is_watched {
        assert_eq!(drift(&session, head), (vec!["one".to_owned()], vec![(1, 1)]));
    }
    let files = VirtualFileSystem::of(&child.session().state().unwrap());
    let node = files.get(&EntryPath::lookup("one").unwrap()).unwrap().node.clone();
    assert_eq!(node, foldspace::event::Node::file(b"One as it was", false));
    drop((input, child, session));
    python.wait().unwrap();
    hub.close().await;
}
