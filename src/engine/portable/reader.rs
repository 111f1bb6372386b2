use std::io::{self, BufReader, Read};

use super::{BLOB, BUFFER, COMMIT, COMMIT_MAX, CONTENT, CONTENT_MAX, END, HistoryError, MAGIC, VERSION, damaged};
use crate::engine::{Commit, CommitView, EventRef, Seq, SessionError, SessionId};

/// Logarithm of the decompressor's window: files are written with at most 21.
const WINDOW_LOG_MAX: u32 = 23;

pub(super) enum Record {
    /// Content of that many bytes; [`ExportReader::content`] must read it before the next record.
    Content(u64),
    /// Content named by its id as a git blob.
    Blob(u64),
    Commit(Seq),
    End([u8; 32]),
}

/// Reader of a file. It checks sizes before it decompresses, and its memory grows with the bytes read.
pub(super) struct ExportReader<'a> {
    input: Unpacked<'a>,
    commit: Vec<u8>,
    pub(super) session: SessionId,
    pub(super) events: u64,
    pub(super) contents: u64,
}

impl<'a> ExportReader<'a> {
    pub(super) fn begin(input: &'a mut dyn Read) -> Result<Self, HistoryError> {
        let foreign = |_| damaged("it is not a foldspace export");
        let input = Unpacked::new(input).map_err(foreign)?;
        let session = SessionId::from_bytes([0; 16]);
        let mut reader = Self { input, commit: Vec::new(), session, events: 0, contents: 0 };
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

    pub(super) fn next(&mut self) -> Result<Record, HistoryError> {
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
            BLOB if length <= CONTENT_MAX => {
                self.contents += 1;
                Ok(Record::Blob(u64::from(length)))
            }
            COMMIT if length as usize <= COMMIT_MAX => self.read_commit(length as usize),
            CONTENT | BLOB | COMMIT => Err(damaged(format!("a record claims {length} bytes, which is over its limit"))),
            _ => Err(damaged("it has a record of an unknown kind; a newer program may have written it")),
        }
    }

    /// Returns a reader of a content, which must be read to its end.
    pub(super) fn content(&mut self, length: u64) -> ContentReader<'_, 'a> {
        ContentReader { reader: self, left: length }
    }

    fn read_commit(&mut self, length: usize) -> Result<Record, HistoryError> {
        self.commit.clear();
        self.input.append_to(&mut self.commit, length).map_err(ended)?;
        let next = self.events + 1;
        let view = self.view(next)?;
        if view.session != self.session || view.first != next {
            return Err(damaged(format!("event {next} is missing or belongs to another session")));
        }
        self.events = view.last();
        Ok(Record::Commit(next))
    }

    /// Returns the current commit, which begins at `first`.
    pub(super) fn view(&self, first: Seq) -> Result<CommitView<'_>, HistoryError> {
        CommitView::parse(&self.commit).map_err(|_| senseless(first))
    }

    pub(super) fn events(&self) -> impl Iterator<Item = EventRef<'_>> {
        let view = CommitView::parse(&self.commit).ok();
        view.into_iter().flat_map(|view| view.events().map_while(Result::ok))
    }

    /// Returns the current commit from position `from` on, checked to be complete and within all limits.
    pub(super) fn commit(&self, from: Seq) -> Result<Commit, HistoryError> {
        let view = self.view(self.events)?;
        let commit = Commit::of_view(&view, from).map_err(SessionError::from)?;
        let left_out = from.saturating_sub(view.first);
        let is_whole = u64::from(commit.len()) + left_out == u64::from(view.count);
        match is_whole && (left_out > 0 || commit.encoded_len() == self.commit.len()) {
            true => Ok(commit),
            false => Err(senseless(self.events)),
        }
    }

    fn end(&mut self) -> Result<Record, HistoryError> {
        let events = u64::from_le_bytes(self.array()?);
        let contents = u64::from_le_bytes(self.array()?);
        if events != self.events || contents != self.contents {
            return Err(damaged("its counts of events and contents are wrong"));
        }
        let checksum = self.input.checksum();
        let mut found = [0; 32];
        self.input.read_exact(&mut found).map_err(ended)?;
        if found != checksum {
            return Err(damaged("its checksum does not match its contents"));
        }
        Ok(Record::End(checksum))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.input.before + self.input.taken as u64
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], HistoryError> {
        let mut array = [0; N];
        self.input.read_exact(&mut array).map_err(ended)?;
        Ok(array)
    }
}

fn senseless(seq: Seq) -> HistoryError {
    damaged(format!("event {seq} or another event of its commit is malformed"))
}

/// Decompressed bytes of a file, hashed in large blocks, since the hash is slow on a few bytes.
struct Unpacked<'a> {
    decoder: zstd::stream::read::Decoder<'static, BufReader<&'a mut dyn Read>>,
    buffer: Vec<u8>,
    filled: usize,
    taken: usize,
    before: u64,
    hasher: blake3::Hasher,
}

impl<'a> Unpacked<'a> {
    fn new(input: &'a mut dyn Read) -> io::Result<Self> {
        let mut decoder = zstd::stream::read::Decoder::new(input)?;
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        let hasher = blake3::Hasher::new();
        Ok(Self { decoder, buffer: vec![0; BUFFER], filled: 0, taken: 0, before: 0, hasher })
    }

    /// Appends `length` bytes. Memory grows with the bytes that arrive, not with the announced length.
    fn append_to(&mut self, bytes: &mut Vec<u8>, length: usize) -> io::Result<()> {
        let end = bytes.len() + length;
        while bytes.len() < end {
            let from = bytes.len();
            bytes.resize(end.min(from + BUFFER), 0);
            self.read_exact(&mut bytes[from..])?;
        }
        Ok(())
    }

    fn checksum(&self) -> [u8; 32] {
        *self.hasher.clone().update(&self.buffer[..self.taken]).finalize().as_bytes()
    }
}

impl Read for Unpacked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.filled && !buffer.is_empty() {
            self.hasher.update(&self.buffer[..self.taken]);
            self.before += self.taken as u64;
            (self.taken, self.filled) = (0, 0);
            self.filled = self.decoder.read(&mut self.buffer)?;
        }
        let count = buffer.len().min(self.filled - self.taken);
        buffer[..count].copy_from_slice(&self.buffer[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

pub(super) struct ContentReader<'r, 'a> {
    reader: &'r mut ExportReader<'a>,
    left: u64,
}

impl ContentReader<'_, '_> {
    pub(super) fn skip(mut self) -> Result<(), HistoryError> {
        io::copy(&mut self, &mut io::sink()).map(drop).map_err(ended)
    }

    pub(super) fn whole(self) -> Result<Vec<u8>, HistoryError> {
        let mut bytes = Vec::new();
        let length = usize::try_from(self.left).unwrap_or(usize::MAX);
        self.reader.input.append_to(&mut bytes, length).map_err(ended)?;
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
        self.left -= read as u64;
        Ok(read)
    }
}

pub(super) fn ended(error: io::Error) -> HistoryError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends early"),
        _ => damaged(format!("it can't be read: {error}")),
    }
}
