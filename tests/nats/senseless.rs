//! Messages on a session's subject that no writer of the session has sent: they end no session, and a check names them.

use std::process::{Command, Output};

use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::Context;
use foldspace::{Commit, EventStore, SessionId, Timestamp};
use tempfile::TempDir;
use tokio::task::block_in_place;

use crate::rig::Cluster;
use crate::writers::{Machine, STREAM, session};

/// Records an event, and returns its position.
fn record(machine: &Machine, session: SessionId, text: &str) -> u64 {
    let mut commit = Commit::new(session, Timestamp(1_000));
    commit.push_encoded("Note", 1, text.as_bytes()).unwrap();
    block_in_place(|| machine.store.submit(commit).unwrap().wait()).unwrap().first
}

/// Returns the payloads of a session's events.
fn texts(machine: &Machine, session: SessionId) -> Result<Vec<String>, foldspace::StoreError> {
    let batch = block_in_place(|| {
        let head = machine.store.head(session)?;
        machine.store.read(session, 1, head, usize::MAX)
    })?;
    Ok(batch.events().map(|event| String::from_utf8(event.payload.to_vec()).unwrap()).collect())
}

fn subject(session: SessionId) -> String {
    format!("{STREAM}.s.{session}")
}

/// Publishes a message on a session's subject, `behind` a message as a writer would; returns its position.
async fn publish(context: &Context, session: SessionId, behind: Option<u64>, payload: Vec<u8>) -> u64 {
    let mut headers = HeaderMap::new();
    if let Some(behind) = behind {
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, behind.to_string());
    }
    let sent = context.publish_with_headers(subject(session), headers, payload.into()).await.unwrap();
    sent.await.unwrap().sequence
}

/// Returns the last message of a session, and its position.
async fn last(context: &Context, session: SessionId) -> (u64, Vec<u8>) {
    let stream = context.get_stream(STREAM).await.unwrap();
    let last = stream.get_last_raw_message_by_subject(&subject(session)).await.unwrap();
    (last.sequence, last.payload.to_vec())
}

/// Changes the position of a commit's first event.
fn placed(mut message: Vec<u8>, first: u64) -> Vec<u8> {
    message[17..25].copy_from_slice(&first.to_le_bytes());
    message
}

/// The program, on a copy of its own.
struct Checker {
    directory: TempDir,
    store: String,
}

impl Checker {
    fn new(cluster: &Cluster) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), store: cluster.store_address(&[0, 1, 2], STREAM) }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
        command.arg("--data").arg(self.directory.path()).args(["--store", &self.store]).args(arguments);
        command.env("HOME", self.directory.path()).output().unwrap()
    }

    /// Runs `fsck`; returns its status and what it printed.
    fn fsck(&self, more: &[&str]) -> (Option<i32>, String) {
        let output = self.run(&[&["fsck"], more].concat());
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}

