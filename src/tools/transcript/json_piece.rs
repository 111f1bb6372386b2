//! Pieces of JSON, a document or a line: read within limits of their text, and of the memory that their values take.

use std::io::{self, BufRead, Read};

use serde_json::Value;

/// Bytes of text of a piece.
pub(super) const TEXT_MAX: u64 = 128 << 20;
/// Bytes of memory that the values of a piece may take: so many for each byte of its text, and some more, but no more
/// than the last. An attacker's `[],` takes a hundred for each.
const PER_BYTE: u64 = 12;
const SPARE: u64 = 32 << 20;
const VALUES_MAX: u64 = 512 << 20;
/// The same of JSON that stands in a text, of which a piece may have many.
const PACKED_SPARE: u64 = 256 << 10;
const BLOCK: usize = 64 << 10;

const VALUE: u64 = size_of::<Value>() as u64;
const STRING: u64 = 32;

/// The memory that the values of JSON text take, counted from its signs.
#[derive(Default)]
struct ValueWeight {
    bytes: u64,
    is_in_text: bool,
    is_escaped: bool,
}

impl ValueWeight {
    /// Counts a byte. Returns true if it is outside of texts.
    fn add(&mut self, byte: u8) -> bool {
        if self.is_in_text {
            self.is_in_text = self.is_escaped || byte != b'"';
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            return false;
        }
        self.bytes += match byte {
            // Their first allocations have room for several values.
            b'{' => 6 * VALUE,
            b'[' => 4 * VALUE,
            b',' => VALUE + VALUE / 2,
            b'"' => STRING,
            _ => 0,
        };
        self.is_in_text = byte == b'"';
        true
    }

    fn fits(&self, text: u64, spare: u64) -> bool {
        self.bytes <= (spare + PER_BYTE * text).min(VALUES_MAX)
    }
}

/// Parses JSON that stands in a text; none if its values would take much more memory than the text does.
pub(super) fn packed(text: &str) -> Option<Value> {
    let mut weight = ValueWeight::default();
    for byte in text.bytes() {
        weight.add(byte);
    }
    let fits = weight.fits(text.len() as u64, PACKED_SPARE);
    if fits { serde_json::from_str(text).ok() } else { None }
}

/// A piece that was read.
pub(super) enum Piece {
    Value(Value),
    /// It is no JSON.
    Damaged(serde_json::Error),
    /// It is beyond a limit.
    Refused(String),
}

/// Reads a document up to the end of the input. Numbers that Python writes and JSON lacks become null.
pub(super) fn read_document(input: impl BufRead) -> io::Result<Piece> {
    PieceReader::new(input, false).read()
}

/// Reads the next line. Returns none at the end, and for a last line that is not complete.
pub(super) fn read_line(mut input: impl BufRead) -> io::Result<Option<Piece>> {
    loop {
        let mut reader = PieceReader::new(&mut input, true);
        let piece = reader.read()?;
        let (is_blank, is_whole) = (reader.is_blank, reader.is_whole);
        match piece {
            _ if is_blank && is_whole => {}
            _ if is_blank => return Ok(None),
            Piece::Damaged(_) if !is_whole => return Ok(None),
            piece => return Ok(Some(piece)),
        }
    }
}

/// Input for a parser, whose bytes are counted while they pass.
struct PieceReader<R> {
    input: R,
    /// True if a line break ends the piece.
    is_line: bool,
    is_whole: bool,
    is_blank: bool,
    has_ended: bool,
    text: u64,
    weight: ValueWeight,
    /// The rest of an odd number that is being replaced.
    odd: &'static [u8],
    has_minus: bool,
    passed: Vec<u8>,
    taken: usize,
    refused: Option<String>,
}

impl<R: BufRead> PieceReader<R> {
    fn new(input: R, is_line: bool) -> Self {
        Self {
            input,
            is_line,
            is_whole: false,
            is_blank: true,
            has_ended: false,
            text: 0,
            weight: ValueWeight::default(),
            odd: b"",
            has_minus: false,
            passed: Vec::new(),
            taken: 0,
            refused: None,
        }
    }

    fn read(&mut self) -> io::Result<Piece> {
        let parsed = serde_json::from_reader(&mut *self);
        if let Some(reason) = self.refused.take() {
            return Ok(Piece::Refused(reason));
        }
        match parsed {
            Ok(value) => Ok(Piece::Value(value)),
            Err(error) if error.is_io() => Err(error.into()),
            Err(error) => {
                while !self.has_ended {
                    self.block(|_, _| {})?;
                }
                Ok(Piece::Damaged(error))
            }
        }
    }

    /// Takes a block of the piece.
    fn block(&mut self, mut take: impl FnMut(&mut Self, &[u8])) -> io::Result<()> {
        let block = self.input.fill_buf()?;
        let block = &block[..block.len().min(BLOCK)];
        let line = block.iter().position(|byte| self.is_line && *byte == b'\n');
        let bytes = block[..line.unwrap_or(block.len())].to_vec();
        self.input.consume(bytes.len() + usize::from(line.is_some()));
        self.is_whole = line.is_some();
        self.has_ended = line.is_some() || bytes.is_empty();
        self.is_blank &= bytes.iter().all(u8::is_ascii_whitespace);
        self.text += bytes.len() as u64;
        take(self, &bytes);
        Ok(())
    }

