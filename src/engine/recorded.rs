//! Events as the history holds them.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::clock::Timestamp;
use super::event::{ArchivedWriteFileV1, CodecError, Common, Event, FinishedView, finished_view, write_view};
use super::id::{Seq, SessionId};

/// An event with where, when and by whom it was recorded.
///
/// By default the event is still encoded; [`typed`](Recorded::typed) gives it as a Rust type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recorded<E = Payload> {
    /// The session.
    pub session: SessionId,
    /// The position in the session.
    pub seq: Seq,
    /// When, in UTC. Never before that of the event before it.
    pub time: Timestamp,
    /// The tool call that caused it, named by the position of its [`CallStarted`](crate::CallStarted).
    pub call: Option<Seq>,
    /// Who made the call.
    pub agent: Arc<str>,
    /// What happened.
    pub event: E,
}

/// An event as it was encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Payload {
    /// The event's [`KIND`](Event::KIND).
    pub kind: Arc<str>,
    /// The version of the encoding.
    pub version: u16,
    /// The encoding.
    pub bytes: Bytes,
}

impl Recorded {
    /// The event as `E`; none when it is of another kind.
    ///
    /// # Errors
    /// [`CodecError`] when it is of this kind and can't be read.
    pub fn typed<E: Event>(&self) -> Option<Result<Recorded<E>, CodecError>> {
        self.view().typed()
    }

    /// The same without owning it.
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
            validated: Validated::No,
        }
    }
}

/// A recorded event in place: nothing is copied until it is asked for.
#[derive(Debug, Clone, Copy)]
pub struct EventRef<'a> {
    /// The session.
    pub session: SessionId,
    /// The position in the session.
    pub seq: Seq,
    /// When.
    pub time: Timestamp,
    /// The tool call that caused it.
    pub call: Option<Seq>,
    /// Who made the call.
    pub agent: &'a str,
    /// The event's kind.
    pub kind: &'a str,
    /// The version of the encoding.
    pub version: u16,
    /// The encoding.
    pub payload: &'a [u8],
    /// The digests that it says it refers to; none where it does not say.
    pub(crate) declared: Option<&'a [[u8; 32]]>,
    /// The kind again, for a fold that can't afford to compare names.
    pub(crate) common: Common,
    pub(crate) validated: Validated<'a>,
}

/// A payload that was found to be what its kind says, so that several slices need not look again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Validated<'a> {
    /// It was not looked at, is of another kind, or makes no sense.
    No,
    Write(&'a ArchivedWriteFileV1),
    Finished(FinishedView<'a>),
}

impl<'a> EventRef<'a> {
    /// Looks at the payload once for all that ask for its view.
    #[inline]
    pub(crate) fn validate(&mut self) {
        self.validated = match self.common {
            Common::WriteFile => write_view(self.version, self.payload).map_or(Validated::No, Validated::Write),
            Common::CallFinished => {
                finished_view(self.version, self.payload).map_or(Validated::No, Validated::Finished)
            }
            _ => Validated::No,
        };
    }

    /// The event as a `WriteFile`, in place.
    #[inline]
    pub(crate) fn written(&self) -> Result<&'a ArchivedWriteFileV1, CodecError> {
        if let Validated::Write(view) = self.validated { Ok(view) } else { write_view(self.version, self.payload) }
    }

    /// The event as a `CallFinished`, in place.
    #[inline]
    pub(crate) fn finished(&self) -> Result<FinishedView<'a>, CodecError> {
        if let Validated::Finished(view) = self.validated {
            Ok(view)
        } else {
            finished_view(self.version, self.payload)
        }
    }
}

impl EventRef<'_> {
    /// The event as `E`; none when it is of another kind.
    ///
    /// # Errors
    /// [`CodecError`] when it is of this kind and can't be read.
    pub fn typed<E: Event>(&self) -> Option<Result<Recorded<E>, CodecError>> {
        (self.kind == E::KIND).then(|| {
            E::decode(self.version, self.payload).map(|event| Recorded {
                session: self.session,
                seq: self.seq,
                time: self.time,
                call: self.call,
                agent: Arc::from(self.agent),
                event,
            })
        })
    }

    /// A copy that outlives the buffer.
    pub fn to_recorded(&self) -> Recorded {
        Recorded {
            session: self.session,
            seq: self.seq,
            time: self.time,
            call: self.call,
            agent: Arc::from(self.agent),
            event: Payload {
                kind: Arc::from(self.kind),
                version: self.version,
                bytes: Bytes::copy_from_slice(self.payload),
            },
        }
    }
}
