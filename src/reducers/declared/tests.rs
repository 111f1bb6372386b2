use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::engine::recorded::{Payload, Recorded};
use crate::engine::reducer::Folding;
use crate::engine::slice::EncodedSlice;
use crate::engine::{OnRewind, SessionId, Timestamp};

fn declaration(rules: Value) -> SliceDeclaration {
    serde_json::from_value(json!({ "name": "Plan", "rules": rules })).unwrap()
}

fn event(seq: Seq, kind: &str, data: &Value) -> Recorded {
    let bytes = serde_json::to_vec(data).unwrap().into();
    let event = Payload { kind: kind.into(), version: 1, bytes };
    Recorded {
        session: SessionId::from_bytes([1; 16]),
        seq,
        time: Timestamp(1),
        call: None,
        agent: "ada".into(),
        event,
    }
}

fn folded(rules: Value, events: &[(&str, Value)]) -> DeclaredSlice {
    let mut slice = DeclaredSlice::begin(declaration(rules), 1).unwrap();
    for (seq, (kind, data)) in (1..).zip(events) {
        slice.apply(&event(seq, kind, data).view());
    }
    slice
}

fn refused(rules: Value) -> String {
    DeclaredSlice::begin(declaration(rules), 1).unwrap_err().to_string()
}

#[test]
fn folds_do_what_they_say() {
    let steps = [
        ("step", json!({ "id": "a", "n": 1 })),
        ("step", json!({ "id": "b", "n": 2.5 })),
        ("other", json!({ "id": "c" })),
        ("step", json!({ "id": "a", "n": 4 })),
    ];
    let fold = |rule: Value| {
        let mut rule = rule;
        rule["kinds"] = json!(["step"]);
        folded(json!([rule]), &steps).value()
    };
    assert_eq!(fold(json!({ "fold": "append", "value": "/n" })), json!([1, 2.5, 4]));
    assert_eq!(fold(json!({ "fold": "append", "value": "/n", "max": 2 })), json!([2.5, 4]));
    assert_eq!(fold(json!({ "fold": "latest" })), json!({ "id": "a", "n": 4 }));
    assert_eq!(fold(json!({ "fold": "latest_by", "key": "/id", "value": "/n" })), json!({ "a": 4, "b": 2.5 }));
    assert_eq!(fold(json!({ "fold": "count_by", "key": "/id" })), json!({ "a": 2, "b": 1 }));
    assert_eq!(fold(json!({ "fold": "sum_by", "key": "/id", "value": "/n" })), json!({ "a": 5, "b": 2.5 }));
    assert_eq!(fold(json!({ "fold": "merge_patch" })), json!({ "id": "a", "n": 4 }));
    let filtered = json!({ "fold": "append", "value": "/n", "where": "data.n > 2 and agent == \"ada\"" });
    assert_eq!(fold(filtered), json!([2.5, 4]));
}

#[test]
fn keys_are_removed_and_patches_applied() {
    let rules = json!([
        { "kinds": ["set"], "fold": "latest_by", "key": "/k" }, { "kinds": ["gone"], "fold": "remove_by", "key": "" },
    ]);
    let events =
        [("set", json!({ "k": 1 })), ("set", json!({ "k": "x~/\"" })), ("gone", json!(1)), ("gone", json!("no"))];
    assert_eq!(folded(rules, &events).value(), json!({ "x~/\"": { "k": "x~/\"" } }));
    let rules = json!([{ "kinds": ["p"], "fold": "json_patch" }]);
    let add =
        ("p", json!([{ "op": "add", "path": "", "value": { "a": [1] } }, { "op": "add", "path": "/a/-", "value": 2 }]));
    let wrong = ("p", json!([{ "op": "add", "path": "/a/0", "value": 9 }, { "op": "remove", "path": "/none" }]));
    let slice = folded(rules, &[add, wrong]);
    assert_eq!((slice.value(), slice.skipped()), (json!({ "a": [1, 2] }), 1));
}

