//! Commits as a stream has them, read as docs/FORMAT.md says, without the store's code.

use async_nats::jetstream::message::StreamMessage;

use crate::checker::Commit;

const COMMIT: u8 = 1;
const FORK: u8 = 2;
/// Bit of an event's version: there are references behind the payload.
const REFERENCES: u16 = 1 << 15;

/// Reads the commit of a message. Its digest is that of all payloads of its events.
pub(crate) fn decode(message: &StreamMessage) -> Commit {
    let mut left = Left(&message.payload);
    match left.take::<1>() {
        [COMMIT] => {}
        [FORK] => drop(left.take::<24>()),
        other => panic!("a message of kind {other:?} at {}", message.sequence),
    }
    let session = hex(&left.take::<16>());
    assert_eq!(Some(&*session), message.subject.rsplit('.').next(), "at {}", message.sequence);
    let first = u64::from_le_bytes(left.take());
    let (_time, id, _call) = (left.take::<8>(), left.take::<16>(), left.take::<8>());
    let events = u32::from_le_bytes(left.take());
    let mut digest = blake3::Hasher::new();
    left.named();
    for _ in 0..events {
        left.named();
        assert_eq!(u16::from_le_bytes(left.take()) & REFERENCES, 0, "no test has such an event");
        let length = u32::from_le_bytes(left.take());
        digest.update(left.bytes(usize::try_from(length).unwrap()));
    }
    assert!(left.0.is_empty(), "{} bytes behind the commit at {}", left.0.len(), message.sequence);
    let position = first + u64::from(events) - 1;
    Commit { session, position, events: events.into(), id: hex(&id), digest: digest.finalize().to_string() }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that are not read yet.
struct Left<'a>(&'a [u8]);

impl<'a> Left<'a> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        self.bytes(N).try_into().unwrap()
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, left) = self.0.split_at(count);
        self.0 = left;
        taken
    }

    /// Reads over a name behind its length.
    fn named(&mut self) {
        let [length] = self.take();
        self.bytes(length.into());
    }
}
