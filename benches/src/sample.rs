//! Sample data and figures.

use std::time::Duration;

/// Random numbers that are the same in every run.
#[derive(Debug, Clone)]
pub struct Noise(u64);

impl Noise {
    /// Begins at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (splitmix64).
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end.max(1)
    }

    /// Lines of words, about `bytes` long: compressible as source text is.
    pub fn text(&mut self, bytes: usize) -> String {
        const WORDS: [&str; 24] = [
            "let", "state", "=", "session", ".", "fold", "(", "event", ")", "?", ";", "match", "self", "{", "}",
            "Some", "=>", "return", "path", "&", "bytes", "if", "digest", "//",
        ];
        let mut text = String::with_capacity(bytes + 32);
        while text.len() < bytes {
            for _ in 0..8 {
                text.push_str(WORDS[self.below(24) as usize]);
                text.push(' ');
            }
            text.push_str(&format!("v{:04x}\n", self.word() & 0xffff));
        }
        text.truncate(bytes);
        text
    }
}

/// The value below which that part of the values lies.
pub fn quantile<T: Ord + Copy>(values: &mut [T], part: f64) -> Option<T> {
    values.sort_unstable();
    let at = ((values.len() as f64 * part) as usize).min(values.len().checked_sub(1)?);
    Some(values[at])
}

/// The middle of some numbers.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Microseconds of a duration.
pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
