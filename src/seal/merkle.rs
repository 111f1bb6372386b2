//! Merkle trees of RFC 6962, over SHA-256.

use ring::digest::{Context, SHA256};

/// Hash of a tree, a subtree or a leaf.
pub(super) type TreeHash = [u8; 32];

pub(super) fn sha256(parts: &[&[u8]]) -> TreeHash {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

pub(super) fn leaf_hash(leaf: &[u8]) -> TreeHash {
    sha256(&[&[0], leaf])
}

fn node(left: &TreeHash, right: &TreeHash) -> TreeHash {
    sha256(&[&[1], left, right])
}

/// Returns the number of leaves of the left subtree: the largest power of two below `size`, which is at least 2.
fn split(size: u64) -> u64 {
    1 << (63 - (size - 1).leading_zeros())
}

fn halves(leaves: &[TreeHash]) -> (&[TreeHash], &[TreeHash]) {
    leaves.split_at(usize::try_from(split(leaves.len() as u64)).unwrap_or(0))
}

pub(super) fn root(leaves: &[TreeHash]) -> TreeHash {
    match leaves {
        [] => sha256(&[]),
        [leaf] => *leaf,
        _ => {
            let (left, right) = halves(leaves);
            node(&root(left), &root(right))
        }
    }
}

/// Returns the proof that the tree has the leaf at `index`, from the leaf's sibling up.
pub(super) fn inclusion(index: usize, leaves: &[TreeHash]) -> Vec<TreeHash> {
    if leaves.len() < 2 {
        return Vec::new();
    }
    let (left, right) = halves(leaves);
    let (mut proof, sibling) = match index.checked_sub(left.len()) {
        None => (inclusion(index, left), root(right)),
        Some(index) => (inclusion(index, right), root(left)),
    };
    proof.push(sibling);
    proof
}

/// Returns the root of the tree to which a proof of inclusion leads; `None` if the proof has the wrong length.
pub(super) fn included_in(index: u64, size: u64, leaf: TreeHash, proof: &[TreeHash]) -> Option<TreeHash> {
    if index >= size {
        return None;
    }
    if size == 1 {
        return proof.is_empty().then_some(leaf);
    }
    let (sibling, rest) = proof.split_last()?;
    let left = split(size);
    Some(match index.checked_sub(left) {
        None => node(&included_in(index, left, leaf, rest)?, sibling),
        Some(index) => node(sibling, &included_in(index, size - left, leaf, rest)?),
    })
}

/// Returns the proof that a tree extends the tree of its first `old` leaves, which are at least one.
pub(super) fn consistency(old: usize, leaves: &[TreeHash]) -> Vec<TreeHash> {
    subproof(old, leaves, true)
}

fn subproof(old: usize, leaves: &[TreeHash], is_known: bool) -> Vec<TreeHash> {
    if old == leaves.len() {
        return if is_known { Vec::new() } else { vec![root(leaves)] };
    }
    let (left, right) = halves(leaves);
    let (mut proof, other) = match old.checked_sub(left.len()) {
        None | Some(0) => (subproof(old, left, is_known), root(right)),
        Some(old) => (subproof(old, right, false), root(left)),
    };
    proof.push(other);
    proof
}
