//! The costs that the simulation counts with: measured ones, and assumptions. `docs/scale.md` lists where each is from.

/// Commits a second that one stream takes: NATS 2.15.0, three replicas, `sync_interval: always`, 100 writers, all of it
/// on 2 cores.
pub(super) const STREAM_COMMITS: f64 = 19_100.0;
/// Milliseconds that a commit takes there: half of them, and one in a hundred.
pub(super) const COMMIT: [f64; 2] = [4.8, 13.0];
/// Milliseconds that a commit takes when nothing else is written, p50.
pub(super) const LONE_COMMIT: f64 = 0.89;
/// Milliseconds without a leader after `kill -9` of it: the shortest and the longest of 23 runs.
pub(super) const ELECTION: [f64; 2] = [4_100.0, 7_400.0];
/// Messages a second that are read from a stream.
pub(super) const STREAM_READS: f64 = 145_000.0;
/// Events between two snapshots of a session at least, and bytes of a snapshot for each (`NatsStoreOptions`).
pub(super) const SNAPSHOT_EVERY: f64 = 1_536.0;
pub(super) const SNAPSHOT_BYTES_PER_EVENT: f64 = 100.0;
/// Bytes of a snapshot on the cluster without files, and what each file adds: 82,600 with 1,000.
pub(super) const SNAPSHOT_BYTES: f64 = 33_000.0;
pub(super) const SNAPSHOT_FILE: f64 = 50.0;
/// Bytes of snapshots a second that are read from a stream: 5,590 of 82,600 bytes, 32 asked for at once, all of it and a
/// compiler on 2 cores.
pub(super) const SNAPSHOT_READS: f64 = 461e6;
/// Milliseconds of a read from a key-value bucket.
pub(super) const KEY_READ: f64 = 0.12;
/// Milliseconds of a read of a content of 4 KiB, in batches of 512: 42,500 a second one batch after the other, 72,000 with
/// four at once, of 20,000, with a compiler beside.
pub(super) const CONTENT_READ: f64 = 0.0235;
/// Bytes of memory of a NATS server, and what each subject adds: 600,000 subjects on one server.
pub(super) const NODE_MEMORY: f64 = 150e6;
pub(super) const SUBJECT_MEMORY: f64 = 400.0;
/// Bytes that a stored message takes beside its body: subject, headers, record. The same run.
pub(super) const MESSAGE_BYTES: f64 = 169.0;

/// Events, commits, bytes in the journal and bytes of the whole store of a call (BENCHMARKS.md, "The rest").
pub(super) const CALL_EVENTS: f64 = 3.0;
pub(super) const CALL_COMMITS: f64 = 2.0;
pub(super) const CALL_BYTES: f64 = 1_550.0;
pub(super) const CALL_STORE: f64 = 1_980.0;
/// Milliseconds until the state at a position is there, p99 (BENCHMARKS.md, "The rest").
pub(super) const STATE: f64 = 4.5;
/// Milliseconds to write a file to a disk: `materialise` of 10,000 takes 654 (BENCHMARKS.md, "Children, and the past").
pub(super) const POPULATE: f64 = 0.0654;
/// Milliseconds of a fork that waits for the disk, and in a warm container (BENCHMARKS.md, "Children, and the past").
pub(super) const LOCAL_FORK: f64 = 0.298;
pub(super) const WARM_FORK: f64 = 5.1;
/// Bytes of a server's memory for a session in use: 385 MiB with 200 (BENCHMARKS.md, "Faces").
pub(super) const SESSION_MEMORY: f64 = 385.0 * 1_048_576.0 / 200.0;

/// Ends of sessions that a host tells a second, at most.
pub(super) const ENDS_TOLD: f64 = 1.0;

/// Seconds between two calls of a live session. An assumption.
pub(super) const CALL_EVERY: f64 = 20.0;
/// Heartbeats of a host while its lease runs. An assumption.
pub(super) const HEARTBEATS: f64 = 3.0;
/// Files of a session's workspace: its logarithm lies evenly between these. An assumption.
pub(super) const FILES: [f64; 2] = [100.0, 10_000.0];
/// Bytes of a file, and the part of a session's files that its new host does not have yet. Assumptions.
pub(super) const FILE_BYTES: f64 = 4_096.0;
pub(super) const MISSING: f64 = 0.1;
/// Workspaces that a host fills at once. An assumption.
pub(super) const FILLED_AT_ONCE: usize = 4;
