//! The output of a command: bounded in memory while it runs, and shown as text.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::engine::counted::counted;

/// The maximum number of bytes retained from the end of a long output.
const TAIL: usize = 1 << 20;
const SNIFFED: usize = 8 << 10;
const BINARY_SHOWN: usize = 64;

/// The bytes that a command wrote to one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// All of it, or the beginning and the end.
    pub kept: Bytes,
    /// The position in `kept` where bytes are left out; its end if it is complete.
    pub cut_at: usize,
    /// The number of bytes written.
    pub bytes: u64,
}

impl Output {
    /// An output that is retained in full.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let kept = bytes.into();
        Self { cut_at: kept.len(), bytes: kept.len() as u64, kept }
    }

    /// Returns true if more was written than is retained.
    pub fn is_cut(&self) -> bool {
        self.bytes > self.kept.len() as u64
    }

    /// Returns true if the output is not text.
    pub fn is_binary(&self) -> bool {
        let sample = &self.kept[..self.kept.len().min(SNIFFED)];
        let text = String::from_utf8_lossy(sample);
        let replaced = text.chars().filter(|c| *c == char::REPLACEMENT_CHARACTER).count();
        sample.contains(&0) || replaced * 10 > text.chars().count() * 3
    }

    /// Returns the output as text of about `max` bytes at most, and true if something is left out. Invalid bytes are
    /// replaced. The middle of long text is left out, with a note; of binary output only the beginning is shown.
    pub fn text(&self, max: usize) -> (String, bool) {
        if self.is_binary() {
            let shown = self.kept[..self.kept.len().min(BINARY_SHOWN)].escape_ascii();
            let bytes = counted(self.bytes, "byte");
            return (format!("[binary output of {bytes}, which begins with: {shown}]"), true);
        }
        if !self.is_cut() && self.kept.len() <= max {
            let text = String::from_utf8_lossy(&self.kept).into_owned();
            // Replacements may make it longer.
            if text.len() <= max {
                return (text, false);
            }
        }
        let note_room = 64.min(max);
        let half = (max - note_room) / 2;
        let (head, tail) = (&self.kept[..self.cut_at], &self.kept[self.cut_at..]);
        let tail = if self.is_cut() { tail } else { head };
        let (head, from_head) = fitting(lossy(&head[..head.len().min(half)]), half);
        let mut last = &tail[tail.len().saturating_sub(half)..];
        if last.len() < tail.len() {
            // It may begin within a character.
            let within = last.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
            last = &last[within..];
        }
        let last: Vec<(char, usize)> = lossy(last).collect();
        let (tail, from_tail) = fitting(last.into_iter().rev(), half);
        let left_out = self.bytes.saturating_sub((from_head + from_tail) as u64);
        let (head, tail) = (String::from_iter(head), String::from_iter(tail.iter().rev()));
        let left_out = counted(left_out, "byte");
        (format!("{head}\n[... {left_out} left out ...]\n{tail}"), true)
    }
}

/// Takes as many characters as fit in `max` bytes. Also returns the number of source bytes that they stand for.
fn fitting(characters: impl Iterator<Item = (char, usize)>, max: usize) -> (Vec<char>, usize) {
    let (mut text, mut length, mut taken) = (Vec::new(), 0, 0);
    for (character, bytes) in characters {
        length += character.len_utf8();
        if length > max {
            break;
        }
        text.push(character);
        taken += bytes;
    }
    (text, taken)
}

/// Returns the characters, each with the number of bytes that it stands for; invalid bytes are replaced.
fn lossy(bytes: &[u8]) -> impl Iterator<Item = (char, usize)> + '_ {
    bytes.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().len();
        let replaced = (invalid > 0).then_some((char::REPLACEMENT_CHARACTER, invalid));
        chunk.valid().chars().map(|character| (character, character.len_utf8())).chain(replaced)
    })
}

