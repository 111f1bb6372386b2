#![expect(clippy::disallowed_methods, reason = "the tests damage files")]

use std::ops::ControlFlow;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use tempfile::TempDir;

use super::manifest::{self, CopiedSegment, CopyManifest};
use super::restore::restore_from;
use super::target::CopyTarget;
use super::{CopiedTo, ReplicationError, Replicator, ReplicatorOptions, RestoreReport};
use crate::engine::event::EventsLost;
use crate::engine::store::{EventStore, LocalStore, LocalStoreOptions};
use crate::engine::{Commit, Digest, SessionId, Timestamp};
use crate::testing::rounds;

/// The storage of a process that is killed at a request, which may or may not be executed.
#[derive(Debug)]
struct Dying {
    storage: Arc<InMemory>,
    /// Remaining requests until then.
    left: AtomicUsize,
    is_carried_out: bool,
}

impl Dying {
    /// Counts a request. If the process dies at it, returns true if the request is still executed.
    fn dies(&self) -> Option<bool> {
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(1) => Some(self.is_carried_out),
            Ok(_) => None,
            Err(_) => Some(false),
        }
    }

    async fn done<T>(&self, work: impl Future<Output = object_store::Result<T>>) -> object_store::Result<T> {
        match self.dies() {
            None => work.await,
            Some(true) => work.await.and(Err(killed())),
            Some(false) => Err(killed()),
        }
    }
}

fn killed() -> Error {
    Error::Generic { store: "dying", source: "the process was killed".into() }
}

impl std::fmt::Display for Dying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("dying")
    }
}

#[async_trait]
impl ObjectStore for Dying {
    async fn put_opts(&self, at: &Path, payload: PutPayload, how: PutOptions) -> object_store::Result<PutResult> {
        self.done(self.storage.put_opts(at, payload, how)).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        how: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.storage.put_multipart_opts(at, how).await
    }

