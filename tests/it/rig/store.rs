//! The store of a test: in its directory, or on the NATS cluster of `FOLDSPACE_NATS` where `FOLDSPACE_TEST_STORE` is
//! `nats`, with the directory as its copy.

use std::path::Path;
use std::sync::Arc;

use foldspace::event::{Digest, SystemClock};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{LocalStoreOptions, NatsStore, NatsStoreOptions, StoreHost};
use foldspace::{EventStore, LocalStore, Registry, Sessions};

/// Opens the store of a directory: the same one each time.
pub(crate) fn open(directory: &Path) -> Arc<dyn EventStore> {
    if std::env::var("FOLDSPACE_TEST_STORE").as_deref() != Ok("nats") {
        return Arc::new(LocalStore::open(directory, LocalStoreOptions::default()).unwrap());
    }
    let servers = std::env::var("FOLDSPACE_NATS").expect("FOLDSPACE_NATS has the servers of the cluster");
    let place = Digest::of(directory.as_os_str().as_encoded_bytes()).to_string();
    let address = format!("{servers}?stream=t-{}", &place[..16]).parse().unwrap();
    let host = StoreHost { name: "test".to_owned(), at: None };
    Arc::new(NatsStore::open(&address, directory, NatsStoreOptions { host: Some(host), ..Default::default() }).unwrap())
}

/// Opens the sessions of a directory, with the machine's clock.
pub(crate) fn sessions(directory: &Path) -> Sessions {
    let clock = Arc::new(SystemClock::default());
    Sessions::new(open(directory), Registry::standard(), clock, SnapshotPolicy::default()).unwrap()
}

/// Returns the servers of the tests' NATS cluster; without one the test is skipped.
pub(crate) fn cluster() -> Option<String> {
    let servers = std::env::var("FOLDSPACE_NATS").ok();
    if servers.is_none() {
        crate::rig::skip("no NATS cluster; tests/nats/ready.sh makes one");
    }
    servers
}