#[test]
fn builtin_events_are_folded_by_their_json() {
    let slice = folded(
        json!([{ "kinds": ["Annotated"], "fold": "latest_by", "key": "/name", "value": "/score" }]),
        &[("Annotated", json!({ "name": "reward", "at": 1, "score": 0.5 }))],
    );
    assert_eq!(slice.value(), json!({ "reward": 0.5 }));
}

#[test]
fn full_slice_stays_as_it_is_and_counts() {
    let rules = json!([{ "kinds": ["big"], "fold": "append" }]);
    let big = ("big", json!("x".repeat(DECLARED_BYTES_MAX / 2)));
    let slice = folded(rules, &[big.clone(), big.clone(), big]);
    assert_eq!((slice.value().as_array().unwrap().len(), slice.skipped()), (1, 2));
    // Each copy doubles the value.
    let rules = json!([{ "kinds": ["p"], "fold": "json_patch" }]);
    let begin = ("p", json!([{ "op": "add", "path": "", "value": { "a": "x".repeat(1000) } }]));
    let copies: Vec<Value> = (0..60).map(|n| json!({ "op": "copy", "from": "", "path": format!("/c{n}") })).collect();
    let slice = folded(rules, &[begin, ("p", copies.into())]);
    assert_eq!(slice.skipped(), 1);
    assert_eq!(slice.value().as_object().unwrap().len(), 1);
}

#[test]
fn wrong_declarations_are_named() {
    let rule = |more: Value| {
        let mut rule = json!({ "kinds": ["a"], "fold": "latest" });
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([rule])
    };
    for (rules, what) in [
        (json!([]), "0 rules"),
        (rule(json!({ "kinds": [] })), "rule 1: 0 kinds"),
        (rule(json!({ "kinds": ["sp ace"] })), "invalid kind"),
        (rule(json!({ "key": "/a" })), "has no `key`"),
        (rule(json!({ "fold": "count_by" })), "`key` is required"),
        (rule(json!({ "fold": "sum_by", "key": "/a" })), "`value` is required"),
        (rule(json!({ "max": 3 })), "`max` belongs to `append`"),
        (rule(json!({ "value": "a" })), "invalid JSON pointer"),
        (rule(json!({ "value": "/~2" })), "invalid JSON pointer"),
        (rule(json!({ "where": "data.x >" })), "invalid predicate at character"),
        (rule(json!({ "where": "Usage.calls > 1" })), "unknown slice"),
    ] {
        let error = refused(rules);
        assert!(error.contains(what), "{error}");
    }
    let named = |name: &str| SliceDeclaration { name: name.to_owned(), ..declaration(rule(json!({}))) };
    for name in ["Usage", "usage", "", "1a", "a b", &"x".repeat(81)] {
        DeclaredSlice::begin(named(name), 1).unwrap_err();
    }
    assert_eq!(declaration(rule(json!({}))).on_rewind, OnRewind::Restore);
}

