use super::*;
use proptest::prelude::*;

/// A ring of segments of four bytes.
fn ring(capacity: usize, participants: usize, start: u64) -> (Arc<Ring>, RingReader) {
    let sizes = RingSizes { segment_bytes: 4, segments_max: capacity / 4, spare_max: 2 };
    Ring::new(sizes, participants, start)
}

fn bytes(reader: &mut RingReader, from: u64, to: u64) -> Vec<u8> {
    let mut all = Vec::new();
    reader.read(from, to, |piece| all.extend_from_slice(piece));
    all
}

#[test]
fn readers_give_up_only_what_no_other_holds() {
    let (ring, mut first) = ring(64, 1, 0);
    let mut second = first.second();
    ring.append(0, b"abcd");
    assert!(!first.is_shared());
    assert_eq!((first.published(), second.resume()), (4, 4));
    assert!(first.is_shared() && second.is_shared());
    ring.append(0, b"efgh");
    ring.append(0, &[b'x'; 80]);
    ring.append(0, b"end");
    let end = first.published();
    assert_eq!(bytes(&mut first, 0, 4), b"abcd");
    first.give_up(end);
    assert_eq!(ring.used_bytes(), 0, "the second reader holds up nobody");
    assert_eq!(second.published(), end);
    assert_eq!(bytes(&mut second, 4, 8), b"efgh");
    assert_eq!(bytes(&mut second, end - 4, end), b"xend");
    second.give_up(8);
    first.park();
    ring.append(0, b"more");
    assert_eq!(ring.used_bytes(), 0);
    assert_eq!(first.resume(), end + 4, "what was appended meanwhile is not for it");
    second.published();
    assert_eq!(bytes(&mut second, end, end + 4), b"more");
    second.park();
    first.published();
    first.give_up(end + 4);
    assert!(ring.aside().records.is_empty());
    first.restart(7);
    assert_eq!(ring.append(0, b"a"), 8);
}

#[test]
fn records_come_out_in_order_whatever_their_size() {
    let (ring, mut reader) = ring(16, 1, 1000);
    let mut all = Vec::new();
    for length in [3, 5, 40, 1, 16, 17, 0, 7] {
        let record: Vec<u8> = (0..length).map(|at| (all.len() + at) as u8).collect();
        all.extend_from_slice(&record);
        assert_eq!(ring.append(0, &record), 1000 + all.len() as u64);
    }
    let end = 1000 + all.len() as u64;
    assert_eq!(reader.published(), end);
    assert!(!ring.has_room());
    for from in 0..all.len() {
        for to in from..=all.len() {
            let (start, stop) = (1000 + from as u64, 1000 + to as u64);
            assert_eq!(bytes(&mut reader, start, stop), all[from..to]);
            let stands = reader.slices(start, stop).map(|slices| slices.concat());
            assert_eq!(stands, (to < 9).then(|| all[from..to].to_vec()), "the third record is aside");
        }
    }
    reader.give_up(1010);
    assert_eq!(bytes(&mut reader, 1010, end), all[10..]);
    reader.give_up(end);
    assert!(ring.has_room() && ring.aside().records.is_empty());
    ring.append(0, b"next");
    assert!(ring.aside().records.is_empty(), "there is room again");
    assert_eq!(bytes(&mut reader, end, end + 4), b"next");
    assert_eq!(reader.slices(end, end + 4).unwrap().concat(), b"next");
}

