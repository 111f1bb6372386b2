//! Random choices of a simulation.

pub(crate) use crate::testing::Random;

impl Random {
    pub(crate) fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap_or(0)
    }

    /// Returns true once in so many times, on average.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.index(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.index(among.len())]
    }

    /// Returns bytes that sometimes compress.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mask = if self.once_in(2) { 0xff } else { 3 };
        let bytes = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        bytes.map(|byte| byte & mask).take(length).collect()
    }
}
