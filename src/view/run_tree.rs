//! Runs aligned as a tree: the calls that all of them made first, then a branch for each continuation.

use crate::engine::id::Seq;

/// A call of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStep {
    /// The position of its intent.
    pub call: Seq,
    /// A digest of the request. Steps with the same key are the same call.
    pub key: u64,
    /// A digest of the outcome.
    pub outcome: u64,
}

/// Calls that the same runs made in the same order.
#[derive(Debug)]
pub struct RunBranch {
    /// The index of the branch that it continues; `None` for the first branch.
    pub parent: Option<usize>,
    /// The run that its steps are from.
    pub run: usize,
    /// The calls, with a flag that is true if runs got different outcomes. Only the first branch may have none.
    pub steps: Vec<(RunStep, bool)>,
    /// The branches that continue it.
    pub next: Vec<usize>,
    /// The runs that end with it.
    pub ended: Vec<usize>,
}

/// Runs, aligned by their calls from the start. The first branch has the calls of all runs.
#[derive(Debug, Default)]
pub struct RunTree {
    branches: Vec<RunBranch>,
    steps: usize,
}

/// The place of a run that is being added.
#[derive(Debug)]
pub struct RunPlace {
    run: usize,
    branch: usize,
    offset: usize,
}

impl RunTree {
    /// Begins to add a run. Its steps follow, then its end; runs are added one after the other.
    pub fn begin(&mut self, run: usize) -> RunPlace {
        if self.branches.is_empty() {
            self.branch(None, run);
        }
        RunPlace { run, branch: 0, offset: 0 }
    }

    /// Adds the next step of a run.
    pub fn step(&mut self, place: &mut RunPlace, step: RunStep) {
        let here = &mut self.branches[place.branch];
        if let Some((known, differs)) = here.steps.get_mut(place.offset) {
            if known.key == step.key {
                *differs |= known.outcome != step.outcome;
                place.offset += 1;
                return;
            }
            self.split(place.branch, place.offset);
        } else if here.run != place.run {
            let is_next = |next: &&usize| self.branches[**next].steps.first().is_some_and(|(it, _)| it.key == step.key);
            if let Some(next) = self.branches[place.branch].next.iter().find(is_next) {
                (place.branch, place.offset) = (*next, 0);
                return self.step(place, step);
            }
        }
        if self.branches[place.branch].run != place.run {
            (place.branch, place.offset) = (self.branch(Some(place.branch), place.run), 0);
        }
        self.branches[place.branch].steps.push((step, false));
        self.steps += 1;
        place.offset += 1;
    }

    /// Ends a run.
    pub fn end(&mut self, place: RunPlace) {
        if place.offset < self.branches[place.branch].steps.len() {
            self.split(place.branch, place.offset);
        }
        self.branches[place.branch].ended.push(place.run);
    }

    /// Returns the branches. The first is the root; other orders have no meaning.
    pub fn branches(&self) -> &[RunBranch] {
        &self.branches
    }

    /// Returns the number of stored steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Returns the indexes of the branches, each after its parent and before the parent's next branch.
    pub fn order(&self) -> Vec<usize> {
        let (mut order, mut waiting) = (Vec::new(), vec![0]);
        while let Some(at) = waiting.pop() {
            let Some(branch) = self.branches.get(at) else { continue };
            order.push(at);
            waiting.extend(branch.next.iter().rev());
        }
        order
    }

    fn branch(&mut self, parent: Option<usize>, run: usize) -> usize {
        let new = self.branches.len();
        self.branches.push(RunBranch { parent, run, steps: Vec::new(), next: Vec::new(), ended: Vec::new() });
        if let Some(parent) = parent {
            self.branches[parent].next.push(new);
        }
        new
    }