#[test]
fn records_that_share_their_bytes_take_no_room() {
    let (ring, mut reader) = ring(64, 1, 1000);
    ring.set_room(20);
    let text: Arc<Vec<u8>> = Arc::new((0..100).collect());
    let parts = || {
        vec![b"head".to_vec().into(), Arc::clone(&text).into(), Vec::new().into(), b"tail".to_vec().into()]
    };
    assert_eq!(ring.append(0, b"before"), 1006);
    assert_eq!(ring.append_shared(0, parts()), 1114);
    assert!(ring.has_room());
    assert_eq!(ring.append(0, b"behind the record"), 1131);
    assert!(!ring.has_room(), "23 bytes are the ring's own");
    let all = [b"beforehead", &text[..], b"tailbehind the record"].concat();
    assert_eq!(reader.published(), 1131);
    for from in 0..all.len() {
        for to in from..=all.len() {
            assert_eq!(bytes(&mut reader, 1000 + from as u64, 1000 + to as u64), all[from..to]);
        }
    }
    reader.give_up(1006);
    assert!(ring.has_room());
    assert_eq!(Arc::strong_count(&text), 2);
    reader.give_up(1114);
    assert_eq!((Arc::strong_count(&text), ring.used_bytes()), (1, 17));
    ring.set_room(16);
    assert!(!ring.has_room());
    reader.give_up(1131);
    ring.append_shared(0, parts());
    reader.published();
    reader.restart(0);
    assert_eq!((Arc::strong_count(&text), ring.has_room()), (1, true));
    ring.append(0, &[0; 17]);
    assert!(!ring.has_room(), "nothing is left of what was shared");
}

#[test]
fn records_that_share_very_many_bytes_take_room() {
    let (ring, mut reader) = ring(64, 1, 0);
    ring.set_room(20);
    let text: Arc<Vec<u8>> = Arc::new(vec![b'x'; SHARED_BYTES_MAX as usize / 2]);
    let append = || ring.append_shared(0, vec![Arc::clone(&text).into()]);
    let (_, end) = (append(), append());
    assert!(ring.has_room());
    append();
    assert!(!ring.has_room(), "the values may have been replaced, and these bytes be nobody else's");
    reader.published();
    reader.give_up(end / 2);
    assert!(ring.has_room());
}

#[test]
fn ring_publishes_nothing_behind_the_boundary_until_it_is_lifted() {
    let (ring, mut reader) = ring(64, 1, 0);
    ring.append(0, b"before");
    assert_eq!(ring.set_boundary(), 6);
    assert_eq!(ring.append(0, b"behind"), 12);
    assert_eq!((reader.published(), ring.tail(), ring.has_boundary()), (6, 12, true));
    assert_eq!(bytes(&mut reader, 0, 6), b"before");
    reader.give_up(6);
    ring.lift_boundary();
    assert!(!ring.has_boundary());
    assert_eq!(reader.published(), 12);
    assert_eq!(bytes(&mut reader, 6, 12), b"behind");
}

#[test]
fn published_records_stay_so_when_a_worker_announces_an_old_tail() {
    let (ring, mut reader) = ring(64, 2, 0);
    ring.append(0, b"before");
    assert_eq!(reader.published(), 6);
    // The other worker read the tail before that, and was interrupted.
    ring.appending[1].0.store(0, Release);
    ring.append(0, b"behind");
    assert_eq!(reader.published(), 6, "it may be that the worker has its place there");
    assert_eq!(bytes(&mut reader, 0, 6), b"before");
    reader.give_up(6);
    ring.appending[1].0.store(IDLE, Release);
    assert_eq!(reader.published(), 12);
}

proptest! {
    /// Against a plain vector: appends of any size, with the reader anywhere behind.
    #[test]
    fn reader_that_lags_misses_nothing(steps in prop::collection::vec((0..50_usize, 0..80_u64), 1..200)) {
        let (ring, mut reader) = ring(32, 2, 0);
        let (mut all, mut head) = (Vec::new(), 0);
        for (step, (length, consumed)) in steps.into_iter().enumerate() {
            let record: Vec<u8> = (0..length).map(|at| (step * 31 + at) as u8).collect();
            ring.append(step % 2, &record);
            all.extend_from_slice(&record);
            let end = reader.published();
            prop_assert_eq!(end, all.len() as u64);
            prop_assert_eq!(bytes(&mut reader, head, end), &all[head as usize..]);
            head = (head + consumed).min(end);
            reader.give_up(head);
        }
    }
}