/// Payloads that can be no next commit of session 1, which ends with event 2, and words of the check on each.
fn senseless(own: &[u8], foreign: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    let number = session(1).as_bytes().to_vec();
    let fork_of_itself = [&[2][..], &number, &2u64.to_le_bytes(), &placed(own.to_vec(), 3)[1..]].concat();
    let huge_fork = [&[2][..], session(2).as_bytes(), &u64::MAX.to_le_bytes(), &own[1..]].concat();
    vec![
        (Vec::new(), "is not a session message"),
        (vec![1], "is not a complete commit"),
        (vec![4, 0], "is not a session message"),
        (vec![200; 300], "is not a session message"),
        ([&[1][..], &[9; 400]].concat(), "is not a complete commit"),
        (own[..own.len() - 1].to_vec(), "is not a complete commit"),
        (own[..40].to_vec(), "is not a complete commit"),
        ([&[3][..], b"x"].concat(), "is not a session message"),
        (foreign.to_vec(), "is a commit of session"),
        (own.to_vec(), "already exist"),
        (placed(own.to_vec(), 1), "already exist"),
        (placed(own.to_vec(), 100), "begins with event 100"),
        (fork_of_itself, "is an invalid fork"),
        (huge_fork, "is an invalid fork"),
        ([&[17][..], &[7; 32]].concat(), "its content is missing"),
        ([&[17][..], &[7; 31]].concat(), "is not a session message"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senseless_message_ends_no_session_and_is_cut_off() {
    let Some(cluster) = Cluster::start() else { return };
    let (context, one) = (cluster.connect(0).await, Machine::patient(&cluster));
    for (number, text) in [(1, "a"), (2, "x"), (1, "b")] {
        record(&one, session(number), text);
    }
    let ((_, own), (_, foreign)) = (last(&context, session(1)).await, last(&context, session(2)).await);
    let mut sent = Vec::new();
    for (payload, what) in senseless(&own, &foreign) {
        sent.push((publish(&context, session(1), None, payload).await, what));
    }
    assert_eq!(record(&one, session(1), "c"), 3, "its writer goes on");
    // The same as a writer would send it, but for a content that may be lost.
    for (payload, what) in senseless(&own, &foreign).into_iter().filter(|(_, what)| !what.contains("content")) {
        let behind = last(&context, session(1)).await.0;
        sent.push((publish(&context, session(1), Some(behind), payload).await, what));
    }
    let other = Machine::patient(&cluster);
    assert_eq!(record(&other, session(1), "d"), 4, "and another host");
    for machine in [&one, &other, &Machine::patient(&cluster)] {
        assert_eq!(texts(machine, session(1)).unwrap(), ["a", "b", "c", "d"]);
    }

    let checker = Checker::new(&cluster);
    let (status, told) = checker.fsck(&[]);
    assert_eq!(status, Some(1), "{told}");
    for (sequence, what) in &sent {
        let begin = format!("session {}, message {sequence} of the cluster: ", session(1));
        assert!(told.lines().any(|line| line.starts_with(&begin) && line.contains(what)), "{sequence} {what}: {told}");
    }
    assert!(told.contains(&format!("on the cluster: {} problems", sent.len())), "{told}");
    let (status, told) = checker.fsck(&["--repair"]);
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains(&format!("{} invalid messages removed", sent.len())), "{told}");
    let (status, told) = checker.fsck(&[]);
    assert_eq!((status, told.contains("on the cluster: no damage remains")), (Some(0), true), "{told}");
    assert_eq!(record(&one, session(1), "e"), 5);
    block_in_place(|| one.store.remove(session(1))).unwrap();
    assert!(texts(&other, session(1)).is_err(), "it is removed");
    assert_eq!(checker.fsck(&[]).0, Some(0));
    cluster.verify(STREAM);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commits_are_named_and_not_passed_over() {
    let Some(cluster) = Cluster::start() else { return };
    let (context, one) = (cluster.connect(0).await, Machine::patient(&cluster));
    for number in [1, 2, 3] {
        ["a", "b", "c"].iter().for_each(|text| assert!(record(&one, session(number), text) > 0));
    }
    // The first messages of session 1 are gone.
    let stream = context.get_stream(STREAM).await.unwrap();
    stream.purge().filter(subject(session(1))).keep(1).await.unwrap();
    // Of session 2 a commit can't be read, behind which its writer has sent another one.
    let (behind, own) = last(&context, session(2)).await;
    let cut = publish(&context, session(2), Some(behind), own[..own.len() - 1].to_vec()).await;
    publish(&context, session(2), Some(cut), placed(own, 5)).await;
    // Of session 3 a content is gone.
    let behind = last(&context, session(3)).await.0;
    publish(&context, session(3), Some(behind), [&[17][..], &[7; 32]].concat()).await;

    let other = Machine::patient(&cluster);
    for (number, what) in [(1, "events 1 to 2 are lost"), (2, "event 4 is lost"), (3, "no content has the digest")] {
        let error = texts(&other, session(number)).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let checker = Checker::new(&cluster);
    for more in [&[][..], &["--repair"]] {
        let (status, told) = checker.fsck(more);
        assert_eq!(status, Some(1), "{told}");
        for what in ["events 1 to 2 are lost", "event 4 is lost", "is lost"] {
            assert!(told.contains(what), "{what}: {told}");
        }
    }
}
