//! Each fault of the rig does what it says, and takes nothing along that was acknowledged.

use foldspace::store::Expected;
use foldspace::{EventStore, StoreError};

use crate::checker::{self, Commit, Fault, faults};
use crate::rig::Cluster;
use crate::testing::rounds;
use crate::testing::{Random, eventually};
use crate::writers::{Load, Machine, Note, STREAM, session};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_killed_repeatedly_loses_nothing() {
    let Some(mut cluster) = Cluster::start() else { return };
    let load = Load::start(&cluster, 32);
    for _ in 0..rounds(3) {
        load.await_more(1000);
        let leader = cluster.leader(STREAM);
        cluster.kill(leader);
        assert_ne!(cluster.leader(STREAM), leader);
        load.await_more(1000);
        cluster.restart(leader);
    }
    load.end(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_cut_off_acknowledges_nothing_and_steps_down() {
    let Some(cluster) = Cluster::start() else { return };
    let load = Load::start(&cluster, 8);
    load.await_more(200);
    let old = cluster.leader(STREAM);
    let shared = session(1_000);
    let mut random = Random(1);
    let mut note = || Note::new(shared, &mut random);
    let owner = Machine::patient(&cluster);
    let more = [(); 3].map(|()| Machine::patient(&cluster));
    note().record(&owner.store, &load.acknowledged).unwrap();
    let rival = Machine::impatient(&cluster, &[old], 2);
    let head = rival.store.head(shared).unwrap();

    cluster.cut(old);
    let mut late = note();
    late.commit = late.commit.expecting(Expected::Exactly(head));
    let refused = late.record(&rival.store, &load.acknowledged).unwrap_err();
    assert!(matches!(refused, StoreError::Cluster { .. }), "{refused}");
    // Until they elect another, the others still name the old one.
    eventually("another node leads", || cluster.leader(STREAM) != old);
    note().record(&owner.store, &load.acknowledged).unwrap();
    // One or another was connected to the node that is cut off.
    more.iter().for_each(|machine| note().record(&machine.store, &load.acknowledged).unwrap());
    eventually("the old leader steps down", || cluster.leader_seen_by(old, STREAM) != Some(old));
    let refused = late.record(&rival.store, &load.acknowledged).unwrap_err();
    assert!(matches!(refused, StoreError::Cluster { .. }), "{refused}");

    cluster.heal(old);
    cluster.await_health(old);
    eventually("the late commit is refused", || match late.record(&rival.store, &load.acknowledged).unwrap_err() {
        StoreError::Conflict { .. } => true,
        // Its server finds the others again.
        StoreError::Cluster { .. } => false,
        other => panic!("{other}"),
    });
    assert_eq!(rival.store.head(shared).unwrap(), owner.store.head(shared).unwrap());
    load.end(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_stopped_and_resumed_keeps_one_history() {
    let Some(cluster) = Cluster::start() else { return };
    let load = Load::start(&cluster, 8);
    load.await_more(200);
    let old = cluster.leader(STREAM);
    cluster.stop(old);
    assert!(cluster.monitor(old, "/healthz").is_none());
    assert_ne!(cluster.leader(STREAM), old);
    load.await_more(200);
    cluster.resume(old);
    cluster.await_health(old);
    load.await_more(200);
    load.end(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_full_disk_does_not_hold_up_the_others() {
    let Some(mut cluster) = Cluster::start_with_small_disk(0, 64) else { return };
    let load = Load::start(&cluster, 8);
    load.await_more(200);
    checker::lead(&cluster.connect(0).await, STREAM, "n0").await;
    cluster.fill_disk(0);
    eventually("another node leads", || cluster.leader(STREAM) != 0);
    load.await_more(500);
    assert!(std::fs::read_to_string(cluster.log(0)).unwrap().contains("no space left on device"));
    cluster.free_disk(0);
    cluster.restart(0);
    load.await_more(200);
    load.end(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_restarted_as_a_whole_loses_nothing() {
    let Some(mut cluster) = Cluster::start() else { return };
    let load = Load::start(&cluster, 8);
    load.await_more(500);
    cluster.restart_all();
    load.await_more(500);
    load.end(&cluster).await;
}

fn commit(position: u64, id: &str, digest: &str) -> Commit {
    Commit { session: "s".into(), position, events: 1, id: id.into(), digest: digest.into() }
}

#[test]
fn checker_names_each_fault() {
    let whole = [commit(1, "a", "A"), commit(2, "b", "B"), commit(3, "c", "C")];
    let [a, b, c] = whole.clone();
    let (session, id) = ("s".to_owned(), |id: &str| id.to_owned());
    let found = |stored: &[Commit]| faults(&whole, stored).into_iter().collect::<Vec<_>>();
    assert_eq!(found(&whole), []);
    // Another commit after those that were acknowledged is none: its answer was lost.
    assert_eq!(found(&[a.clone(), b.clone(), c.clone(), commit(4, "d", "D")]), []);
    let missing = Fault::Missing { session: session.clone(), position: 3, id: id("c") };
    assert_eq!(found(&whole[..2]), [missing]);
    let doubled = Fault::Doubled { session: session.clone(), position: 2, id: id("b") };
    assert_eq!(found(&[a.clone(), b.clone(), b.clone(), c.clone()]), [doubled]);
    let (missing, gap) = (
        Fault::Missing { session: session.clone(), position: 2, id: id("b") },
        Fault::Gap { session: session.clone(), position: 3 },
    );
    assert_eq!(found(&[a.clone(), c.clone()]), [missing, gap]);
    let two = Fault::TwoHistories { session, position: 2 };
    assert_eq!(found(&[a.clone(), b.clone(), commit(2, "x", "X"), c.clone()]), std::slice::from_ref(&two));
    assert_eq!(found(&[a, commit(2, "b", "X"), c]), [two]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checker_finds_loss_on_every_replica() {
    let Some(cluster) = Cluster::start() else { return };
    let mut load = Load::start(&cluster, 1);
    load.await_more(10);
    load.finish();
    load.acknowledged.note(&session(0).to_string(), 1_000_000, 1, "never-stored", b"never stored");
    let context = cluster.connect(0).await;
    let mut found = checker::check(&context, STREAM, &load.acknowledged).await;
    found.sort();
    let lost = Fault::Missing { session: session(0).to_string(), position: 1_000_000, id: "never-stored".into() };
    assert_eq!(found, ["n0", "n1", "n2"].map(|node| (node.to_owned(), lost.clone())));
}
