//! Bisection: the search for the first bad item of a sequence.

use std::collections::BTreeSet;

/// The verdict of a probe on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BisectVerdict {
    /// The item is like the first item.
    Good,
    /// The item is like the last item.
    Bad,
    /// The probe can't decide.
    Skip,
}

/// The result of a bisection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BisectOutcome {
    /// The first bad item.
    First(usize),
    /// The candidates for the first bad item. All but the last were skipped.
    Among(Vec<usize>),
}

/// A search for the first bad item among `1..=last`. Item 0 is known to be good, and `last` to be bad. The search
/// assumes that all items after a bad one are bad.
///
/// With one probe at a time, a search takes `log2(last)` probes, rounded up. With `n` at once, it takes about
/// `log(last)` rounds, to the base `n + 1`. Skips take more probes; the search jumps away from runs of skipped items.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::{tools::{BisectOutcome, BisectSearch, BisectVerdict}};
/// let mut search = BisectSearch::new(1000);
/// let mut probes = 0;
/// while let Some(&probe) = search.next(1).first() {
///     search.record(probe, if probe >= 700 { BisectVerdict::Bad } else { BisectVerdict::Good });
///     probes += 1;
/// }
/// assert_eq!((search.found(), probes), (Some(BisectOutcome::First(700)), 10));
/// ```
#[derive(Debug, Clone)]
pub struct BisectSearch {
    good: usize,
    bad: usize,
    skipped: BTreeSet<usize>,
    is_odd: bool,
}

impl BisectSearch {
    /// Creates a search among `last` items.
    pub fn new(last: usize) -> Self {
        Self { good: 0, bad: last, skipped: BTreeSet::new(), is_odd: false }
    }

    /// Returns the last item that is known to be good.
    pub fn good(&self) -> usize {
        self.good
    }

    /// Returns the first item known to be bad.
    pub fn bad(&self) -> usize {
        self.bad
    }

    /// Returns true if a good item was seen after a bad one. The search then finds one of several changes.
    pub fn is_odd(&self) -> bool {
        self.is_odd
    }

    /// Returns the next items to probe, in order and at most `jobs`. Empty if the search has ended.
    pub fn next(&self, jobs: usize) -> Vec<usize> {
        let left: Vec<usize> = (self.good + 1..self.bad).filter(|at| !self.skipped.contains(at)).collect();
        let jobs = jobs.clamp(1, left.len().max(1));
        let skipped = self.skipped.range(self.good + 1..self.bad.max(self.good + 1)).count();
        let at = |job: usize| match skipped {
            0 => left.len() * (job + 1) / (jobs + 1),
            // Jump away from the middle, where items can't be probed.
            _ => ((job as f64 + spread(skipped + 1)) / jobs as f64 * left.len() as f64) as usize,
        };
        let wanted: BTreeSet<usize> = (0..jobs).filter_map(|job| left.get(at(job)).copied()).collect();
        wanted.into_iter().collect()
    }

    /// Records a verdict. A verdict outside of the open range only affects `is_odd`.
    pub fn record(&mut self, at: usize, verdict: BisectVerdict) {
        let is_within = at > self.good && at < self.bad;
        match verdict {
            BisectVerdict::Good if is_within => self.good = at,
            BisectVerdict::Bad if is_within => self.bad = at,
            BisectVerdict::Good => self.is_odd |= at >= self.bad,
            BisectVerdict::Bad => self.is_odd |= at <= self.good,
            BisectVerdict::Skip => drop(self.skipped.insert(at)),
        }
    }

    /// Returns the result. `None` before the end of the search, and for an empty sequence.
    pub fn found(&self) -> Option<BisectOutcome> {
        if self.bad == 0 || !self.next(1).is_empty() {
            return None;
        }
        Some(match self.bad - self.good {
            1 => BisectOutcome::First(self.bad),
            _ => BisectOutcome::Among((self.good + 1..=self.bad).collect()),
        })
    }
}

