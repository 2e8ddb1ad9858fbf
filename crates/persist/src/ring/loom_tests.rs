use super::*;

/// What takes more preemptions takes hours to try, and few mistakes need them (Musuvathi and Qadeer, 2007).
const PREEMPTIONS_MAX: usize = 3;

/// Two segments.
const SIZES: RingSizes = RingSizes { segment_bytes: 2, segments_max: 2, spare_max: 1 };

/// Two writers and a reader on a ring that is too small for both: every interleaving yields one of
/// the two orders, whole, and no byte is read while it is written.
#[test]
fn published_records_are_complete() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(|| {
        let (ring, mut reader) = Ring::new(SIZES, 2, 0);
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
