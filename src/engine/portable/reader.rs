//! The records of a file, one at a time and checked.

use std::io::{self, BufReader, Read};

use super::{CONTENT, CONTENT_MAX, END, EVENT, EVENT_MAX, MAGIC, PortableError, VERSION, damaged};
use crate::engine::commit::{CallLink, Commit, CommitView};
use crate::engine::id::SessionId;
use crate::engine::recorded::EventRef;
use crate::engine::sessions::SessionError;

/// Log of the bytes that the decompressor may look back: what files are written with needs 21.
const WINDOW_LOG_MAX: u32 = 23;
const BUFFER: usize = 64 << 10;

/// Next record of a file.
pub(super) enum Record {
    /// A content of that many bytes, which is read by [`Reader::content`] before the next record.
    Content(u64),
    /// An event: [`Reader::event`].
    Event,
    /// The end, with the checksum of all before it.
    End([u8; 32]),
}

/// Reads a file. Sizes are checked before anything is unpacked, and memory grows with the bytes that come.
pub(super) struct Reader<'a> {
    input: BufReader<zstd::stream::read::Decoder<'static, BufReader<&'a mut dyn Read>>>,
    hasher: blake3::Hasher,
    event: Vec<u8>,
    pub(super) session: SessionId,
    /// Count of the events and contents read so far, and of their bytes.
    pub(super) events: u64,
    pub(super) contents: u64,
    pub(super) bytes: u64,
}

impl<'a> Reader<'a> {
    /// Reads the head.
    pub(super) fn begin(input: &'a mut dyn Read) -> Result<Self, PortableError> {
        let foreign = |_| damaged("it is not a foldspace export");
        let mut decoder = zstd::stream::read::Decoder::new(input).map_err(foreign)?;
        decoder.window_log_max(WINDOW_LOG_MAX).map_err(foreign)?;
        let mut reader = Self {
            input: BufReader::with_capacity(BUFFER, decoder),
            hasher: blake3::Hasher::new(),
            event: Vec::new(),
            session: SessionId::from_bytes([0; 16]),
            events: 0,
            contents: 0,
            bytes: 0,
        };
        if &reader.array()? != MAGIC {
            return Err(damaged("it is not a foldspace export"));
        }
        let version = u32::from_le_bytes(reader.array()?);
        if version != VERSION {
            return Err(damaged(format!("it is of format {version}; this program reads format {VERSION}")));
        }
        reader.session = SessionId::from_bytes(reader.array()?);
        Ok(reader)
    }

    pub(super) fn next(&mut self) -> Result<Record, PortableError> {
        let [kind] = self.array()?;
        if kind == END {
            return self.end();
        }
        let length = u32::from_le_bytes(self.array()?);
        match kind {
            CONTENT if length <= CONTENT_MAX => {
                self.contents += 1;
                Ok(Record::Content(u64::from(length)))
            }
            EVENT if length as usize <= EVENT_MAX => {
                self.events += 1;
                self.read_event(u64::from(length))?;
                Ok(Record::Event)
            }
            CONTENT | EVENT => Err(damaged(format!("a record says that it has {length} bytes, more than it may have"))),
            _ => Err(damaged("it holds a record of an unknown kind; is it of a newer program?")),
        }
    }

    /// The bytes of a content, all of which must be read.
    pub(super) fn content(&mut self, length: u64) -> ContentReader<'_, 'a> {
        ContentReader { reader: self, left: length }
    }

    fn read_event(&mut self, length: u64) -> Result<(), PortableError> {
        self.event.clear();
        let read = (&mut self.input).take(length).read_to_end(&mut self.event).map_err(ended)?;
        if read as u64 != length {
            return Err(damaged("it ends early"));
        }
        self.hasher.update(&self.event);
        self.bytes += length;
        let view = CommitView::parse(&self.event).map_err(|_| self.senseless())?;
        if view.session != self.session || view.first != self.events || view.count != 1 {
            return Err(damaged(format!("event {} is missing or belongs to another session", self.events)));
        }
        self.commit().map(drop)
    }

    /// The event that was read last.
    pub(super) fn event(&self) -> Result<EventRef<'_>, PortableError> {
        let event = CommitView::parse(&self.event).ok().and_then(|view| view.events().next()?.ok());
        event.ok_or_else(|| self.senseless())
    }

    /// The same as a commit within all limits.
    pub(super) fn commit(&self) -> Result<Commit, PortableError> {
        let event = self.event()?;
        let commit = Commit::new(event.session, event.time).by(&std::sync::Arc::from(event.agent));
        let mut commit = commit.of_call(event.call.map_or(CallLink::None, CallLink::Of));
        commit.push_event(&event).and_then(|()| commit.validate()).map_err(SessionError::from)?;
        Ok(commit)
    }

    fn senseless(&self) -> PortableError {
        damaged(format!("event {} makes no sense", self.events))
    }

    fn end(&mut self) -> Result<Record, PortableError> {
        let events = u64::from_le_bytes(self.array()?);
        let contents = u64::from_le_bytes(self.array()?);
        if events != self.events || contents != self.contents {
            return Err(damaged("it does not hold what it says it holds"));
        }
        let (checksum, bytes) = (*self.hasher.finalize().as_bytes(), self.bytes);
        let found: [u8; 32] = self.array()?;
        if found != checksum {
            return Err(damaged("its checksum does not fit its contents"));
        }
        self.bytes = bytes;
        Ok(Record::End(checksum))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PortableError> {
        let mut array = [0; N];
        self.input.read_exact(&mut array).map_err(ended)?;
        self.hasher.update(&array);
        self.bytes += N as u64;
        Ok(array)
    }
}

/// The bytes of one content.
pub(super) struct ContentReader<'r, 'a> {
    reader: &'r mut Reader<'a>,
    left: u64,
}

impl ContentReader<'_, '_> {
    /// Reads all of it, and keeps nothing.
    pub(super) fn skip(mut self) -> Result<(), PortableError> {
        let mut buffer = vec![0; BUFFER];
        while self.read(&mut buffer).map_err(ended)? > 0 {}
        Ok(())
    }

    /// Reads all of it.
    pub(super) fn whole(mut self) -> Result<Vec<u8>, PortableError> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).map_err(ended)?;
        Ok(bytes)
    }
}

impl Read for ContentReader<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..most];
        let read = self.reader.input.read(buffer)?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.reader.hasher.update(&buffer[..read]);
        self.reader.bytes += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Explains why the file can't be read further.
pub(super) fn ended(error: io::Error) -> PortableError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends early"),
        _ => damaged(format!("it can't be read: {error}")),
    }
}