    async fn get_opts(&self, at: &Path, how: GetOptions) -> object_store::Result<GetResult> {
        match self.left.load(Ordering::SeqCst) {
            0 => Err(killed()),
            _ => self.storage.get_opts(at, how).await,
        }
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        match self.dies() {
            None | Some(true) => self.storage.delete_stream(paths),
            Some(false) => futures_util::stream::empty().boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.storage.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.storage.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> object_store::Result<()> {
        self.storage.copy_opts(from, to, how).await
    }
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn session() -> SessionId {
    SessionId::from_bytes(*b"0123456789abcdef")
}

fn small() -> LocalStoreOptions {
    LocalStoreOptions { segment_bytes: 1 << 20, pack: false, raw_segments: 0, ..LocalStoreOptions::default() }
}

/// Appends `count` events with different bytes, one per commit, each a second after the one before.
fn append(directory: &FilePath, options: LocalStoreOptions, count: u64) {
    let store = LocalStore::open(directory, options).unwrap();
    let head = store.head(session()).unwrap_or(0);
    for seq in head + 1..=head + count {
        let mut commit = Commit::new(session(), Timestamp(seq as i64 * 1_000));
        commit.push_encoded("Note", 1, &payload(seq)).unwrap();
        store.submit(commit).unwrap().wait().unwrap();
    }
}

fn payload(seq: u64) -> Vec<u8> {
    let digest = blake3::hash(&seq.to_le_bytes());
    digest.as_bytes().iter().copied().cycle().take(60_000 + seq as usize).collect()
}

fn replicator(data: &FilePath, storage: &Arc<InMemory>) -> Replicator {
    Replicator::to(data, CopyTarget::of(storage.clone()), ReplicatorOptions::default()).unwrap()
}

fn copy(data: &FilePath, storage: &Arc<InMemory>) -> Result<CopiedTo, ReplicationError> {
    let mut replicator = replicator(data, storage);
    wait(replicator.copy_all()).map(|()| replicator.progress().now())
}

fn restored(storage: &Arc<InMemory>, at: Option<Timestamp>) -> Result<(TempDir, RestoreReport), ReplicationError> {
    let directory = tempfile::tempdir().unwrap();
    let report = wait(restore_from(&directory.path().join("data"), &CopyTarget::of(storage.clone()), at))?;
    Ok((directory, report))
}

/// Restores a copy, checks that it is a clean store of intact events, and returns their number.
fn events_of(storage: &Arc<InMemory>) -> u64 {
    let (directory, report) = restored(storage, None).unwrap();
    let data = directory.path().join("data");
    let checked = LocalStore::fsck(&data, false).unwrap();
    assert_eq!((checked.problems, checked.events), (Vec::new(), report.events));
    let store = LocalStore::open(&data, small()).unwrap();
    let mut seq = 0;
    let visited = store.visit(session(), 1, &mut |event| {
        seq += 1;
        assert!(EventsLost::is_gap(event) || event.payload == payload(seq), "event {seq}");
        assert_eq!(event.seq, seq);
        ControlFlow::Continue(())
    });
    if report.events > 0 {
        visited.unwrap();
    }
    seq
}

fn names(storage: &Arc<InMemory>) -> Vec<String> {
    let all: Vec<ObjectMeta> = wait(storage.list(None).try_collect()).unwrap();
    all.iter().map(|meta| meta.location.to_string()).collect()
}

fn cut(data: &FilePath, bytes: u64) {
    let path = data.join("journal/00000001.seg");
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// Copies while a store grows, until the process is killed at the request. Returns true if it was killed.
fn copy_killed_at(request: usize, is_carried_out: bool) -> bool {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    let dying = Arc::new(Dying { storage: storage.clone(), left: AtomicUsize::new(request), is_carried_out });
    append(data.path(), small(), 1);
    let target = CopyTarget::of(dying.clone());
    let mut replicator = Replicator::to(data.path(), target, ReplicatorOptions::default()).unwrap();
    let (mut copied, mut events) = (0, 1);
    for more in [20, 1, 1, 14, 1] {
        append(data.path(), small(), more);
        events += more;
        if wait(replicator.pass()).is_ok() {
            copied = events;
        }
    }
    drop(replicator);
    match restored(&storage, None) {
        Err(ReplicationError::NoCopy(_)) => assert_eq!(copied, 0, "killed at request {request}"),
        Err(error) => panic!("killed at request {request}: {error}"),
        Ok(_) => assert!(events_of(&storage) >= copied, "killed at request {request}"),
    }
    copy(data.path(), &storage).unwrap();
    assert_eq!(events_of(&storage), events);
    dying.left.load(Ordering::SeqCst) == 0
}

#[test]
fn copy_killed_at_any_request_is_restorable_and_goes_on() {
    for is_carried_out in [false, true] {
        let every = if rounds(1) > 1 { 1 } else { 3 };
        let killed = (1..).step_by(every).take_while(|request| copy_killed_at(*request, is_carried_out)).count();
        assert!(killed * every > 8, "only {killed} requests");
    }
}

#[test]
fn second_copy_of_a_store_is_refused_by_name_until_it_takes_over() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 3);
    let mut first = replicator(data.path(), &storage);
    wait(first.pass()).unwrap();
    let again = Replicator::to(data.path(), CopyTarget::of(storage.clone()), ReplicatorOptions::default());
    let Err(ReplicationError::Running { owner, .. }) = again else { panic!("two processes copy it") };
    assert_eq!(owner.process, std::process::id());
    let (twin, _) = restored(&storage, None).unwrap();
    let twin = twin.path().join("data");
    append(&twin, small(), 1);
    let Err(ReplicationError::Refused { writer, .. }) = copy(&twin, &storage) else { panic!("it is not refused") };
    assert_eq!(writer.directory, data.path().display().to_string());
    let taking = ReplicatorOptions { take_over: true };
    let mut second = Replicator::to(&twin, CopyTarget::of(storage.clone()), taking).unwrap();
    wait(second.copy_all()).unwrap();
    append(data.path(), small(), 5);
    // The first replicator finds out at its next manifest, and names the new writer.
    let refused = wait(first.run());
    let ReplicationError::Refused { writer, .. } = refused else { panic!("{refused}") };
    assert_eq!(writer.directory, twin.display().to_string());
    assert!(first.progress().now().is_stopped);
    assert_eq!(events_of(&storage), 4);
}

#[test]
fn other_store_is_refused() {
    let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = Arc::new(InMemory::new());
    append(data.path(), small(), 1);
    append(other.path(), small(), 1);
    copy(data.path(), &storage).unwrap();
    let taking = ReplicatorOptions { take_over: true };
    let mut taking = Replicator::to(other.path(), CopyTarget::of(storage.clone()), taking).unwrap();
    assert!(matches!(wait(taking.pass()), Err(ReplicationError::OtherStore { .. })));
}

#[test]
fn packed_and_collected_journal_stays_restorable() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 40);
    let mut replicator = replicator(data.path(), &storage);
    wait(replicator.copy_all()).unwrap();
    let packing = LocalStoreOptions { pack: true, ..small() };
    let store = LocalStore::open(data.path(), packing.clone()).unwrap();
    let other = SessionId::from_bytes([3; 16]);
    let mut commit = Commit::new(other, Timestamp(1));
    commit.push_encoded("Note", 1, &[7; 100_000]).unwrap();
    store.submit(commit).unwrap().wait().unwrap();
    store.maintain_now();
    wait(replicator.copy_all()).unwrap();
    assert!(data.path().join("journal/00000001.pak").exists());
    assert_eq!(events_of(&storage), 40);
    store.remove(other).unwrap();
    drop(store);
    wait(replicator.copy_all()).unwrap();
    assert!(LocalStore::collect(data.path(), false).unwrap().segments > 0);
    wait(replicator.copy_all()).unwrap();
    append(data.path(), packing, 2);
    wait(replicator.copy_all()).unwrap();
    assert_eq!(events_of(&storage), 42);
}

