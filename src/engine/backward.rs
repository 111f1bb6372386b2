//! Reading a history from its end.

use super::id::Seq;

/// Splits the positions from `first` to `until` into spans, the last one first: `span` positions, then `growth` times
/// as many each time.
pub fn backward_spans((first, until): (Seq, Seq), mut span: u64, growth: u64) -> impl Iterator<Item = (Seq, Seq)> {
    let mut next = Some(until);
    std::iter::from_fn(move || {
        let until = next?;
        let from = (until.saturating_sub(span) + 1).max(first);
        next = (from > first).then(|| from - 1);
        span = span.saturating_mul(growth);
        Some((from, until))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_each_position_once() {
        let spans = |first, until| backward_spans((first, until), 2, 3).collect::<Vec<_>>();
        assert_eq!(spans(1, 12), [(11, 12), (5, 10), (1, 4)]);
        assert_eq!(spans(4, 5), [(4, 5)]);
        assert_eq!(spans(1, 0), [(1, 0)], "an empty history");
    }
}
