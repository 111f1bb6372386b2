//! Reads sparse files without their holes.

use std::fs::File;
use std::io::{self, Read};

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;

const BLOCK: u64 = 512;

/// Data of a sparse file: the start and end of each piece, followed by its bytes.
pub(super) struct SparseData {
    file: File,
    at: u64,
    end: u64,
    /// Unread bytes of a piece's start and end.
    places: Vec<u8>,
}

impl SparseData {
    /// Returns the data of a file that is mostly holes. `None` for other files.
    pub(super) fn of(file: File) -> io::Result<Option<Self>> {
        let stat = fstat(&file)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let has_few = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK) < size / 2;
        // Compression also leaves few blocks, but no holes.
        if !has_few || seek(&file, SeekFrom::Hole(0))? >= size {
            return Ok(None);
        }
        Ok(Some(Self { file, at: 0, end: 0, places: Vec::new() }))
    }

    /// Moves to the next piece of data. Returns false at the end.
    fn next(&mut self) -> io::Result<bool> {
        self.at = match seek(&self.file, SeekFrom::Data(self.end)) {
            Ok(at) => at,
            Err(Errno::NXIO) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.end = seek(&self.file, SeekFrom::Hole(self.at))?;
        seek(&self.file, SeekFrom::Start(self.at))?;
        self.places = [self.at.to_le_bytes(), self.end.to_le_bytes()].concat();
        Ok(true)
    }
}

impl Read for SparseData {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.places.is_empty() && self.at >= self.end && !self.next()? {
            return Ok(0);
        }
        if !self.places.is_empty() {
            let count = self.places.as_slice().read(buffer)?;
            self.places.drain(..count);
            return Ok(count);
        }
        let left = self.end - self.at;
        let count = (&self.file).take(left).read(buffer)?;
        // The file was truncated in the meantime.
        self.at = if count == 0 { self.end } else { self.at + count as u64 };
        if count == 0 && !buffer.is_empty() { self.read(buffer) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn sparse_data_has_pieces_and_no_holes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"middle", 1 << 30).unwrap();
        let read = |file: &File| {
            let mut bytes = Vec::new();
            SparseData::of(file.try_clone().unwrap()).unwrap().unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        };
        let bytes = read(&file);
        assert!(bytes.len() < 1 << 20 && bytes[16..].starts_with(b"begin"), "{} bytes", bytes.len());
        file.write_all_at(b"Middle", 1 << 30).unwrap();
        assert_ne!(read(&file), bytes);
        let whole = tempfile::tempfile().unwrap();
        whole.write_all_at(&[1; 9000], 0).unwrap();
        assert!(SparseData::of(whole).unwrap().is_none());
    }
}
