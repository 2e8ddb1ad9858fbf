use proptest::prelude::*;

use super::*;
use crate::SlotRange;

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 20])
}

fn shard(number: u8) -> ShardId {
    ShardId::from_bytes([number; 20])
}

fn shard_record() -> ShardRecord {
    ShardRecord {
        epoch: 7,
        primary: node(1),
        in_sync: [node(1), node(2)].into(),
        learners: [node(3)].into(),
        history: History { id: HistoryId::from_bytes([9; 20]), from: 500, previous: None },
        requested: Some(RequestedChange::HandOver(node(2))),
    }
}

fn slots_record() -> SlotsRecord {
    let mut slots = SlotMap::default();
    slots.assign(&SlotRange::new(0, 99).unwrap().into(), Some(shard(1)));
    slots.assign(&SlotRange::new(100, 16383).unwrap().into(), Some(shard(2)));
    let moving = Move {
        id: MoveId::from_bytes([5; 20]),
        slots: SlotRange::new(10, 19).unwrap().into(),
        from: shard(1),
        to: shard(2),
        from_epoch: 3,
        to_epoch: 4,
    };
    SlotsRecord { slots, moving: vec![moving], ..SlotsRecord::default() }
}

fn node_record() -> NodeRecord {
    NodeRecord {
        addresses: Addresses {
            host: "::1".into(),
            port: 6379,
            tls_port: 0,
            replication_port: 0,
            hostname: "one.example".into(),
        },
        name: "one".into(),
        host: "a".into(),
        zone: "z".into(),
        weight: 1 << 40,
        version: "0.1.0".into(),
        state: NodeState::Active,
        boot: BootId::from_bytes([3; 20]),
        restart: Some(Restart {
            shard: shard(1),
            epoch: u64::MAX,
            history: HistoryId::from_bytes([1; 20]),
            offset: u64::MAX,
            clean: true,
        }),
    }
}

fn reads_what_it_writes<R: Record + PartialEq + fmt::Debug>(record: R) {
    let json = record.encode();
    assert!(json.starts_with(b"{\"v\":1"), "{}", json.escape_ascii());
    assert_eq!(R::decode(&json), Ok(record), "{}", json.escape_ascii());
    // A version later, everything may be different.
    let newer = String::from_utf8(json).unwrap().replacen("\"v\":1", "\"new\":[{}],\"v\":2", 1);
    assert_eq!(R::decode(newer.as_bytes()), Err(RecordError::Newer { found: 2, known: 1 }));
    let odd = newer.replacen("\"v\":2", "\"v\":1", 1);
    assert!(matches!(R::decode(odd.as_bytes()), Err(RecordError::Malformed(_))), "an unknown field");
}

#[test]
fn records_read_what_they_write() {
    reads_what_it_writes(shard_record());
    reads_what_it_writes(slots_record());
    reads_what_it_writes(node_record());
    reads_what_it_writes(ClusterRecord {
        id: ClusterId::from_bytes([1; 20]),
        replicas: 1,
        durability: Durability::Sync,
        min_sync: 2,
        created_ms: 1,
    });
    reads_what_it_writes(AliveRecord {
        boot: BootId::from_bytes([3; 20]),
        used_bytes: 5,
        heavy: vec![(7, 4)],
    });
    reads_what_it_writes(UsersRecord { users: vec!["user default on".into()] });
    reads_what_it_writes(FunctionsRecord { libraries: [("lib".into(), "#!lua name=lib\n".into())].into() });
    reads_what_it_writes(SettingsRecord { settings: [("maxmemory".into(), "1gb".into())].into() });
    reads_what_it_writes(ControllerRecord { node: node(1), boot: BootId::from_bytes([3; 20]) });
}

/// The form is what other versions read: it changes with a new version only.
#[test]
fn shard_record_has_this_form() {
    let id = |number: u8| format!("{number:02x}").repeat(20);
    let json = format!(
        r#"{{"v":1,"epoch":7,"primary":"{}","in_sync":["{}","{}"],"learners":["{}"],"history":{{"id":"{}","from":500}},"requested":{{"hand_over":"{}"}}}}"#,
        id(1),
        id(1),
        id(2),
        id(3),
        id(9),
        id(2)
    );
    assert_eq!(String::from_utf8(shard_record().encode()).unwrap(), json);
}

