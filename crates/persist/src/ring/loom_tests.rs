use super::*;

/// Mistakes that need more preemptions take hours to find, and are few (Musuvathi and Qadeer, 2007).
const PREEMPTIONS_MAX: usize = 3;

/// Two segments.
const SIZES: RingSizes = RingSizes { segment_bytes: 2, segments_max: 2, spare_max: 1 };

/// Two writers and a reader, on a ring that is too small for both and on one where they meet in a segment. Every
/// interleaving yields one of the two orders, whole, and no byte is read while it is written.
#[test]
fn published_records_are_complete() {
    [SIZES, RingSizes { segment_bytes: 8, segments_max: 1, spare_max: 0 }].map(write_and_read);
}

fn write_and_read(sizes: RingSizes) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(move || {
        let (ring, mut reader) = Ring::new(sizes, 2, 0);
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let ring = Arc::clone(&ring);
                loom::thread::spawn(move || ring.append(writer, &[writer as u8 + 1; 3]))
            })
            .collect();
        let mut all = Vec::new();
        let first = reader.published();
        reader.read(0, first, |piece| all.extend_from_slice(piece));
        assert!(matches!(first, 0 | 3 | 6), "half a record was published");
        reader.give_up(first);
        writers.into_iter().for_each(|writer| _ = writer.join().unwrap());
        assert_eq!(reader.published(), 6);
        reader.read(first, 6, |piece| all.extend_from_slice(piece));
        assert!(all == [1, 1, 1, 2, 2, 2] || all == [2, 2, 2, 1, 1, 1], "{all:?}");
    });
}

/// A writer that comes round while the reader gives back the segments behind it: no segment is given back with
/// something in it, and none has two owners.
#[test]
fn segments_are_given_back_behind_the_reader_only() {
    [0, 1].map(give_segments_back);
}

fn give_segments_back(spare_max: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(move || {
        let (ring, mut reader) = Ring::new(RingSizes { spare_max, ..SIZES }, 1, 0);
        ring.append(0, &[1; 3]);
        let writer = {
            let ring = Arc::clone(&ring);
            loom::thread::spawn(move || [2, 3].map(|byte| ring.append(0, &[byte; 2])))
        };
        let (mut all, mut at) = (Vec::new(), 0);
        for _ in 0..2 {
            let to = reader.published();
            reader.read(at, to, |piece| all.extend_from_slice(piece));
            reader.give_up(to);
            at = to;
        }
        assert_eq!(writer.join().unwrap(), [5, 7]);
        let to = reader.published();
        reader.read(at, to, |piece| all.extend_from_slice(piece));
        assert_eq!(all, [1, 1, 1, 2, 2, 3, 3]);
    });
}