#[test]
fn repaired_store_is_copied_with_its_gap() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 40);
    copy(data.path(), &storage).unwrap();
    let segment = data.path().join("journal/00000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[300_000..300_100].fill(0);
    std::fs::write(&segment, bytes).unwrap();
    let report = LocalStore::fsck(data.path(), true).unwrap();
    assert_eq!((report.gaps.len(), report.gaps[0].last - report.gaps[0].first), (1, 0), "{report:?}");
    append(data.path(), small(), 1);
    copy(data.path(), &storage).unwrap();
    assert_eq!(events_of(&storage), 41);
}

#[test]
fn store_that_lost_its_end_leaves_its_copy_alone() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 5);
    copy(data.path(), &storage).unwrap();
    cut(data.path(), 200_000);
    assert!(matches!(copy(data.path(), &storage), Err(ReplicationError::Behind { own: 1, .. })));
    assert_eq!(events_of(&storage), 5);
}

#[test]
fn store_that_goes_on_after_a_cut_replaces_the_end_of_its_copy() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 5);
    copy(data.path(), &storage).unwrap();
    // Like a power cut, which loses unsynced bytes, with an index that is behind.
    cut(data.path(), 200_000);
    std::fs::remove_dir_all(data.path().join("index")).unwrap();
    append(data.path(), small(), 6);
    copy(data.path(), &storage).unwrap();
    assert_eq!(events_of(&storage), 9);
}

#[test]
fn damaged_journal_is_not_copied_over_a_whole_one() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 40);
    copy(data.path(), &storage).unwrap();
    let path = data.path().join("journal/00000001.seg");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[300_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(copy(data.path(), &storage), Err(ReplicationError::Store(_))));
    assert_eq!(events_of(&storage), 40);
}

