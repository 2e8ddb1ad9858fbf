//! Messages between the members of a shard, as words of `CLUSTER TELL`.
//!
//! ```text
//! CLUSTER TELL cluster shard sender HEARTBEAT epoch sent_ms history commit rank boot|- copy
//!                                   ECHO      epoch sent_ms boot revision history|- held copy lost
//!                                   STALE     revision record [node count id]…
//! ```
//!
//! Earlier versions put a record into a heartbeat, without marks: it is not believed, and the heartbeat is. Nodes of
//! such versions do not read marks, and follow etcd.
//!
//! Ids are 40 hexadecimal digits, numbers decimal, a record is its JSON. A node takes messages that name its cluster and shard
//! only: the cluster's id stands in etcd and nowhere else, so an ordinary client cannot say it.

use std::str::FromStr;

use dunlin_cluster::{
    ClusterId, NodeId, ShardId,
    lineage::Lineage,
    records::{Mark, Record, ShardRecord},
    shard::{Known, Message},
};

/// A message with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerMessage {
    pub(crate) cluster: ClusterId,
    pub(crate) shard: ShardId,
    pub(crate) from: NodeId,
    pub(crate) message: Message,
}

impl PeerMessage {
    /// Returns the request that delivers it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> = vec![b"CLUSTER".to_vec(), b"TELL".to_vec()];
        let mut add = |word: &dyn ToString| words.push(word.to_string().into_bytes());
        add(&self.cluster);
        add(&self.shard);
        add(&self.from);
        let mut known = None;
        match &self.message {
            Message::Heartbeat { epoch, sent_ms, history, commit, rank, counted } => {
                add(&"HEARTBEAT");
                add(epoch);
                add(sent_ms);
                add(history);
                add(commit);
                add(rank);
                match counted {
                    Some((boot, _)) => add(boot),
                    None => add(&"-"),
                }
                add(&counted.map_or(0, |(_, copy)| copy));
            }
            Message::Echo { epoch, sent_ms, boot, revision, history, held, copy, lost } => {
                add(&"ECHO");
                add(epoch);
                add(sent_ms);
                add(boot);
                add(revision);
                match history {
                    Some(history) => add(history),
                    None => add(&"-"),
                }
                add(held);
                add(copy);
                add(&u8::from(*lost));
            }
            Message::Stale { record, lineage } => {
                add(&"STALE");
                known = Some((record, lineage));
            }
        }
        if let Some((record, lineage)) = known {
            words.push(record.0.to_string().into_bytes());
            words.push(record.1.encode());
            for (node, mark) in lineage.iter() {
                let Mark { count, id, runs } = mark;
                let marks = [node.to_string(), count.to_string(), id.to_string(), runs.to_string()];
                words.extend(marks.map(String::into_bytes));
            }
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        dunlin_replication::request(&words)
    }

    /// Reads the words behind `CLUSTER TELL`; `None` if they make no sense.
    pub(crate) fn decode(words: &[&[u8]]) -> Option<Self> {
        let mut words = words.iter();
        let (cluster, shard, from) = (field(&mut words)?, field(&mut words)?, field(&mut words)?);
        let message = match *words.next()? {
            b"HEARTBEAT" => {
                let heartbeat = Message::Heartbeat {
                    epoch: field(&mut words)?,
                    sent_ms: field(&mut words)?,
                    history: field(&mut words)?,
                    commit: field(&mut words)?,
                    rank: field(&mut words)?,
                    counted: optional(&mut words)?.zip(Some(field(&mut words)?)),
                };
                if words.len() > 0 {
                    known(&mut words)?;
                }
                heartbeat
            }
            b"ECHO" => Message::Echo {
                epoch: field(&mut words)?,
                sent_ms: field(&mut words)?,
                boot: field(&mut words)?,
                revision: field(&mut words)?,
                history: optional(&mut words)?,
                held: field(&mut words)?,
                copy: field(&mut words)?,
                lost: match *words.next()? {
                    b"0" => false,
                    b"1" => true,
                    _ => return None,
                },
            },
            b"STALE" => Message::Stale {
                record: Box::new(known(&mut words)?),
                lineage: Box::new(lineage(&mut words)?),
            },
            _ => return None,
        };
        (words.len() == 0).then_some(Self { cluster, shard, from, message })
    }
}

fn parse<T: FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn field<'a, T: FromStr>(words: &mut impl Iterator<Item = &'a &'a [u8]>) -> Option<T> {
    parse(words.next()?)
}