/// Returns fractions in the order 1/2, 1/4, 3/4, 1/8, ..., each far from the previous ones.
fn spread(mut number: usize) -> f64 {
    let (mut fraction, mut step) = (0.0, 0.5);
    while number > 0 {
        fraction += step * (number % 2) as f64;
        step /= 2.0;
        number /= 2;
    }
    fraction
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn search(last: usize, jobs: usize, verdict: impl Fn(usize) -> BisectVerdict) -> (Option<BisectOutcome>, usize) {
        let (mut search, mut rounds) = (BisectSearch::new(last), 0);
        loop {
            let probes = search.next(jobs);
            if probes.is_empty() {
                return (search.found(), rounds);
            }
            assert!(probes.len() <= jobs && probes.is_sorted());
            assert!(probes.iter().all(|probe| (search.good() + 1..search.bad()).contains(probe)));
            probes.into_iter().for_each(|probe| search.record(probe, verdict(probe)));
            rounds += 1;
        }
    }

    fn at(first: usize) -> impl Fn(usize) -> BisectVerdict {
        move |probe| if probe >= first { BisectVerdict::Bad } else { BisectVerdict::Good }
    }

    #[test]
    fn bisect_of_a_thousand_takes_ten_probes() {
        for first in 1..=1000 {
            let (found, rounds) = search(1000, 1, at(first));
            assert_eq!(found, Some(BisectOutcome::First(first)));
            assert!(rounds <= 10, "{rounds}");
        }
        for (jobs, most) in [(2, 7), (3, 5), (9, 3), (2000, 1)] {
            let rounds = (1..=1000).map(|first| search(1000, jobs, at(first)).1).max();
            assert!(rounds <= Some(most), "{jobs} jobs: {rounds:?}");
        }
    }

    #[test]
    fn bisect_of_few_positions_ends() {
        assert_eq!(search(0, 1, at(1)), (None, 0));
        assert_eq!(search(1, 1, at(1)), (Some(BisectOutcome::First(1)), 0));
        assert_eq!(search(2, 5, at(2)), (Some(BisectOutcome::First(2)), 1));
        assert_eq!(search(4, 1, |_| BisectVerdict::Skip).0, Some(BisectOutcome::Among(vec![1, 2, 3, 4])));
    }

    #[test]
    fn bisect_jumps_away_from_skips() {
        let broken = |probe| if (300..700).contains(&probe) { BisectVerdict::Skip } else { at(900)(probe) };
        let (found, rounds) = search(1000, 1, broken);
        assert_eq!(found, Some(BisectOutcome::First(900)));
        assert!(rounds <= 20, "{rounds}");
    }

    #[test]
    fn bisect_contradiction_is_noticed() {
        let mut search = BisectSearch::new(8);
        search.record(6, BisectVerdict::Bad);
        search.record(7, BisectVerdict::Good);
        assert!(search.is_odd());
        assert_eq!(search.next(1), [3]);
    }

    proptest! {
        #[test]
        fn bisect_equals_linear_search(
            last in 1_usize..200,
            place in 0.0..1.0,
            jobs in 1_usize..6,
            skips in proptest::collection::btree_set(1_usize..200, 0..60),
        ) {
            let first = 1 + (place * last as f64) as usize;
            let skips: BTreeSet<usize> = skips.into_iter().filter(|skip| *skip != last).collect();
            let verdict = |probe| if skips.contains(&probe) { BisectVerdict::Skip } else { at(first)(probe) };
            let known = |wanted| (1..=last).filter(move |probe| verdict(*probe) == wanted);
            let good = known(BisectVerdict::Good).next_back().unwrap_or(0);
            let bad = known(BisectVerdict::Bad).next().unwrap_or(last);
            let expected = if bad - good == 1 { BisectOutcome::First(bad) } else { BisectOutcome::Among((good + 1..=bad).collect()) };
            prop_assert_eq!(search(last, jobs, verdict).0, Some(expected));
        }
    }
}
