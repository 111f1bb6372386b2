//! The tests of the event store: what they use is there without any feature.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test stops at what it does not expect, and looks at files and processes itself"
)]

mod golden;
#[path = "../rig/mod.rs"]
mod rig;
mod store;

/// Does the work of a process that a test has started; no test itself.
#[test]
#[ignore = "the tests start it"]
fn process_entry() {
    let (work, orders) = rig::ordered();
    match work.as_str() {
        "append" => store::crash::append(&orders),
        "collect" => store::space::collect(&orders),
        "hold" => store::environment::hold(&orders),
        #[cfg(feature = "replicate")]
        "replicate" => store::replicated::replicate(&orders),
        "import_halfway" => store::portable::import_halfway(&orders),
        _ => panic!("no process does {work}"),
    }
}