#[test]
fn restore_at_a_time_ends_at_the_last_commit_not_later() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 40);
    copy(data.path(), &storage).unwrap();
    for (at, events) in [(1_000, 1), (1_999, 1), (20_000, 20), (39_999, 39), (40_000, 40), (90_000, 40)] {
        let (directory, report) = restored(&storage, Some(Timestamp(at))).unwrap();
        assert_eq!((report.events, report.later), (events, 40 - events), "at {at}");
        let data = directory.path().join("data");
        assert_eq!(LocalStore::fsck(&data, false).unwrap().problems, []);
        append(&data, small(), 1);
    }
    let early = restored(&storage, Some(Timestamp(999)));
    assert!(matches!(early, Err(ReplicationError::TooEarly { .. })));
}

#[test]
fn restore_names_what_is_missing_or_damaged() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 40);
    copy(data.path(), &storage).unwrap();
    for name in names(&storage).into_iter().filter(|name| name.starts_with("pieces/")) {
        let path = Path::from(name.as_str());
        let whole = wait(async { storage.get(&path).await.unwrap().bytes().await.unwrap() });
        let short = name.trim_start_matches("pieces/");
        wait(storage.delete(&path)).unwrap();
        let error = restored(&storage, None).unwrap_err();
        assert!(error.to_string().contains(short), "{error}");
        let mut changed = whole.to_vec();
        changed[whole.len() / 2] ^= 4;
        wait(storage.put(&path, changed.into())).unwrap();
        let error = restored(&storage, None).unwrap_err();
        assert!(error.to_string().contains(&format!("{short} does not match its digest")), "{error}");
        wait(storage.put(&path, whole.into())).unwrap();
    }
    assert_eq!(events_of(&storage), 40);
}

#[test]
fn missing_object_is_written_again_by_the_next_process() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 40);
    copy(data.path(), &storage).unwrap();
    wait(storage.delete(&Path::from("pieces/00000001-00000001"))).unwrap();
    copy(data.path(), &storage).unwrap();
    assert_eq!(events_of(&storage), 40);
}

#[test]
fn copy_that_was_deleted_is_written_again() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 40);
    let mut replicator = replicator(data.path(), &storage);
    wait(replicator.copy_all()).unwrap();
    for name in names(&storage) {
        wait(storage.delete(&Path::from(name))).unwrap();
    }
    append(data.path(), small(), 1);
    assert!(matches!(wait(replicator.pass()), Err(ReplicationError::Conflict { .. })));
    wait(replicator.pass()).unwrap();
    assert_eq!(events_of(&storage), 41);
}

#[test]
fn restore_refuses_a_directory_with_a_store() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 1);
    copy(data.path(), &storage).unwrap();
    let refused = wait(restore_from(data.path(), &CopyTarget::of(storage), None));
    assert!(matches!(refused, Err(ReplicationError::Occupied(_))));
}

/// Changes the manifest and the list of sealed segments, and updates their digests.
fn change(storage: &Arc<InMemory>, change: impl FnOnce(&mut CopyManifest, &mut Vec<CopiedSegment>)) {
    let read = |name: &str| wait(async { storage.get(&Path::from(name)).await.unwrap().bytes().await.unwrap() });
    let mut manifest: CopyManifest = manifest::decode(&read("manifest")).unwrap();
    let list = format!("pieces/{}", manifest.sealed.as_ref().unwrap().name);
    let mut segments: Vec<CopiedSegment> = manifest::decode(&read(&list)).unwrap();
    let before = segments.clone();
    change(&mut manifest, &mut segments);
    if let Some(sealed) = manifest.sealed.as_mut().filter(|_| segments != before) {
        let bytes = manifest::encode(&segments);
        (sealed.bytes, sealed.digest) = (bytes.len() as u64, Digest::of(&bytes));
        wait(storage.put(&Path::from(list), bytes.into())).unwrap();
    }
    wait(storage.put(&Path::from("manifest"), manifest::encode(&manifest).into())).unwrap();
}