/// Retains the beginning and the end of a stream of any length.
#[derive(Debug)]
pub(crate) struct Collector {
    head: Vec<u8>,
    head_max: usize,
    tail: VecDeque<u8>,
    tail_max: usize,
    bytes: u64,
}

impl Collector {
    pub(crate) fn new(keep: usize) -> Self {
        let tail_max = TAIL.min(keep / 2);
        Self { head: Vec::new(), head_max: keep - tail_max, tail: VecDeque::new(), tail_max, bytes: 0 }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_max)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..over.min(self.tail.len()));
        self.tail.extend(rest);
    }

    pub(crate) fn finish(self) -> Output {
        let mut kept = self.head;
        let cut_at = kept.len();
        kept.extend(self.tail);
        let cut_at = if kept.len() as u64 == self.bytes { kept.len() } else { cut_at };
        Output { cut_at, kept: Bytes::from(kept), bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(keep: usize, pieces: &[&[u8]]) -> Output {
        let mut collector = Collector::new(keep);
        pieces.iter().for_each(|piece| collector.add(piece));
        collector.finish()
    }

    #[test]
    fn output_short_is_kept_whole() {
        let output = collected(100, &[b"one\n", b"two\n"]);
        assert_eq!(output, Output::whole("one\ntwo\n"));
        assert_eq!(output.text(100), ("one\ntwo\n".to_owned(), false));
        assert_eq!(collected(8, &[b"12345678"]), Output::whole("12345678"));
    }

    #[test]
    fn output_long_keeps_both_ends() {
        let output = collected(8, &[b"abc", b"defghij", b"klm", b"nopqrstuvwxyz"]);
        assert_eq!((&output.kept[..], output.cut_at, output.bytes), (&b"abcdwxyz"[..], 4, 26));
        assert!(output.is_cut());
        let (text, cut) = output.text(200);
        assert_eq!((text.as_str(), cut), ("abcd\n[... 18 bytes left out ...]\nwxyz", true));
    }

    #[test]
    fn output_text_is_cut_between_characters() {
        let output = Output::whole("\u{e4}".repeat(1000));
        for max in [70, 71, 101, 1999] {
            let (text, cut) = output.text(max);
            assert!(cut && text.len() <= max && text.starts_with('\u{e4}') && text.ends_with('\u{e4}'), "{text}");
        }
        assert!(!output.text(2000).1);
        let invalid = Output::whole([&b"a".repeat(90)[..], b"\xff\xff"].concat());
        assert!(invalid.text(92).0.len() <= 92);
        assert_eq!(invalid.text(100).0, format!("{}\u{fffd}\u{fffd}", "a".repeat(90)));
    }

    #[test]
    fn output_counts_omitted_bytes() {
        // Latin-1: each letter beyond ASCII is shown as three bytes.
        let output = Output::whole(b"gr\xfcn ".repeat(6000));
        let (text, cut) = output.text(32 << 10);
        assert!(cut && text.len() <= 32 << 10);
        let (head, rest) = text.split_once("\n[... ").unwrap();
        let (count, tail) = rest.split_once(" bytes left out ...]\n").unwrap();
        let shown = head.chars().chain(tail.chars()).count() as u64;
        assert_eq!(count.parse::<u64>().unwrap(), 30_000 - shown);
        let cut = collected(1000, &[&"\u{e4}".repeat(3000).into_bytes()]).text(501).0;
        assert!(!cut.contains('\u{fffd}'), "{cut}");
    }

    #[test]
    fn output_binary_is_marked() {
        let (text, cut) = Output::whole(&b"\x7fELF\0\0\0"[..]).text(100);
        assert_eq!(
            (text.as_str(), cut),
            ("[binary output of 7 bytes, which begins with: \\x7fELF\\x00\\x00\\x00]", true)
        );
        assert!(Output::whole(vec![0xff; 100]).is_binary());
        assert!(!Output::whole("").is_binary());
    }
}
