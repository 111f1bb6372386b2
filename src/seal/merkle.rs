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

/// Computes the root of the tree from a proof of inclusion; `None` if the proof has the wrong length.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn hash(hex: &str) -> TreeHash {
        bytes(hex).try_into().unwrap()
    }

    /// The leaves of the test vectors of Certificate Transparency.
    fn leaves() -> Vec<TreeHash> {
        let inputs =
            ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
        inputs.iter().map(|input| leaf_hash(&bytes(input))).collect()
    }

    const ROOTS: [&str; 9] = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];

    #[test]
    fn roots_are_the_published_ones() {
        let leaves = leaves();
        for (size, expected) in ROOTS.iter().enumerate() {
            assert_eq!(root(&leaves[..size]), hash(expected), "{size} leaves");
        }
    }

    #[test]
    fn proofs_are_the_published_ones() {
        let leaves = leaves();
        let expected = [
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ];
        assert_eq!(inclusion(0, &leaves), expected.map(hash));
        assert_eq!(consistency(1, &leaves), expected.map(hash));
        let expected = [
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ];
        assert_eq!(consistency(6, &leaves), expected.map(hash));
        let expected = [
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ];
        assert_eq!(consistency(2, &leaves[..5]), expected.map(hash));
        assert!(consistency(5, &leaves[..5]).is_empty());
    }

    #[test]
    fn inclusion_holds_for_its_leaf_only() {
        let leaves: Vec<TreeHash> = (0..70_u8).map(|number| leaf_hash(&[number])).collect();
        for size in 1..leaves.len() {
            let tree = &leaves[..size];
            for index in 0..size {
                let proof = inclusion(index, tree);
                let found = |index: usize, leaf, proof: &[TreeHash]| {
                    included_in(index as u64, size as u64, leaf, proof) == Some(root(tree))
                };
                assert!(found(index, tree[index], &proof), "{index} of {size}");
                assert!(!found(index, leaf_hash(b"other"), &proof) && !found(index + 1, tree[index], &proof));
                assert!(!found(index, tree[index], &[&proof[..], &[[0; 32]]].concat()));
                assert!(proof.is_empty() || !found(index, tree[index], &proof[1..]));
            }
        }
        assert_eq!(included_in(u64::MAX - 1, u64::MAX, [0; 32], &[]), None);
        assert_eq!(included_in(0, 0, [0; 32], &[]), None);
    }
}