/// Threads that write as fast as they can: each one's records arrive whole and in its order.
#[test]
fn writers_do_not_mix_their_records() {
    const WRITERS: usize = 4;
    const RECORDS: u32 = 20_000;
    let sizes = RingSizes { segment_bytes: 256, segments_max: 16, spare_max: 2 };
    let (ring, mut reader) = Ring::new(sizes, WRITERS, 0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let ring = Arc::clone(&ring);
            scope.spawn(move || {
                for number in 0..RECORDS {
                    let mut record = vec![writer as u8; 8 + (number % 13) as usize];
                    record[1..5].copy_from_slice(&number.to_le_bytes());
                    record[5] = record.len() as u8;
                    ring.append(writer, &record);
                }
            });
        }
        let (mut next, mut at, mut pending) = ([0; WRITERS], 0, Vec::new());
        while next != [RECORDS; WRITERS] {
            let to = reader.published();
            reader.read(at, to, |piece| pending.extend_from_slice(piece));
            reader.give_up(to);
            at = to;
            let mut rest = &pending[..];
            while let Some((record, behind)) =
                rest.get(5).and_then(|length| rest.split_at_checked(usize::from(*length)))
            {
                let writer = usize::from(record[0]);
                assert_eq!(u32::from_le_bytes(record[1..5].try_into().unwrap()), next[writer]);
                assert!(record[6..].iter().all(|byte| usize::from(*byte) == writer));
                next[writer] += 1;
                rest = behind;
            }
            pending = rest.to_vec();
        }
    });
}

/// Memory is taken as the log is ahead of its reader, and given back but for spare segments.
#[test]
fn memory_comes_and_goes_with_what_is_kept() {
    let (ring, mut reader) = ring(32, 1, 0);
    assert_eq!(ring.memory.segments(), (0, 0));
    ring.append(0, b"abcde");
    assert_eq!(ring.memory.segments(), (2, 0));
    ring.append(0, &[7; 24]);
    assert_eq!((ring.memory.segments(), reader.published()), ((8, 0), 29));
    reader.give_up(3);
    assert_eq!(ring.memory.segments(), (8, 0), "the first one is still in use");
    reader.give_up(4);
    assert_eq!(ring.memory.segments(), (7, 1));
    reader.give_up(29);
    assert_eq!(ring.memory.segments(), (1, 2), "two are kept, the others are gone");
    ring.append(0, &[8; 11]);
    assert_eq!(ring.memory.segments(), (3, 0), "what is spare comes first");
    assert_eq!((reader.published(), bytes(&mut reader, 29, 40)), (40, vec![8; 11]));
    reader.restart(1000);
    assert_eq!(ring.memory.segments(), (0, 2));
    assert_eq!(ring.memory_bytes(), 8);
    ring.trim(0);
    assert_eq!(ring.memory.segments(), (0, 2), "they were in use since the last call");
    ring.append(0, &[9; 3]);
    ring.trim(1);
    assert_eq!(ring.memory.segments(), (1, 1), "one was, and one is to be kept");
    ring.trim(1);
    assert_eq!(ring.memory.segments(), (1, 1));
    ring.trim(0);
    assert_eq!(ring.memory.segments(), (1, 0));
}

#[test]
fn ring_has_as_much_room_as_it_says() {
    let (ring, mut reader) = ring(32, 1, 0);
    ring.append(0, &[1; 24]);
    assert!(ring.has_room());
    ring.append(0, &[1]);
    assert!(!ring.has_room(), "three quarters are in use");
    ring.set_room(30);
    assert!(ring.has_room());
    ring.set_room(10);
    assert_eq!((ring.has_room(), reader.published()), (false, 25));
    reader.give_up(15);
    assert!(ring.has_room());
}
