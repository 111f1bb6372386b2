use std::io::Read;

use super::HistoryError;
use super::reader::{ExportReader, Record};
use crate::engine::chain::HistoryChain;
use crate::engine::{Digest, Recorded, Seq, SessionId};

/// Chain of an exported history.
#[derive(Debug, Clone)]
pub struct ExportChain {
    /// Session of the file.
    pub session: SessionId,
    /// Value of the chain at the requested position; `None` if no commit ends there.
    pub value: Option<Digest>,
    /// Requested event; `None` if the file lacks it.
    pub event: Option<Recorded>,
}

/// Follows the [chain](HistoryChain) of an exported history from `start` up to the position `until`, and reads the event
/// at `seq`. Fails with [`HistoryError::Damaged`] if the file is damaged or invalid.
pub fn chain_of_export(
    input: &mut dyn Read,
    start: HistoryChain,
    until: Seq,
    seq: Seq,
) -> Result<ExportChain, HistoryError> {
    let mut reader = ExportReader::begin(input)?;
    let (mut chain, mut buffer, mut event) = (start, Vec::new(), None);
    loop {
        match reader.next()? {
            Record::Content(length) | Record::Blob(length) => reader.content(length).skip()?,
            Record::Commit(first) => {
                if chain.seq < until {
                    chain.add(&reader.view(first)?, &mut buffer);
                }
                event =
                    event.or_else(|| reader.events().find(|event| event.seq == seq).map(|found| found.to_recorded()));
            }
            Record::End(_) => break,
        }
    }
    let value = (chain.seq == until).then_some(chain.value);
    Ok(ExportChain { session: reader.session, value, event })
}
