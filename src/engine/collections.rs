//! Persistent collections, imported in this one place so that they can be replaced.
//!
//! `clippy.toml` bans the parts of `im` with known soundness faults; `docs/dependencies.md` names the advisories. The
//! tests here also run under Miri, with `-Zmiri-tree-borrows`.

pub(crate) use im::ordmap::DiffItem;
pub(crate) use im::{OrdMap, Vector};

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use super::*;

    /// Size that makes nodes split and vectors become trees.
    const MANY: u64 = if cfg!(miri) { 300 } else { 3_000 };

    fn key(number: u64) -> String {
        format!("{:05}", number.wrapping_mul(7_919) % 10_007)
    }

    #[test]
    fn ord_map_equals_plain_map() {
        let (mut map, mut model) = (OrdMap::new(), BTreeMap::new());
        let mut before = (map.clone(), model.clone());
        for number in 0..MANY {
            if number == MANY / 2 {
                before = (map.clone(), model.clone());
            }
            assert_eq!(map.insert(key(number), number.to_string()), model.insert(key(number), number.to_string()));
            if number % 3 == 0 {
                assert_eq!(map.remove(&key(number / 2)), model.remove(&key(number / 2)));
            }
            if let (Some(one), Some(other)) = (map.get_mut(&key(number / 3)), model.get_mut(&key(number / 3))) {
                (*one, *other) = (format!("{one}x"), format!("{other}x"));
            }
        }
        let from = key(MANY / 2);
        assert!(map.iter().eq(&model) && map.range(from.clone()..).eq(model.range(from..)));
        assert!(before.0.iter().rev().eq(before.1.iter().rev()), "a later change leaves it alone");
        let changed = map.keys().chain(before.0.keys()).collect::<std::collections::BTreeSet<_>>();
        let changed = changed.into_iter().filter(|key| map.get(*key) != before.0.get(*key)).count();
        assert_eq!(before.0.diff(&map).count(), changed);
        assert_eq!(model.into_iter().collect::<OrdMap<_, _>>(), map);
    }

    #[test]
    fn vector_equals_plain_deque() {
        let (mut vector, mut model) = (Vector::new(), VecDeque::new());
        for number in 0..MANY {
            vector.push_back(number.to_string());
            model.push_back(number.to_string());
            if number % 3 == 0 {
                assert_eq!(vector.pop_front(), model.pop_front());
            }
        }
        let before = vector.clone();
        vector.append((0..MANY).map(|number| number.to_string()).collect());
        let middle = vector.len() / 2;
        vector.get_mut(middle).into_iter().for_each(|text| text.push('x'));
        assert!(before.iter().eq(&model) && before.iter().rev().eq(model.iter().rev()));
        model.extend((0..MANY).map(|number| number.to_string()));
        model[middle].push('x');
        assert!(vector.iter().eq(&model));
        #[expect(clippy::disallowed_methods, reason = "dropping a string never panics")]
        let (front, back) = vector.split_at(64);
        assert!(front.into_iter().chain(back).eq(model));
    }
}