#[test]
fn slots_record_has_this_form() {
    let id = |number: u8| format!("{number:02x}").repeat(20);
    let json = format!(
        r#"{{"v":1,"slots":[{{"shard":"{}","slots":"0-99"}},{{"shard":"{}","slots":"100-16383"}}],"moving":[{{"id":"{}","slots":"10-19","from":"{}","to":"{}","from_epoch":3,"to_epoch":4}}]}}"#,
        id(1),
        id(2),
        id(5),
        id(1),
        id(2)
    );
    assert_eq!(String::from_utf8(slots_record().encode()).unwrap(), json);
}

#[test]
fn shard_record_refuses_what_no_server_writes() {
    let refused = |change: &dyn Fn(&mut ShardRecord)| {
        let mut record = shard_record();
        change(&mut record);
        // Around `encode`, which would panic.
        let mut json = serde_json::to_value(&record).unwrap();
        json["v"] = 1.into();
        let decoded = ShardRecord::decode(json.to_string().as_bytes());
        assert!(matches!(decoded, Err(RecordError::Malformed(_))), "{record:?}");
    };
    refused(&|record| record.epoch = 0);
    refused(&|record| record.primary = node(3));
    refused(&|record| record.learners = [node(2)].into());
    refused(&|record| record.in_sync.extend((0..=u8::MAX).map(node)));
    refused(&|record| record.history.previous = Some(record.history.id));
}

#[test]
fn slots_record_refuses_moves_that_cannot_be() {
    let refused = |change: &dyn Fn(&mut Vec<Move>)| {
        let mut record = slots_record();
        change(&mut record.moving);
        assert!(record.check().is_err(), "{record:?}");
    };
    refused(&|moving| moving[0].slots = SlotSet::default());
    refused(&|moving| moving[0].to = shard(1));
    refused(&|moving| moving[0].slots = SlotRange::new(99, 100).unwrap().into());
    refused(&|moving| moving.push(Move { id: MoveId::from_bytes([6; 20]), ..moving[0].clone() }));
}

#[test]
fn keys_read_what_they_write() {
    let keys = Keys::new("prod-1").unwrap();
    for key in [
        Key::Cluster,
        Key::Node(node(1)),
        Key::Alive(node(1)),
        Key::Progress(node(1)),
        Key::Shard(shard(1)),
        Key::Slots,
        Key::Users,
        Key::Functions,
        Key::Settings,
        Key::Controller,
    ] {
        assert_eq!(keys.parse(&keys.text(key)), Some(key));
    }
    assert_eq!(keys.text(Key::Slots), "/dunlin/prod-1/slots");
    for text in
        ["/dunlin/prod-1/", "/dunlin/prod/slots", "/dunlin/prod-1/nodes/x", "/dunlin/prod-1/slots/x", ""]
    {
        assert_eq!(keys.parse(text), None, "{text}");
    }
    for name in ["", "a/b", "ä", "a b", &"a".repeat(65)] {
        assert_eq!(Keys::new(name), Err(NameError), "{name}");
    }
}

fn decode_all(json: &[u8]) {
    let _ = ShardRecord::decode(json);
    let _ = SlotsRecord::decode(json);
    let _ = NodeRecord::decode(json);
    let _ = ClusterRecord::decode(json);
    let _ = UsersRecord::decode(json);
}

#[test]
fn hostile_json_is_an_error() {
    for json in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"v":-1}"#,
        r#"{"v":"1"}"#,
        r#"{"v":1e99}"#,
        r#"{"v":1,"v":1}"#,
        &"[".repeat(100_000),
        &format!(r#"{{"v":1,"slots":{}"#, "[".repeat(100_000)),
        &format!(r#"{{"v":1,"users":["{}"]}}"#, "x".repeat(VALUE_BYTES_MAX)),
    ] {
        assert!(ShardRecord::decode(json.as_bytes()).is_err());
        assert!(SlotsRecord::decode(json.as_bytes()).is_err());
        assert!(UsersRecord::decode(json.as_bytes()).is_err());
    }
}

proptest! {
    #[test]
    fn mutated_records_never_panic(which in 0..3, at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 0..8)) {
        let mut json = match which {
            0 => shard_record().encode(),
            1 => slots_record().encode(),
            _ => node_record().encode(),
        };
        let at = at.index(json.len());
        let end = (at + bytes.len()).min(json.len());
        json.splice(at..end, bytes);
        decode_all(&json);
    }
}