fn optional<'a, T: FromStr>(words: &mut impl Iterator<Item = &'a &'a [u8]>) -> Option<Option<T>> {
    match *words.next()? {
        b"-" => Some(None),
        word => Some(Some(parse(word)?)),
    }
}

fn known<'a>(words: &mut impl Iterator<Item = &'a &'a [u8]>) -> Option<Known> {
    Some((field(words)?, ShardRecord::decode(words.next()?).ok()?))
}

fn lineage<'a>(words: &mut impl ExactSizeIterator<Item = &'a &'a [u8]>) -> Option<Lineage> {
    let mut lineage = Lineage::default();
    while words.len() > 0 {
        let (node, count, id, runs) = (field(words)?, field(words)?, field(words)?, field(words)?);
        lineage.set(node, Mark { count, id, runs });
    }
    Some(lineage)
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::{
        BootId, HistoryId,
        records::{History, Run, Runs},
    };

    use super::*;

    fn peer_messages() -> Vec<PeerMessage> {
        let id = |number: u8| [number; 20];
        let node = NodeId::from_bytes(id(3));
        let history = HistoryId::from_bytes(id(4));
        let record = ShardRecord {
            epoch: 7,
            primary: node,
            in_sync: [node].into(),
            learners: [].into(),
            history: History { id: history, from: 9, previous: None },
            requested: None,
        };
        let record = Box::new((12, record));
        let runs = Runs::default().begun(Run { id: 9, after: 0 }).begun(Run { id: u64::MAX, after: 2 });
        let marks = [(node, Mark { count: 3, id: u64::MAX, runs })];
        let heartbeat = |counted| Message::Heartbeat {
            epoch: 7,
            sent_ms: u64::MAX,
            history,
            commit: 5,
            rank: 1,
            counted,
        };
        let echo = |history, lost| Message::Echo {
            epoch: 7,
            sent_ms: 8,
            boot: BootId::from_bytes(id(5)),
            revision: 12,
            history,
            held: 6,
            copy: 2,
            lost,
        };
        let messages = [
            heartbeat(None),
            heartbeat(Some((BootId::from_bytes(id(6)), 4))),
            echo(Some(history), false),
            echo(None, true),
            Message::Stale { record: record.clone(), lineage: Box::default() },
            Message::Stale { record, lineage: Box::new(marks.into_iter().collect()) },
        ];
        let peer_message = |message| PeerMessage {
            cluster: ClusterId::from_bytes(id(1)),
            shard: ShardId::from_bytes(id(2)),
            from: node,
            message,
        };
        messages.map(peer_message).into()
    }

    /// The words of an encoded request.
    fn words(encoded: &[u8]) -> Vec<Vec<u8>> {
        let text = String::from_utf8(encoded.to_vec()).unwrap();
        text.split("\r\n").skip(1).skip(1).step_by(2).map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn tell_reads_what_it_writes_and_nothing_else() {
        for peer_message in peer_messages() {
            let encoded = peer_message.encode();
            let words = words(&encoded);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            assert_eq!(words[..2], [b"CLUSTER".as_slice(), b"TELL"]);
            assert_eq!(PeerMessage::decode(&words[2..]), Some(peer_message.clone()));
            for end in 2..words.len() {
                let shorter = PeerMessage::decode(&words[2..end]);
                // Without marks, as earlier versions write it.
                let is_stale = matches!(peer_message.message, Message::Stale { .. });
                assert!(shorter.is_none() || is_stale && end == 8, "{end}");
                let mut wrong = words.clone();
                wrong[end] = b"x y";
                assert_eq!(PeerMessage::decode(&wrong[2..]), None, "{end}");
            }
            let longer = [&words[2..], &[b"1".as_slice()]].concat();
            assert_eq!(PeerMessage::decode(&longer), None);
        }
    }

    #[test]
    fn tell_reads_the_heartbeats_of_earlier_versions() {
        let peer_messages = peer_messages();
        let encoded = peer_messages[1].encode();
        let Message::Stale { record, .. } = &peer_messages[4].message else { panic!("a record") };
        let mut words = words(&encoded);
        words.extend([b"12".to_vec(), record.1.encode()]);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        assert_eq!(
            PeerMessage::decode(&words[2..]),
            Some(peer_messages[1].clone()),
            "the record has no marks"
        );
    }
}