#[test]
fn manifest_that_makes_no_sense_is_refused() {
    type Change = fn(&mut CopyManifest, &mut Vec<CopiedSegment>);
    fn last(manifest: &mut CopyManifest) -> &mut CopiedSegment {
        manifest.last.as_mut().unwrap()
    }
    let changes: [(&str, Change); 17] = [
        ("segment 0 is out of order", |_, list| list[0].number = 0),
        ("segment 0 is out of order", |manifest, list| {
            (manifest.sealed, last(manifest).number) = (None, 0);
            list.clear();
        }),
        ("segment 3 is out of order", |manifest, _| manifest.sealed = None),
        ("segment 1 is out of order", |_, list| list[1].number = 1),
        ("segment 4294967295 is out of order", |manifest, _| last(manifest).number = u32::MAX),
        ("segment 2 must be sealed", |_, list| list[1].sealed = false),
        ("segment 3 must be sealed", |manifest, _| last(manifest).sealed = true),
        ("segment 3 is packed", |manifest, _| last(manifest).packed = true),
        ("segment 3 has no bytes", |manifest, _| last(manifest).pieces.clear()),
        ("segment 1 has no bytes", |_, list| list[0].pieces.iter_mut().for_each(|piece| piece.bytes = 0)),
        ("segment 3 has no bytes, or too many", |manifest, _| last(manifest).pieces[0].bytes = 1 << 62),
        ("segment 1 has no bytes, or too many", |_, list| {
            list[0].pieces[0].bytes = u64::MAX;
            let again = list[0].pieces[0].clone();
            list[0].pieces.push(again);
        }),
        ("segment 3 has an object that is listed twice", |manifest, _| {
            let segment = last(manifest);
            segment.pieces = vec![segment.pieces[0].clone(); 1_000];
        }),
        ("segment 2 has an object that is listed twice", |_, list| list[1].pieces = list[0].pieces.clone()),
        ("its epoch is invalid", |manifest, _| manifest.epoch = u64::MAX),
        ("it names a list of segments, but no last segment", |manifest, _| manifest.last = None),
        ("its segments belong to another journal", |manifest, _| manifest.journal = "0".repeat(32)),
    ];
    let data = tempfile::tempdir().unwrap();
    append(data.path(), small(), 40);
    for (expected, made) in changes {
        let storage = Arc::new(InMemory::new());
        copy(data.path(), &storage).unwrap();
        change(&storage, made);
        let refused = restored(&storage, None).unwrap_err();
        assert!(matches!(&refused, ReplicationError::Damaged { .. }), "{expected}: {refused}");
        assert!(refused.to_string().contains(expected), "{expected}: {refused}");
        // Otherwise a writer would continue from it.
        copy(data.path(), &storage).unwrap_err();
    }
}

#[test]
fn restore_of_a_copy_without_its_objects_names_the_first_only() {
    let (data, storage) = (tempfile::tempdir().unwrap(), Arc::new(InMemory::new()));
    append(data.path(), small(), 1);
    copy(data.path(), &storage).unwrap();
    let path = Path::from("manifest");
    let bytes = wait(async { storage.get(&path).await.unwrap().bytes().await.unwrap() });
    let mut manifest: CopyManifest = manifest::decode(&bytes).unwrap();
    let piece = manifest.last.as_ref().unwrap().pieces[0].clone();
    let missing = |at: u32| manifest::CopiedPiece { name: format!("0000000f-{at:08x}"), bytes: 1, ..piece.clone() };
    manifest.last.as_mut().unwrap().pieces = (0..5_000).map(missing).collect();
    wait(storage.put(&path, manifest::encode(&manifest).into())).unwrap();
    let refused = restored(&storage, None).unwrap_err().to_string();
    assert_eq!(refused.matches("is missing").count(), 20, "{refused}");
}
