//! The contract of every [`Meta`]: the suite runs on the model in memory and, from dunlin-etcd's tests, on a real etcd.
//!
//! All checks share one store, so each has a prefix of its own.

use std::time::{Duration, Instant};

use dunlin_cluster::meta::{
    Change, LeaseId, Meta, MetaError, Revision, Transaction, TransactionOutcome, VALUE_BYTES_MAX, Watch,
};

/// A store under test, with operations that the trait does not offer.
pub trait Testbed {
    /// The store.
    fn meta(&self) -> &dyn Meta;
    /// Makes the store forget the changes before a revision.
    fn compact(&self, revision: Revision);
    /// Lets time pass.
    fn pass(&self, ms: u64);
}

/// Runs the suite.
pub fn run(bed: &dyn Testbed) {
    transactions_compare_and_set(bed.meta());
    transactions_do_everything_or_nothing(bed.meta());
    transactions_that_make_no_sense_are_refused(bed.meta());
    ranges_show_what_has_the_prefix(bed.meta());
    watch_reports_every_change_in_order(bed.meta());
    watch_of_compacted_changes_says_so(bed);
    leases_take_their_keys_along(bed);
}

fn done(outcome: TransactionOutcome) -> Revision {
    match outcome {
        TransactionOutcome::Done(revision) => revision,
        other => panic!("{other:?}"),
    }
}

fn revision_of(meta: &dyn Meta, key: &str) -> Revision {
    meta.get(key).unwrap().items.first().map_or(0, |item| item.revision)
}

fn transactions_compare_and_set(meta: &dyn Meta) {
    let create = Transaction::default().compare("cas/a", 0).put("cas/a", *b"1");
    let first = done(meta.commit(&create));
    assert_eq!(revision_of(meta, "cas/a"), first);
    let TransactionOutcome::Refused(at) = meta.commit(&create) else { panic!("it is there already") };
    assert!(at >= first);
    let second = done(meta.commit(&Transaction::default().compare("cas/a", first).put("cas/a", *b"2")));
    assert!(second > first);
    let stale = Transaction::default().compare("cas/a", first).put("cas/a", *b"3");
    assert!(matches!(meta.commit(&stale), TransactionOutcome::Refused(_)));
    assert_eq!(meta.get("cas/a").unwrap().items[0].value, b"2");
    done(meta.commit(&Transaction::default().compare("cas/a", second).delete("cas/a")));
    assert_eq!(meta.get("cas/a").unwrap().items, []);
    // Absent again: its revision is 0.
    done(meta.commit(&create));
}

fn transactions_do_everything_or_nothing(meta: &dyn Meta) {
    let at = done(meta.commit(&Transaction::default().put("all/a", *b"1").put("all/b", *b"1")));
    assert_eq!((revision_of(meta, "all/a"), revision_of(meta, "all/b")), (at, at));
    let half =
        Transaction::default().compare("all/a", at).compare("all/b", 0).put("all/a", *b"2").delete("all/b");
    assert!(matches!(meta.commit(&half), TransactionOutcome::Refused(_)));
    assert_eq!((revision_of(meta, "all/a"), revision_of(meta, "all/b")), (at, at));
    let both =
        Transaction::default().compare("all/a", at).compare("all/b", at).put("all/a", *b"2").delete("all/b");
    let next = done(meta.commit(&both));
    assert_eq!((revision_of(meta, "all/a"), revision_of(meta, "all/b")), (next, 0));
    // Bytes of any value, and none.
    let bytes: Vec<u8> = (0..=255).collect();
    done(meta.commit(&Transaction::default().put("all/bytes", bytes.clone()).put("all/empty", *b"")));
    assert_eq!(meta.get("all/bytes").unwrap().items[0].value, bytes);
    assert_eq!(meta.get("all/empty").unwrap().items[0].value, b"");
}

fn transactions_that_make_no_sense_are_refused(meta: &dyn Meta) {
    let twice = Transaction::default().put("odd/a", *b"1").put("odd/a", *b"2");
    assert!(matches!(meta.commit(&twice), TransactionOutcome::Failed(MetaError::Refused(_))));
    let bound = Transaction::default().put_leased("odd/a", *b"1", LeaseId(12345));
    assert_eq!(meta.commit(&bound), TransactionOutcome::Failed(MetaError::NoLease));
    let large = Transaction::default().put("odd/a", vec![0; 2 * VALUE_BYTES_MAX]);
    assert!(matches!(meta.commit(&large), TransactionOutcome::Failed(MetaError::Refused(_))));
    assert_eq!(revision_of(meta, "odd/a"), 0);
    // A transaction that changes nothing is as good as done.
    assert!(matches!(meta.commit(&Transaction::default().delete("odd/absent")), TransactionOutcome::Done(_)));
}

