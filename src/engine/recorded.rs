use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::event::{
    ArchivedWriteFileV1, CodecError, Common, Event, FinishedView, delete_path, finished_view, write_view,
};
use super::{Seq, SessionId, Timestamp};

/// Event with its session, position, time, call and agent. By default the event is still encoded;
/// [`typed`](Recorded::typed) decodes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recorded<E = Payload> {
    /// Session of the event.
    pub session: SessionId,
    /// Position in the session.
    pub seq: Seq,
    /// Time in UTC, never before that of the previous event.
    pub time: Timestamp,
    /// Call id of the call that caused it: the position of its [`CallStarted`](crate::event::CallStarted).
    pub call: Option<Seq>,
    /// Agent that made the call.
    pub agent: Arc<str>,
    /// Event, encoded or typed.
    pub event: E,
}

/// Encoded event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Payload {
    /// [`KIND`](Event::KIND) of the event.
    pub kind: Arc<str>,
    /// Version of the encoding.
    pub version: u16,
    /// Encoded bytes.
    pub bytes: Bytes,
}

impl Recorded {
    /// Decodes the event as `E`; `None` if it is of another kind. Fails with [`CodecError`].
    pub fn typed<E: Event>(&self) -> Option<Result<Recorded<E>, CodecError>> {
        self.view().typed()
    }

    /// Borrows the event.
    pub fn view(&self) -> EventRef<'_> {
        EventRef {
            session: self.session,
            seq: self.seq,
            time: self.time,
            call: self.call,
            agent: &self.agent,
            common: Common::of(self.event.kind.as_bytes()),
            kind: &self.event.kind,
            version: self.event.version,
            payload: &self.event.bytes,
            declared: None,
            validated: ValidatedPayload::No,
        }
    }
}

/// Recorded event, borrowed without copying.
#[derive(Debug, Clone, Copy)]
pub struct EventRef<'a> {
    /// Session of the event.
    pub session: SessionId,
    /// Position in the session.
    pub seq: Seq,
    /// Time in UTC.
    pub time: Timestamp,
    /// Call id of the call that caused it.
    pub call: Option<Seq>,
    /// Agent that made the call.
    pub agent: &'a str,
    /// Kind of the event.
    pub kind: &'a str,
    /// Version of the encoding.
    pub version: u16,
    /// Encoded bytes.
    pub payload: &'a [u8],
    /// Declared references; `None` without a declaration.
    pub(crate) declared: Option<&'a [[u8; 32]]>,
    #[doc(hidden)]
    pub common: Common,
    pub(crate) validated: ValidatedPayload<'a>,
}

/// Payload that was validated already, so that several slices need not do it again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ValidatedPayload<'a> {
    No,
    Write(&'a ArchivedWriteFileV1),
    Finished(FinishedView<'a>),
}

impl<'a> EventRef<'a> {
    /// Validates the payload once for all readers of its view.
    #[inline]
    pub(crate) fn validate(&mut self) {
        let validated = match self.common {
            Common::WriteFile => write_view(self.version, self.payload).map(ValidatedPayload::Write),
            Common::CallFinished => finished_view(self.version, self.payload).map(ValidatedPayload::Finished),
            Common::CallStarted | Common::DeleteEntry | Common::Other => return,
        };
        self.validated = validated.unwrap_or(ValidatedPayload::No);
    }

    #[inline]
    pub(crate) fn written(&self) -> Result<&'a ArchivedWriteFileV1, CodecError> {
        match self.validated {
            ValidatedPayload::Write(view) => Ok(view),
            _ => write_view(self.version, self.payload),
        }
    }

    #[inline]
    #[doc(hidden)]
    pub fn finished(&self) -> Result<FinishedView<'a>, CodecError> {
        match self.validated {
            ValidatedPayload::Finished(view) => Ok(view),
            _ => finished_view(self.version, self.payload),
        }
    }

    /// Returns the path of a write or a removal, in place and not yet checked to be normal. `None` for other events.
    #[doc(hidden)]
    pub fn changed_path(&self) -> Option<&'a [u8]> {
        match self.common {
            Common::WriteFile => Some(self.written().ok()?.path()),
            Common::DeleteEntry => delete_path(self.version, self.payload).ok(),
            _ => None,
        }
    }

    /// Decodes the event as `E`; `None` if it is of another kind. Fails with [`CodecError`].
    pub fn typed<E: Event>(&self) -> Option<Result<Recorded<E>, CodecError>> {
        (self.kind == E::KIND).then(|| Ok(self.record_of(E::decode(self.version, self.payload)?)))
    }

    /// Decodes the event as `E`; `None` if it is of another kind or damaged.
    #[doc(hidden)]
    pub fn decoded<E: Event>(&self) -> Option<E> {
        if self.kind == E::KIND { E::decode(self.version, self.payload).ok() } else { None }
    }

    /// Returns an owned copy.
    pub fn to_recorded(&self) -> Recorded {
        let (kind, bytes) = (Arc::from(self.kind), Bytes::copy_from_slice(self.payload));
        self.record_of(Payload { kind, version: self.version, bytes })
    }

    fn record_of<E>(&self, event: E) -> Recorded<E> {
        let Self { session, seq, time, call, .. } = *self;
        Recorded { session, seq, time, call, agent: Arc::from(self.agent), event }
    }
}