    /// Moves the steps from `offset` on, with everything after them, to a new branch.
    fn split(&mut self, at: usize, offset: usize) {
        let upper = &mut self.branches[at];
        let (run, steps) = (upper.run, upper.steps.split_off(offset));
        let (next, ended) = (std::mem::take(&mut upper.next), std::mem::take(&mut upper.ended));
        let lower = self.branch(Some(at), run);
        next.iter().for_each(|branch| self.branches[*branch].parent = Some(lower));
        let lower = &mut self.branches[lower];
        (lower.steps, lower.next, lower.ended) = (steps, next, ended);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(runs: &[&str]) -> RunTree {
        let mut tree = RunTree::default();
        for (run, calls) in runs.iter().enumerate() {
            let mut place = tree.begin(run);
            for (call, key) in (1..).zip(calls.bytes()) {
                // An upper-case letter is the same call with another outcome.
                let step = RunStep { call, key: key.to_ascii_lowercase().into(), outcome: key.into() };
                tree.step(&mut place, step);
            }
            tree.end(place);
        }
        tree
    }

    /// Returns the branches, indented: calls, `!` for other outcomes, and the runs that end there.
    fn shown(tree: &RunTree) -> Vec<String> {
        let branches = tree.branches();
        let depth = |at| std::iter::successors(Some(at), |at: &usize| branches[*at].parent).count() - 1;
        let line = |at: usize| {
            let branch = &branches[at];
            let steps = branch.steps.iter().map(|(step, differs)| {
                let call = char::from(u8::try_from(step.key).unwrap());
                if *differs { format!("{call}!") } else { call.to_string() }
            });
            format!("{}{} {:?}", "  ".repeat(depth(at)), steps.collect::<String>(), branch.ended)
        };
        tree.order().into_iter().map(line).collect()
    }

    #[test]
    fn run_tree_parts_where_calls_differ() {
        assert_eq!(shown(&tree(&["abc"])), ["abc [0]"]);
        assert_eq!(shown(&tree(&["abc", "abc"])), ["abc [0, 1]"]);
        assert_eq!(shown(&tree(&["abc", "abd", "abd"])), ["ab []", "  c [0]", "  d [1, 2]"]);
        assert_eq!(shown(&tree(&["a", "b"])), [" []", "  a [0]", "  b [1]"]);
        assert_eq!(shown(&tree(&["", "b", ""])), [" [0, 2]", "  b [1]"]);
    }

    #[test]
    fn run_tree_keeps_runs_that_end_early() {
        assert_eq!(shown(&tree(&["abcd", "ab"])), ["ab [1]", "  cd [0]"]);
        assert_eq!(shown(&tree(&["ab", "abcd"])), ["ab [0]", "  cd [1]"]);
        assert_eq!(
            shown(&tree(&["abcx", "abcy", "az", "abcx"])),
            ["a []", "  bc []", "    x [0, 3]", "    y [1]", "  z [2]"]
        );
    }

    #[test]
    fn run_tree_marks_calls_with_other_outcomes() {
        assert_eq!(shown(&tree(&["abc", "aBd"])), ["ab! []", "  c [0]", "  d [1]"]);
        assert_eq!(shown(&tree(&["abc", "aBc", "x"])), [" []", "  ab!c [0, 1]", "  x [2]"]);
    }

    proptest! {
        #[test]
        fn run_tree_has_each_run_once_and_no_equal_branches(runs in prop::collection::vec("[abc]{0,6}", 1..12)) {
            let tree = tree(&runs.iter().map(String::as_str).collect::<Vec<_>>());
            let branches = tree.branches();
            let calls = |at: usize| {
                let mut path: Vec<_> = std::iter::successors(Some(at), |at: &usize| branches[*at].parent).collect();
                path.reverse();
                let steps = path.into_iter().flat_map(|at| &branches[at].steps);
                steps.map(|(step, _)| char::from(u8::try_from(step.key).unwrap())).collect::<String>()
            };
            let mut found: Vec<(usize, String)> = Vec::new();
            for at in tree.order() {
                found.extend(branches[at].ended.iter().map(|run| (*run, calls(at))));
                let mut first: Vec<_> = branches[at].next.iter().map(|next| branches[*next].steps[0].0.key).collect();
                first.sort_unstable();
                prop_assert!(first.windows(2).all(|pair| pair[0] != pair[1]));
            }
            found.sort();
            prop_assert_eq!(found, runs.into_iter().enumerate().collect::<Vec<_>>());
            prop_assert_eq!(tree.steps(), branches.iter().map(|branch| branch.steps.len()).sum::<usize>());
        }
    }
}