#[test]
fn merges_follow_the_policy() {
    let plan = |policy: &str, fold: Value| -> SliceDeclaration {
        serde_json::from_value(json!({ "name": "Plan", "rules": [fold], "merge": policy })).unwrap()
    };
    let keyed = json!({ "kinds": ["k"], "fold": "latest_by", "key": "/k", "value": "/v" });
    let counts = json!({ "kinds": ["k"], "fold": "count_by", "key": "/k" });
    let list = json!({ "kinds": ["k"], "fold": "append", "value": "/v" });
    let event_of = |(k, v): &(&str, i32)| ("k", json!({ "k": k, "v": v }));
    let merge = |policy: &str, fold: &Value| {
        let made = |events: &[(&str, i32)]| {
            let mut slice = DeclaredSlice::begin(plan(policy, fold.clone()), 1).unwrap();
            for (seq, (kind, data)) in (1..).zip(events.iter().map(event_of)) {
                slice.apply(&event(seq, kind, &data).view());
            }
            slice
        };
        let base = made(&[("a", 1)]);
        let (ours, theirs) = (made(&[("a", 1), ("b", 2)]), made(&[("a", 1), ("c", 3), ("a", 4)]));
        merged_value(Some(&base), &ours, &theirs).map(|merged| merged.map(|slice| slice.value()))
    };
    assert_eq!(merge("ours", &keyed).unwrap(), None);
    assert_eq!(merge("theirs", &keyed).unwrap().unwrap(), json!({ "a": 4, "c": 3 }));
    assert_eq!(merge("union", &keyed).unwrap().unwrap(), json!({ "a": 4, "b": 2, "c": 3 }));
    assert_eq!(merge("union", &counts).unwrap().unwrap(), json!({ "a": 2, "b": 1, "c": 1 }));
    assert_eq!(merge("union", &list).unwrap().unwrap(), json!([1, 2, 3, 4]));
    assert!(merge("refuse", &list).unwrap_err().to_string().contains("changed in both sessions"));
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c~/\"]{0,2}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    /// A snapshot at any position, and a fold of the rest, equal one fold; and nothing panics.
    #[test]
    fn snapshot_anywhere_equals_one_fold(
        events in prop::collection::vec((prop::sample::select(vec!["a", "b"]), arbitrary_json()), 0..40),
        cut in 0_usize..40,
    ) {
        let mut all = DeclaredSlices::default();
        for (name, rules) in [
            ("List", json!([{ "kinds": ["a", "b"], "fold": "append", "max": 7 }])),
            ("Keys", json!([
                { "kinds": ["a"], "fold": "latest_by", "key": "/a" }, { "kinds": ["b"], "fold": "remove_by", "key": "/b/0" },
            ])),
            ("Sums", json!([{ "kinds": ["a"], "fold": "sum_by", "key": "/a", "value": "/b" }])),
            ("Doc", json!([{ "kinds": ["a"], "fold": "merge_patch" }, { "kinds": ["b"], "fold": "json_patch" }])),
        ] {
            let declared = SliceDeclaration { name: name.to_owned(), ..declaration(rules) };
            all = all.with(DeclaredSlice::begin(declared, 1).unwrap());
        }
        let run = |from: DeclaredSlices, events: &[(&str, Value)]| {
            let mut fold = Box::new(DeclaredFolding::new(from));
            for (seq, (kind, data)) in (1..).zip(events) {
                fold.apply(&event(seq, kind, data).view()).unwrap();
            }
            fold.finish()
        };
        let encoded = |slices: &DeclaredSlices| -> Vec<Bytes> {
            slices.encode().unwrap().into_iter().map(Bytes::from).collect()
        };
        let cut = cut.min(events.len());
        let whole = run(all.clone(), &events);
        let middle = DeclaredSlices::decode(&encoded(&run(all, &events[..cut]))).unwrap();
        let resumed = run(middle, &events[cut..]);
        prop_assert_eq!(encoded(&whole), encoded(&resumed));
        let slice = |blocks| EncodedSlice { name: "x".into(), version: 1, blocks }.digest();
        prop_assert_eq!(slice(encoded(&whole)), slice(encoded(&resumed)));
    }

    #[test]
    fn pointers_find_what_serde_finds(json in arbitrary_json(), pointer in "(/[a-c0-3~\"]{0,2}){0,3}") {
        let Ok(place) = json_place::JsonPlace::parse(&pointer) else { return Ok(()) };
        let text = serde_json::to_vec(&json).unwrap();
        let found = place.find(&text).map(|found| serde_json::from_str::<Value>(found).unwrap());
        let meant: Value = serde_json::from_slice(&text).unwrap();
        prop_assert_eq!(found.as_ref(), meant.pointer(&pointer));
    }
}