    fn pass(&mut self, byte: u8) {
        if !self.weight.add(byte) {
            return self.passed.push(byte);
        }
        if let [expected, rest @ ..] = self.odd
            && byte == *expected
        {
            self.odd = rest;
            return;
        }
        self.odd = b"";
        let odd: &[u8] = match byte {
            b'N' => b"aN",
            b'I' => b"nfinity",
            _ => b"",
        };
        let has_minus = std::mem::replace(&mut self.has_minus, byte == b'-');
        if has_minus && byte != b'I' {
            self.passed.push(b'-');
        }
        match byte {
            b'-' => {}
            _ if odd.is_empty() => self.passed.push(byte),
            _ => {
                self.passed.extend(b"null");
                self.odd = odd;
            }
        }
    }

    fn check(&mut self) -> io::Result<()> {
        let (what, of) = if self.is_line { ("a line", "line") } else { ("it", "document") };
        let reason = if self.text > TEXT_MAX {
            format!("{what} has more than {} MiB of text; split the {of}", TEXT_MAX >> 20)
        } else if !self.weight.fits(self.text, SPARE) {
            let taken = self.weight.bytes >> 20;
            format!(
                "the values in {what} would take more than {taken} MiB of memory, too much for {} KiB of text; split the {of}, or look at what wrote it",
                self.text >> 10
            )
        } else {
            return Ok(());
        };
        self.refused = Some(reason);
        Err(io::Error::other("beyond a limit"))
    }
}

impl<R: BufRead> Read for PieceReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.passed.len() && !self.has_ended {
            self.passed.clear();
            self.taken = 0;
            self.block(|this, bytes| bytes.iter().for_each(|byte| this.pass(*byte)))?;
            if self.has_ended && self.has_minus {
                self.passed.push(b'-');
            }
            self.check()?;
        }
        let count = buffer.len().min(self.passed.len() - self.taken);
        buffer[..count].copy_from_slice(&self.passed[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use serde_json::json;

    use super::*;

    fn of(text: &str) -> Piece {
        read_document(BufReader::with_capacity(7, text.as_bytes())).unwrap()
    }

    #[test]
    fn document_with_pythons_numbers_has_nulls() {
        let Piece::Value(read) = of(r#"{"a": [NaN, -Infinity, Infinity, -1, 1e-3], "-Infinity NaN\\\"": "NaN"}"#)
        else {
            panic!("no value")
        };
        assert_eq!(read, json!({ "a": [null, null, null, -1, 1e-3], "-Infinity NaN\\\"": "NaN" }));
        for text in ["Nope", "-", "[Infinite]", "[-NaNa]", "[--Infinity]", "NaNNa"] {
            assert!(matches!(of(text), Piece::Damaged(_)), "{text}");
        }
    }

    #[test]
    fn lines_blank_damaged_and_cut_are_told_apart() {
        let mut input = &b"{\"a\":1}\n\n \nno \" {json\n{\"b\":2}\n{\"c\":"[..];
        assert!(matches!(read_line(&mut input).unwrap(), Some(Piece::Value(value)) if value["a"] == 1));
        assert!(matches!(read_line(&mut input).unwrap(), Some(Piece::Damaged(_))));
        assert!(matches!(read_line(&mut input).unwrap(), Some(Piece::Value(value)) if value["b"] == 2));
        assert!(read_line(&mut input).unwrap().is_none());
    }

    #[test]
    fn values_beyond_the_memory_limit_are_refused_early() {
        for (bomb, what) in [("[],", "arrays"), ("{},", "objects"), ("0,", "numbers"), ("\"\",", "texts")] {
            let text = format!("[{}0]", bomb.repeat(20 << 20));
            let mut input = BufReader::new(text.as_bytes());
            let Piece::Refused(reason) = read_document(&mut input).unwrap() else { panic!("{what}") };
            assert!(reason.contains("MiB of memory"), "{reason}");
            let mut left = Vec::new();
            input.read_to_end(&mut left).unwrap();
            assert!(text.len() - left.len() < 2 << 20, "{what}: {} bytes were read", text.len() - left.len());
        }
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        assert!(matches!(of(&deep), Piece::Damaged(_)));
    }

    #[test]
    fn text_beyond_the_limit_is_refused() {
        let endless = BufReader::new(b"[\"".chain(io::repeat(b'a')));
        let mut reader = PieceReader::new(endless, false);
        reader.text = TEXT_MAX - 10;
        let Piece::Refused(reason) = reader.read().unwrap() else { panic!("it was read") };
        assert_eq!(reason, "it has more than 128 MiB of text; split the document");
    }

    #[test]
    fn packed_bomb_stays_a_text() {
        assert_eq!(packed(r#"{"a": [1]}"#), Some(json!({ "a": [1] })));
        assert_eq!(packed(&format!("[{}0]", "[],".repeat(100_000))), None);
    }
}