fn ranges_show_what_has_the_prefix(meta: &dyn Meta) {
    let at = done(
        meta.commit(&Transaction::default().put("range/b", *b"2").put("range/a", *b"1").put("range0", *b"3")),
    );
    let found = meta.range("range/").unwrap();
    assert!(found.revision >= at);
    let keys: Vec<&str> = found.items.iter().map(|item| &*item.key).collect();
    assert_eq!(keys, ["range/a", "range/b"]);
    assert!(meta.range("").unwrap().items.len() >= 3);
    assert_eq!(meta.range("nothing/").unwrap().items, []);
}

/// Reads at least `count` changes; a wait may bring some of them, or none.
fn read(watch: &mut dyn Watch, count: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..20 {
        changes.extend(watch.next(2_000).unwrap());
        if changes.len() >= count {
            return changes;
        }
    }
    panic!("the watch brings {changes:?}");
}

fn watch_reports_every_change_in_order(meta: &dyn Meta) {
    let first = done(meta.commit(&Transaction::default().put("watch/a", *b"1")));
    let mut watch = meta.watch("watch/", first).unwrap();
    let second = done(
        meta.commit(&Transaction::default().put("watch/a", *b"2").put("watch/b", *b"2").put("other", *b"x")),
    );
    let third = done(meta.commit(&Transaction::default().delete("watch/a")));
    let change = |key: &str, value: Option<&[u8]>, revision| Change {
        key: key.to_owned(),
        value: value.map(<[u8]>::to_vec),
        revision,
        lease: None,
    };
    let mut changes = read(&mut *watch, 3);
    changes[..2].sort_by(|a, b| a.key.cmp(&b.key));
    let expected = [
        change("watch/a", Some(b"2"), second),
        change("watch/b", Some(b"2"), second),
        change("watch/a", None, third),
    ];
    assert_eq!(changes, expected);
    // A wait without a change, and then one that has its change.
    assert_eq!(watch.next(10).unwrap(), []);
    let fourth = done(meta.commit(&Transaction::default().put("watch/c", *b"4")));
    assert_eq!(read(&mut *watch, 1), [change("watch/c", Some(b"4"), fourth)]);
    // Another watch sees the same past.
    let mut again = meta.watch("watch/", first).unwrap();
    assert_eq!(read(&mut *again, 4).len(), 4);
}

fn watch_of_compacted_changes_says_so(bed: &dyn Testbed) {
    let meta = bed.meta();
    let first = done(meta.commit(&Transaction::default().put("compact/a", *b"1")));
    done(meta.commit(&Transaction::default().put("compact/a", *b"2")));
    let third = done(meta.commit(&Transaction::default().put("compact/a", *b"3")));
    bed.compact(third);
    let mut watch = meta.watch("compact/", first).unwrap();
    assert_eq!(watch.next(60_000), Err(MetaError::Compacted(third)));
    let mut watch = meta.watch("compact/", third - 1).unwrap();
    assert_eq!(read(&mut *watch, 1)[0].revision, third);
    assert_eq!(meta.range("compact/").unwrap().items.len(), 1);
}

/// Puts `lease/a` under a short lease, and `lease/b` under a long one. Returns both, with the short one's time, and the revision.
/// `None`: that was slower than the short lease is long, so that nothing is known of it.
fn lease_both(meta: &dyn Meta) -> Option<(LeaseId, u32, LeaseId, Revision)> {
    let began = Instant::now();
    let (short, ttl_s) = meta.grant(1).unwrap();
    let (long, _) = meta.grant(60).unwrap();
    assert!(ttl_s >= 1);
    let both = Transaction::default().put_leased("lease/a", *b"1", short).put_leased("lease/b", *b"1", long);
    let committed = meta.commit(&both);
    let items = meta.range("lease/").unwrap().items;
    let kept = meta.keep_alive(short);
    if began.elapsed() >= Duration::from_secs(ttl_s.into()) {
        meta.revoke(short).unwrap();
        meta.revoke(long).unwrap();
        return None;
    }
    let at = done(committed);
    assert_eq!((items[0].lease, items[1].lease), (Some(short), Some(long)));
    assert_eq!(kept, Ok(ttl_s));
    Some((short, ttl_s, long, at))
}

fn leases_take_their_keys_along(bed: &dyn Testbed) {
    let meta = bed.meta();
    let leased = (0..20).find_map(|_| lease_both(meta));
    let (short, ttl_s, long, at) = leased.expect("some requests take less time than the short lease");
    let mut watch = meta.watch("lease/", at).unwrap();
    // Twice the time and more: nothing is asserted about when it ends, but that it does.
    for _ in 0..20 {
        bed.pass(u64::from(ttl_s) * 500);
        if meta.range("lease/").unwrap().items.len() == 1 {
            break;
        }
    }
    let gone = read(&mut *watch, 1);
    assert_eq!((&*gone[0].key, &gone[0].value), ("lease/a", &None));
    assert_eq!(meta.keep_alive(short), Err(MetaError::NoLease));
    meta.revoke(long).unwrap();
    assert_eq!(meta.range("lease/").unwrap().items, []);
    meta.revoke(long).unwrap();
}
