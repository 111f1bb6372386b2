//! Events, slices and reducers of another program: from outside the crate, over restarts and versions.

use std::sync::Arc;

use foldspace::event::{CodecError, SystemClock, ValueError};
use foldspace::fold::OnRewind;
use foldspace::reducers::{
    AppendAll, Keyed, LatestByKey, ReplaceLatest, UpsertByKey, Usage, append_all, replace_latest,
    replace_latest_by_key, upsert_by_key,
};
use foldspace::session::{Keep, SnapshotPolicy};
use foldspace::{Event, NewSession, Recorded, Registry, Session, Sessions, Slice};
use serde::{Deserialize, Serialize};

use super::open;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Spent {
    cents: u64,
    #[serde(default)]
    on: String,
}

impl Event for Spent {
    const KIND: &'static str = "shop/Spent";
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Earned {
    cents: u64,
}

impl Event for Earned {
    const KIND: &'static str = "shop/Earned";
    const VERSION: u16 = 3;

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        if self.cents == u64::MAX {
            return Err(CodecError::new(Self::KIND, 3, "too much"));
        }
        out.extend_from_slice(&self.cents.to_be_bytes());
        Ok(())
    }

    fn decode(version: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        let wrong = |_| CodecError::new(Self::KIND, version, "odd length");
        match version {
            // In the first version there were dollars.
            1 => Ok(Self { cents: u64::from(u32::from_be_bytes(bytes.try_into().map_err(wrong)?)) * 100 }),
            2 | 3 => Ok(Self { cents: u64::from_be_bytes(bytes.try_into().map_err(wrong)?) }),
            _ => Err(CodecError::newer(Self::KIND, version)),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Balance {
    cents: i64,
    last_by: String,
}

impl Slice for Balance {
    const NAME: &'static str = "Balance";
}

fn shop() -> Result<Registry, ValueError> {
    Registry::standard()
        .event::<Spent>()?
        .event::<Earned>()?
        .slice::<Balance>()?
        .reducer(|balance: Balance, spent: &Recorded<Spent>| Balance {
            cents: balance.cents - spent.event.cents as i64,
            last_by: spent.agent.to_string(),
        })?
        .reducer(|balance: Balance, earned: &Recorded<Earned>| Balance {
            cents: balance.cents + earned.event.cents as i64,
            last_by: earned.agent.to_string(),
        })
}

fn sessions(directory: &std::path::Path, registry: Registry, every: u64) -> Sessions {
    let policy = SnapshotPolicy { every, keep: Keep::All };
    Sessions::new(Arc::new(open(directory)), registry, Arc::new(SystemClock::default()), policy).unwrap()
}

fn only(sessions: &Sessions) -> Session {
    sessions.session(sessions.list().unwrap()[0].id).unwrap()
}

fn push<E: Event>(session: &Session, event: &E) {
    let mut commit = session.commit();
    commit.push(event).unwrap();
    session.record(commit).unwrap();
}

fn push_raw(session: &Session, kind: &str, version: u16, payload: &[u8]) {
    let mut commit = session.commit();
    commit.push_encoded(kind, version, payload).unwrap();
    session.record(commit).unwrap();
}

#[test]
fn own_event_and_slice_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = sessions(directory.path(), shop().unwrap(), 5);
    let session = first.create(NewSession::named("s")).unwrap().as_agent("clerk");
    for cents in 1..=20 {
        push(&session, &Earned { cents: cents * 10 });
        push(&session, &Spent { cents, on: "tea".to_owned() });
    }
    let expected = Balance { cents: 1890, last_by: "clerk".to_owned() };
    assert_eq!(session.state().unwrap().slice::<Balance>(), Some(&expected));
    let mut commit = session.commit();
    assert!(commit.push(&Earned { cents: u64::MAX }).is_err() && commit.is_empty(), "what has no encoding is refused");
    let head = session.head().unwrap();
    drop(session);
    first.close();
    for every in [0, 3] {
        let again = sessions(directory.path(), shop().unwrap(), every);
        let session = only(&again);
        assert_eq!(session.state().unwrap().slice::<Balance>(), Some(&expected));
        assert_eq!(session.state_at(3).unwrap().slice::<Balance>().unwrap().cents, 9);
        let event = session.event(head).unwrap();
        assert_eq!(event.typed::<Spent>().unwrap().unwrap().event, Spent { cents: 20, on: "tea".to_owned() });
        assert!(event.typed::<Earned>().is_none());
        assert_eq!(session.event_json(&event.view())["cents"], 20);
        assert_eq!(again.verify(None).unwrap().differences, []);
        drop(session);
        again.close();
    }
}

#[test]
fn registry_without_an_event_reads_all_others() {
    let directory = tempfile::tempdir().unwrap();
    let knowing = sessions(directory.path(), shop().unwrap(), 2);
    let session = knowing.create(NewSession::named("s")).unwrap();
    push(&session, &Earned { cents: 5 });
    push_raw(&session, Earned::KIND, 1, &7u32.to_be_bytes());
    push_raw(&session, Earned::KIND, 2, &9u64.to_be_bytes());
    push_raw(&session, Earned::KIND, 4, b"of a later program");
    push_raw(&session, Earned::KIND, 3, b"damaged");
    push_raw(&session, "WriteFile", 1, b"damaged too");
    push_raw(&session, "nobody/Knows", 1, &[0xff, 0xfe]);
    push(&session, &Spent { cents: 1, on: String::new() });
    push_raw(&session, Spent::KIND, 1, br#"{"cents":2}"#);
    let state = session.state().unwrap();
    assert_eq!(state.slice::<Balance>().unwrap().cents, 5 + 700 + 9 - 1 - 2);
    assert_eq!(state.unreadable(), 3, "a kind that no reducer wants is not unreadable to it");
    session.snapshot().unwrap();
    drop((state, session));
    knowing.close();

    let other = sessions(directory.path(), Registry::standard(), 2);
    let session = only(&other);
    let state = session.state().unwrap();
    assert!(state.slice::<Balance>().is_none() && state.slice_json("Balance").is_none());
    assert_eq!((state.unreadable(), state.slice::<Usage>().unwrap().events), (1, 10));
    let shown: Vec<_> = session.events(1, 100).unwrap().iter().map(|event| session.event_json(&event.view())).collect();
    assert_eq!(shown.len(), 10);
    assert!(shown[1]["unreadable"].as_str().unwrap().contains("shop/Earned") && shown[1]["bytes"] == 8, "{}", shown[1]);
    push_raw(&session, "nobody/Knows", 2, b"");
    drop((state, session));
    other.close();

    // And back to the program that knows: nothing was lost in between.
    let knowing = sessions(directory.path(), shop().unwrap(), 2);
    let state = only(&knowing).state().unwrap();
    assert_eq!((state.slice::<Balance>().unwrap().cents, state.unreadable(), state.seq()), (711, 3, 11));
    assert_eq!(knowing.verify(None).unwrap().differences, []);
}

/// The same slice, changed in meaning: its version is another, so old snapshots of it are not used.
#[test]
fn slice_of_new_version_is_folded_again() {
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    struct Count {
        cents: i64,
        last_by: String,
    }
    impl Slice for Count {
        const NAME: &'static str = Balance::NAME;
        const VERSION: u32 = 2;
        const ON_REWIND: OnRewind = OnRewind::Keep;
    }
    let directory = tempfile::tempdir().unwrap();
    let old = sessions(directory.path(), shop().unwrap(), 1);
    let session = old.create(NewSession::named("s")).unwrap();
    (0..10).for_each(|cents| push(&session, &Spent { cents, on: String::new() }));
    session.snapshot().unwrap();
    drop(session);
    old.close();
    let counting = Registry::standard().event::<Spent>().unwrap().slice::<Count>().unwrap();
    let counting = counting.reducer(|count: Count, _: &Recorded<Spent>| Count { cents: count.cents + 1, ..count });
    let new = sessions(directory.path(), counting.unwrap(), 1);
    assert_eq!(only(&new).state().unwrap().slice::<Count>().unwrap().cents, 10);
    assert_eq!(only(&new).state_at(5).unwrap().slice::<Count>().unwrap().cents, 4);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Rated<const KIND: u8> {
    who: (u8, bool),
    stars: u64,
}

impl<const KIND: u8> Event for Rated<KIND> {
    const KIND: &'static str = ["All", "Latest", "ByKey", "Upsert"][KIND as usize];
}

impl<const KIND: u8> Keyed for Rated<KIND> {
    type Key = (u8, bool);

    fn key(&self) -> Self::Key {
        self.who
    }
}

fn rating() -> Registry {
    let all = append_all::<Rated<0>>(Registry::standard()).and_then(replace_latest::<Rated<1>>);
    all.and_then(replace_latest_by_key::<Rated<2>>).and_then(upsert_by_key::<Rated<3>>).unwrap()
}

#[test]
fn general_reducers_keep_what_they_promise() {
    let directory = tempfile::tempdir().unwrap();
    let first = sessions(directory.path(), rating(), 7);
    let session = first.create(NewSession::named("s")).unwrap();
    let rated = |number: u64| ((number * 7 % 13) as u8, number.is_multiple_of(2));
    for stars in 0..200 {
        let who = rated(stars);
        let mut commit = session.commit();
        commit.push(&Rated::<0> { who, stars }).unwrap();
        commit.push(&Rated::<1> { who, stars }).unwrap();
        commit.push(&Rated::<2> { who, stars }).unwrap();
        commit.push(&Rated::<3> { who, stars }).unwrap();
        session.record(commit).unwrap();
    }
    let check = |session: &Session, at: u64| {
        let state = session.state_at(1 + 4 * at).unwrap();
        let all: Vec<u64> = state.slice::<AppendAll<Rated<0>>>().unwrap().iter().map(|item| item.stars).collect();
        assert_eq!(all, (0..at).collect::<Vec<_>>());
        let latest = state.slice::<ReplaceLatest<Rated<1>>>().unwrap().item.as_ref().map(|item| item.stars);
        assert_eq!(latest, at.checked_sub(1));
        let mut by_key = std::collections::BTreeMap::new();
        let mut order = Vec::new();
        for stars in 0..at {
            if by_key.insert(rated(stars), stars).is_none() {
                order.push(rated(stars));
            }
        }
        let found: Vec<_> =
            state.slice::<LatestByKey<Rated<2>>>().unwrap().iter().map(|item| (item.who, item.stars)).collect();
        assert_eq!(found, by_key.iter().map(|(who, stars)| (*who, *stars)).collect::<Vec<_>>());
        let upsert = state.slice::<UpsertByKey<Rated<3>>>().unwrap();
        let found: Vec<_> = upsert.iter().map(|item| (item.who, item.stars)).collect();
        assert_eq!(found, order.iter().map(|who| (*who, by_key[who])).collect::<Vec<_>>());
        for (who, stars) in &by_key {
            assert_eq!(upsert.get(who).unwrap().stars, *stars);
        }
        assert_eq!(upsert.get(&(200, true)), None);
    };
    [0, 1, 5, 100, 200].into_iter().for_each(|at| check(&session, at));
    drop(session);
    first.close();
    let again = sessions(directory.path(), rating(), 7);
    [200, 13, 100, 0].into_iter().for_each(|at| check(&only(&again), at));
    assert_eq!(again.verify(None).unwrap().differences, []);
    assert!(!again.store().snapshots(only(&again).id()).unwrap().is_empty());
}

#[test]
fn registry_contradiction_is_refused() {
    let twice = |outcome: Result<Registry, ValueError>| {
        assert!(outcome.err().unwrap().to_string().ends_with("is registered twice"));
    };
    twice(shop().unwrap().event::<Spent>());
    twice(shop().unwrap().slice::<Balance>());
    twice(append_all::<Rated<0>>(rating()));
    twice(shop().unwrap().reducer(|balance: Balance, _: &Recorded<Spent>| balance));
    let missing = Registry::new().reducer(|balance: Balance, _: &Recorded<Spent>| balance);
    assert!(missing.err().unwrap().to_string().starts_with("slice Balance must be registered"));
}
