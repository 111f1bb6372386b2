//! Open workspaces that many share.

use std::time::Duration;

use foldspace::event::{Isolation, SystemClock};
use foldspace::hub::{HubError, HubOptions};
use foldspace::reducers::MergeChoices;
use foldspace::session::SnapshotPolicy;
use foldspace::tools::{MergeOutcome, RewindOptions};
use foldspace::{ForkOptions, Hub, LocalStore, Registry, Sessions, ToolCall, VirtualFileSystem, WorkspaceSpec};
use serde_json::json;

fn hub() -> (tempfile::TempDir, Hub) {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    let hub = Hub::new(sessions, HubOptions::new(directory.path()));
    (directory, hub)
}

fn write(path: &str) -> ToolCall {
    ToolCall::new("write_file", json!({ "file_path": path, "content": "hello\n" }))
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_shares_a_workspace_and_closes_it_unused() {
    let (_directory, hub) = hub();
    let spec = WorkspaceSpec::parse("host", &json!({})).unwrap();
    let session = hub.create(Some("demo".to_owned()), &spec, &[]).await.unwrap();
    let id = session.session().id();
    let others: Vec<_> = (0..8)
        .map(|number| {
            let hub = hub.clone();
            tokio::spawn(async move {
                let session = hub.open(id).await.unwrap().as_agent(&format!("agent-{number}"));
                session.call(write(&format!("{number}.txt"))).await.unwrap()
            })
        })
        .collect();
    for other in others {
        assert!(other.await.unwrap().is_ok());
    }
    let state = session.session().state().unwrap();
    assert_eq!(VirtualFileSystem::of(&state).iter().count(), 8);
    assert_eq!(hub.close_unused(Duration::ZERO).await, 0, "it is used");
    drop(session);
    assert_eq!((hub.close_unused(Duration::from_secs(600)).await, hub.open_count()), (0, 1));
    assert_eq!((hub.close_unused(Duration::ZERO).await, hub.open_count()), (1, 0));
    let again = hub.open(id).await.unwrap();
    assert!(again.call(write("again.txt")).await.unwrap().is_ok());
    hub.close().await;
    assert!(matches!(hub.open(id).await, Err(HubError::Ending)));
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_starts_merges_and_removes_children() {
    let (_directory, hub) = hub();
    let parent = hub.create(None, &WorkspaceSpec::Memory, &[]).await.unwrap();
    let child = hub.start_child(parent.session().id(), ForkOptions::new(Isolation::Fork)).await.unwrap();
    assert!(child.call(write("new.txt")).await.unwrap().is_ok());
    let id = child.session().id();
    let choices = MergeChoices::default();
    let preview = hub.merge(id, &parent, &choices, (true, None)).await.unwrap();
    assert_eq!((preview.outcome, preview.seq), (MergeOutcome::Merged, None));
    assert!(hub.merge(id, &parent, &choices, (false, None)).await.unwrap().seq.is_some());
    assert!(matches!(hub.remove(id).await, Err(HubError::Busy { .. })));
    drop(child);
    hub.remove(id).await.unwrap();
    assert!(hub.open(id).await.is_err());
    let rewound = parent.rewind(1, RewindOptions::default()).await.unwrap();
    assert_eq!(rewound.changes.len(), 1);
}

#[tokio::test]
async fn hub_failed_create_leaves_no_session() {
    let (directory, hub) = hub();
    let mount = foldspace::tools::MountSpec { host_path: directory.path().into(), ..Default::default() };
    let refused = hub.create(Some("demo".to_owned()), &WorkspaceSpec::Memory, &[mount]).await;
    assert!(matches!(refused, Err(HubError::Mount(_))));
    assert!(hub.sessions().list().unwrap().is_empty());
}

#[tokio::test]
async fn hub_workspace_belongs_to_one_process() {
    let (directory, hub) = hub();
    let session = hub.create(Some("demo".to_owned()), &WorkspaceSpec::Memory, &[]).await.unwrap();
    // What another process would have: its own handle of the store's directory.
    let beside = LocalStore::open_reading(directory.path()).unwrap();
    let clock = std::sync::Arc::new(SystemClock::default());
    let beside =
        Sessions::new(std::sync::Arc::new(beside), Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
    let beside = Hub::new(beside, HubOptions::new(directory.path()));
    let error = beside.open(session.session().id()).await.unwrap_err();
    assert!(error.to_string().contains("is in use by process"), "{error}");
}
