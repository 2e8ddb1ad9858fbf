//! Batches, files and room, on a disk that fails on request.

use super::super::reader::Reader;
use super::*;
use crate::ring::{Ring, RingSizes};
use crate::storage::faulty::{Faults, FaultyDisk};
use std::sync::atomic::Ordering::SeqCst;

/// A kilobyte; most batches stand in several segments.
const SIZES: RingSizes = RingSizes { segment_bytes: 64, segments_max: 16, spare_max: 2 };

struct Bench {
    writer: Writer,
    ring: Arc<Ring>,
    faults: Arc<Faults>,
    directory: tempfile::TempDir,
}

fn adopt(writer: &mut Writer, since: u64, put: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
    let mut adoption = writer.begin_adopting(since, BaseFormat::Rdb)?;
    adoption.put_in_place(put)?;
    writer.end_adopting(adoption);
    Ok(())
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let faults = Faults::none();
        let options = WriterOptions {
            directory: directory.path().join("log"),
            filename: "a.aof".to_owned(),
            retained_bytes_max: 0,
        };
        let (ring, reader) = Ring::new(SIZES, 1, 100);
        let storage = Arc::new(FaultyDisk(Arc::clone(&faults)));
        let writer = Writer::open(storage, options, Manifest::default(), None, reader).unwrap();
        Self { writer, ring, faults, directory }
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join("log").join(name)).unwrap()
    }
}

/// The log without its checks.
fn records(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn writer_puts_no_check_inside_a_large_record() {
    // Ten megabytes were once cut into batches of four, and the check of the first stood in a record; and
    // more than half of the largest reservation was too much.
    let mut bench = Bench::new();
    let long = "l".repeat(RESERVED_BYTES_MAX as usize / 2 + 1);
    for record in ["short,", &long, "short,", &long] {
        bench.ring.append(0, record.as_bytes());
    }
    assert!(bench.writer.write(None).unwrap());
    assert!(!bench.writer.write(None).unwrap());
    let text = bench.text("a.aof.1.incr.aof");
    let (records, check) = text.split_at(text.find('#').unwrap());
    assert!(records == format!("short,{long}short,{long}"));
    let sum = {
        let mut sum = Checksum::default();
        sum.add(records.as_bytes());
        sum
    };
    let expected = Check { lsn: 100 + records.len() as u64, length: records.len() as u64 };
    assert_eq!(Check::parse(check.strip_suffix("\r\n").unwrap().as_bytes(), sum), Some((expected, true)));
}

#[test]
fn batches_stand_in_the_file_with_their_checks() {
    let mut bench = Bench::new();
    assert_eq!(bench.text("a.aof.manifest"), "file a.aof.1.incr.aof seq 1 type i\n");
    assert!(!bench.writer.write(None).unwrap(), "nothing to write");
    bench.ring.append(0, b"one\n");
    bench.ring.append(0, b"two\n");
    assert!(bench.writer.write(None).unwrap());
    bench.ring.append(0, b"three\n");
    assert!(bench.writer.write(Some(7)).unwrap());
    bench.ring.append(0, b"four\n");
    assert!(bench.writer.write(Some(7)).unwrap());
    let text = bench.text("a.aof.1.incr.aof");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["one", "two"]);
    assert!(lines[2].starts_with("#CRC32C:") && lines[2].ends_with(" LSN:108 LEN:8"));
    assert_eq!(lines[3..5], ["#TS:7", "three"]);
    assert!(lines[5].ends_with(" LSN:114 LEN:13"));
    assert_eq!(lines[6], "four", "one time stamp a second");
    assert_eq!(bench.writer.log_bytes(), text.len() as u64);
    assert_eq!((bench.writer.written(), bench.writer.synced()), (119, 100));
    bench.writer.sync().unwrap();
    assert_eq!((bench.writer.synced(), bench.ring.used_bytes()), (119, 0));
}

#[test]
fn full_disk_leaves_whole_batches_and_repeats_nothing() {
    for room in 0..60 {
        let mut bench = Bench::new();
        bench.ring.append(0, b"first\n");
        bench.writer.write(None).unwrap();
        bench.faults.bytes.store(room, SeqCst);
        bench.ring.append(0, b"second\n");
        let result = bench.writer.write(None);
        if let Err(error) = result {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert_eq!(bench.writer.written(), 106);
            assert!(bench.writer.write(None).is_err(), "the disk is still full");
            bench.faults.bytes.store(i64::MAX, SeqCst);
            assert!(bench.writer.write(None).unwrap());
        }
        bench.writer.sync().unwrap();
        assert_eq!(records(&bench.text("a.aof.1.incr.aof")), "firstsecond");
        assert_eq!(bench.writer.synced(), 113);
    }
}

#[test]
fn writer_repeats_what_a_failed_sync_may_have_lost() {
    let mut bench = Bench::new();
    bench.ring.append(0, b"first\n");
    bench.writer.write(None).unwrap();
    bench.writer.sync().unwrap();
    bench.ring.append(0, b"second\n");
    bench.writer.write(None).unwrap();
    bench.ring.append(0, b"third\n");
    bench.writer.write(None).unwrap();
    bench.faults.syncs.store(0, SeqCst);
    assert_eq!(bench.writer.sync().unwrap_err().raw_os_error(), Some(5));
    assert_eq!((bench.writer.written(), bench.writer.synced()), (106, 106));
    bench.ring.append(0, b"fourth\n");
    bench.writer.write(None).unwrap();
    bench.writer.sync().unwrap();
    assert_eq!(records(&bench.text("a.aof.1.incr.aof")), "firstsecondthirdfourth");
    assert_eq!(bench.writer.synced(), bench.ring.tail());
}

/// The content of a file that ends with room.
fn before_room(text: &str) -> &str {
    let line = format!("{}\n", "#".repeat(room::LINE_BYTES as usize - 1));
    let lines = text.trim_end_matches(&line);
    assert!((text.len() - lines.len()) as u64 >= room::BYTES_MIN - room::LINE_BYTES);
    let content = lines.trim_end_matches(['#', '\n']).len();
    // The end of its own last line.
    let content = &text[..content + 1];
    assert!(content.ends_with("\r\n"));
    assert_eq!(text.as_bytes()[content.len()..], room::bytes(content.len() as u64, text.len() as u64));
    content
}

/// Without padding and checks, whose sums are others with padding.
fn plain(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| *line != "#\r\n" && !line.starts_with("#CRC32C:")).collect()
}

#[test]
fn log_written_into_room_equals_one_written_without() {
    let (mut bench, mut other) = (Bench::new(), Bench::new());
    bench.writer.keep_room(true).unwrap();
    for number in 0..3000 {
        for bench in [&mut bench, &mut other] {
            let mut record = Vec::new();
            dunlin_engine::write_command(&mut record, &[b"SET", b"k", &vec![b'v'; number % 500]]);
            bench.ring.append(0, &record);
            assert!(bench.writer.write(Some(number as u64)).unwrap());
            bench.writer.sync().unwrap();
        }
        if number % 100 == 0 {
            let (text, other) = (bench.text("a.aof.1.incr.aof"), other.text("a.aof.1.incr.aof"));
            assert_eq!(plain(before_room(&text)), plain(&other));
        }
    }
    let (text, other) = (bench.text("a.aof.1.incr.aof"), other.text("a.aof.1.incr.aof"));
    assert_eq!(bench.writer.log_bytes(), before_room(&text).len() as u64);
    assert!(text.contains("\n#\r\n#CRC32C:") && !other.contains("\n#\r\n"), "some batches need padding");
    let mut reader = Reader::new(text.as_bytes(), 0);
    while reader.read_command().unwrap().is_some() {}
    assert_eq!((reader.progress().batches, reader.progress().commands), (3000, 3000));
    bench.writer.keep_room(false).unwrap();
    assert_eq!(bench.text("a.aof.1.incr.aof"), before_room(&text));
    // Room comes back, is cut off where the next file begins, and that has none before it has a batch.
    bench.writer.keep_room(true).unwrap();
    let old = bench.text("a.aof.1.incr.aof");
    bench.ring.append(0, b"last\n");
    bench.writer.rotate(0).unwrap().end_reserving();
    assert!(bench.text("a.aof.1.incr.aof").starts_with(&(old + "last\n#CRC32C:")));
    assert!(bench.text("a.aof.1.incr.aof").ends_with("\r\n"));
    assert_eq!(plain(&bench.text("a.aof.2.incr.aof")), "");
    bench.ring.append(0, b"next\n");
    bench.writer.write(None).unwrap();
    assert_eq!(records(before_room(&bench.text("a.aof.2.incr.aof"))), "next");
    drop(bench.writer.close());
    let path = bench.directory.path().join("log/a.aof.2.incr.aof");
    assert!(std::fs::read_to_string(path).unwrap().ends_with("\r\n"));
}

#[test]
fn large_batch_does_without_room() {
    let mut bench = Bench::new();
    bench.writer.keep_room(true).unwrap();
    let large = room::BATCH_BYTES_MAX as usize;
    for bytes in [10, large, large, 10, large, 10] {
        bench.ring.append(0, ("l".repeat(bytes) + "\n").as_bytes());
        bench.writer.write(None).unwrap();
        bench.writer.sync().unwrap();
        let text = bench.text("a.aof.1.incr.aof");
        assert_eq!(text.ends_with("#\n"), bytes == 10);
    }
    for keeps in [false, true] {
        bench.writer.keep_room(keeps).unwrap();
        bench.ring.append(0, b"s\n");
        bench.writer.write(None).unwrap();
        bench.writer.sync().unwrap();
        assert_eq!(bench.text("a.aof.1.incr.aof").ends_with("#\n"), keeps);
    }
    let text = bench.text("a.aof.1.incr.aof");
    assert_eq!(records(before_room(&text)).len(), 3 * large + 32);
}

#[test]
fn room_is_kept_behind_durable_batches_only() {
    let mut bench = Bench::new();
    bench.writer.keep_room(true).unwrap();
    // Whether there is room behind the batch, and whether it is made durable then.
    for (has_room, syncs) in [(true, false), (false, false), (false, true), (true, true), (true, true)] {
        bench.ring.append(0, b"record\n");
        bench.writer.write(None).unwrap();
        assert_eq!(bench.text("a.aof.1.incr.aof").ends_with("#\n"), has_room);
        if syncs {
            bench.writer.sync().unwrap();
        }
    }
}

#[test]
fn full_disk_without_room_is_no_failure_and_a_failed_sync_keeps_room() {
    let mut bench = Bench::new();
    bench.writer.keep_room(true).unwrap();
    bench.faults.bytes.store(1000, SeqCst);
    for _ in 0..3 {
        bench.ring.append(0, b"tight\n");
        bench.writer.write(None).unwrap();
        bench.writer.sync().unwrap();
    }
    assert!(bench.text("a.aof.1.incr.aof").ends_with("\r\n"), "there was none");
    bench.faults.bytes.store(i64::MAX, SeqCst);
    // Enough that it is asked for anew.
    bench.ring.append(0, ("m".repeat(ROOM_BYTES.0 as usize * 2) + "\n").as_bytes());
    bench.writer.write(None).unwrap();
    bench.writer.sync().unwrap();
    let durable = bench.text("a.aof.1.incr.aof");
    before_room(&durable);
    bench.faults.syncs.store(0, SeqCst);
    bench.ring.append(0, b"again\n");
    bench.writer.write(None).unwrap();
    assert!(bench.writer.sync().is_err());
    bench.faults.syncs.store(i64::MAX, SeqCst);
    assert!(bench.writer.write(None).unwrap(), "it is in the ring");
    bench.writer.sync().unwrap();
    let text = bench.text("a.aof.1.incr.aof");
    assert_eq!(records(before_room(&text)), records(before_room(&durable)) + "again");
}

#[test]
fn sync_apart_covers_what_was_written_at_its_begin() {
    let mut bench = Bench::new();
    assert!(bench.writer.begin_sync().unwrap().is_none(), "nothing to make durable");
    bench.ring.append(0, b"first\n");
    bench.writer.write(None).unwrap();
    let sync = bench.writer.begin_sync().unwrap().unwrap();
    let durable_bytes = bench.writer.written.bytes;
    bench.ring.append(0, b"second\n");
    bench.writer.write(None).unwrap();
    bench.writer.end_sync(sync.run()).unwrap();
    assert_eq!((bench.writer.synced(), bench.ring.used_bytes()), (106, 7));
    let uncached_bytes = || bench.faults.uncached.load(SeqCst);
    assert_eq!(uncached_bytes(), durable_bytes);
    let sync = bench.writer.begin_sync().unwrap().unwrap();
    bench.faults.syncs.store(0, SeqCst);
    assert!(bench.writer.end_sync(sync.run()).is_err());
    assert_eq!(uncached_bytes(), durable_bytes, "what is not durable is not forgotten");
    assert!(!bench.writer.is_torn(), "the ring has it all");
    bench.faults.syncs.store(i64::MAX, SeqCst);
    bench.writer.write(None).unwrap();
    bench.writer.sync().unwrap();
    assert_eq!(records(&bench.text("a.aof.1.incr.aof")), "firstsecond");
}

#[test]
fn failed_sync_of_bytes_gone_from_the_ring_needs_a_new_base() {
    let mut bench = Bench::new();
    for record in [b"first\n".as_slice(), b"second\n"] {
        bench.ring.append(0, record);
        bench.writer.write(None).unwrap();
        let sync = bench.writer.begin_sync().unwrap().unwrap();
        bench.writer.trust_system().unwrap();
        assert_eq!(bench.ring.used_bytes(), 0);
        if record == b"second\n" {
            bench.faults.syncs.store(0, SeqCst);
            assert!(bench.writer.end_sync(sync.run()).is_err());
        } else {
            bench.writer.end_sync(sync.run()).unwrap();
        }
    }
    assert!(bench.writer.is_torn());
    bench.faults.syncs.store(i64::MAX, SeqCst);
    bench.ring.append(0, b"third\n");
    bench.writer.write(None).unwrap();
    bench.writer.sync().unwrap();
    assert_eq!(bench.writer.synced(), 106, "the second record may be gone");
    let put = |name: &str| std::fs::write(bench.directory.path().join("log").join(name), "base");
    adopt(&mut bench.writer, 1, put).unwrap();
    assert!(bench.writer.is_torn(), "the base was cut before");
    bench.writer.rotate(0).unwrap().end_reserving();
    adopt(&mut bench.writer, 2, put).unwrap();
    assert!(!bench.writer.is_torn());
    assert_eq!(bench.writer.synced(), bench.ring.tail());
}

#[test]
fn writer_notices_that_its_file_is_gone() {
    let mut bench = Bench::new();
    bench.ring.append(0, b"first\n");
    bench.writer.write(None).unwrap();
    std::fs::remove_dir_all(bench.writer.directory()).unwrap();
    assert_eq!(bench.writer.sync().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(bench.writer.write(None).is_err());
    assert_eq!(bench.writer.synced(), 100);
}

/// Appends to a file of the log behind the writer's back.
fn intrude(bench: &Bench, name: &str, text: &[u8]) {
    let path = bench.directory.path().join("log").join(name);
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    io::Write::write_all(&mut file, text).unwrap();
}

#[test]
fn writer_stops_where_somebody_else_has_written() {
    for keeps_room in [false, true] {
        let mut bench = Bench::new();
        bench.writer.keep_room(keeps_room).unwrap();
        bench.ring.append(0, b"first\n");
        bench.writer.write(None).unwrap();
        bench.writer.sync().unwrap();
        intrude(&bench, "a.aof.1.incr.aof", b"theirs\n");
        let before = bench.text("a.aof.1.incr.aof");
        bench.ring.append(0, b"second\n");
        for _ in 0..2 {
            let error = bench.writer.write(None).unwrap_err();
            assert!(is_foreign_change(&error), "{error}");
            assert_eq!(error.to_string(), "another process has changed a.aof.1.incr.aof");
        }
        assert!(is_foreign_change(&bench.writer.rotate(0).unwrap_err()));
        assert!(keeps_room || bench.writer.keep_room(false).is_ok());
        drop(bench.writer.close());
        let text = std::fs::read_to_string(bench.directory.path().join("log/a.aof.1.incr.aof")).unwrap();
        assert_eq!(text, before, "nothing of theirs is destroyed");
    }
}

#[test]
fn writer_acknowledges_nothing_behind_what_somebody_else_has_written() {
    let mut bench = Bench::new();
    bench.ring.append(0, b"first\n");
    bench.writer.write(None).unwrap();
    intrude(&bench, "a.aof.1.incr.aof", b"theirs\n");
    assert!(is_foreign_change(&bench.writer.sync().unwrap_err()));
    assert_eq!(bench.writer.synced(), 100);
    // Nor does another attempt cut theirs off.
    assert!(is_foreign_change(&bench.writer.write(None).unwrap_err()));
    assert!(bench.text("a.aof.1.incr.aof").ends_with("theirs\n"));
}

#[test]
fn writer_stops_where_its_file_was_cut() {
    let mut bench = Bench::new();
    bench.ring.append(0, b"first\n");
    bench.writer.write(None).unwrap();
    let path = bench.directory.path().join("log/a.aof.1.incr.aof");
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(3).unwrap();
    bench.ring.append(0, b"second\n");
    assert!(is_foreign_change(&bench.writer.write(None).unwrap_err()));
}

#[test]
fn writer_puts_no_manifest_in_the_place_of_somebody_elses() {
    let mut bench = Bench::new();
    let path = bench.directory.path().join("log/a.aof.manifest");
    let theirs = "file theirs.1.incr.aof seq 1 type i\n";
    let put = |name: &str| std::fs::write(bench.directory.path().join("log").join(name), "base");
    bench.writer.rotate(0).unwrap().end_reserving();
    std::fs::write(&path, theirs).unwrap();
    assert!(is_foreign_change(&adopt(&mut bench.writer, 2, put).unwrap_err()));
    assert!(is_foreign_change(&bench.writer.rotate(0).unwrap_err()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), theirs);
    bench.ring.append(0, b"lost\n");
    assert!(is_foreign_change(&bench.writer.write(None).unwrap_err()), "no manifest names what is written");
}

#[test]
fn writer_does_not_go_on_with_a_file_that_has_grown_since_it_was_read() {
    let mut bench = Bench::new();
    bench.ring.append(0, b"first\n");
    bench.writer.write(None).unwrap();
    let (options, manifest) = (bench.writer.options.clone(), bench.writer.manifest().clone());
    let bytes = bench.writer.log_bytes();
    let mut ring = bench.writer.close();
    for (bytes, is_good) in [(bytes - 1, false), (bytes, true)] {
        let resume = Some(Resume { bytes, unproven: None });
        let storage = Arc::new(crate::storage::Disk);
        ring = match Writer::open(storage, options.clone(), manifest.clone(), resume, ring) {
            Ok(writer) => {
                assert!(is_good);
                writer.close()
            }
            Err((ring, error)) => {
                assert!(!is_good && is_foreign_change(&error), "{error}");
                ring
            }
        };
    }
}

#[test]
fn adoption_keeps_the_files_of_another_log() {
    let bench = Bench::new();
    let directory = bench.writer.directory().to_owned();
    let before = bench.text("a.aof.manifest");
    let options =
        WriterOptions { directory: directory.clone(), filename: "a.aof".to_owned(), retained_bytes_max: 0 };
    let mut manifest = bench.writer.manifest().clone();
    manifest.set_aside();
    let (_ring, reader) = Ring::new(SIZES, 1, 100);
    let mut writer =
        Writer::begin_in_background(Arc::new(crate::storage::Disk), options, manifest, reader).unwrap();
    let mut adoption = writer.begin_adopting(writer.increment(), BaseFormat::Rdb).unwrap();
    adoption.put_in_place(|name| std::fs::write(directory.join(name), "base")).unwrap();
    assert_eq!(adoption.keep_others().unwrap(), Some(directory.join("kept-1")));
    assert!(adoption.remove_history().unwrap().is_empty());
    writer.end_adopting(adoption);
    assert_eq!(
        bench.text("a.aof.manifest"),
        "file a.aof.2.base.rdb seq 2 type b\nfile a.aof.2.incr.aof seq 2 type i\n"
    );
    assert_eq!(bench.text("kept-1/a.aof.manifest"), before);
    assert_eq!(bench.text("kept-1/a.aof.1.incr.aof"), "");
    assert!(!directory.join("a.aof.1.incr.aof").exists());
}

#[test]
fn log_goes_on_in_the_next_file() {
    let mut bench = Bench::new();
    bench.ring.append(0, b"first\n");
    bench.writer.rotate(0).unwrap().end_reserving();
    bench.ring.append(0, b"second\n");
    bench.writer.write(None).unwrap();
    assert_eq!(records(&bench.text("a.aof.1.incr.aof")), "first");
    assert_eq!(records(&bench.text("a.aof.2.incr.aof")), "second");
    assert_eq!(bench.writer.manifest().increments.len(), 2);
    bench.faults.bytes.store(10, SeqCst);
    assert!(bench.writer.rotate(0).is_err(), "no room for a manifest");
    assert_eq!(bench.writer.manifest().increments.len(), 2);
    bench.faults.bytes.store(i64::MAX, SeqCst);
    bench.ring.append(0, b"third\n");
    bench.writer.write(None).unwrap();
    assert_eq!(records(&bench.text("a.aof.2.incr.aof")), "secondthird");
}

/// A server that ended right after a rewrite once took its log for empty, and its replica's place in the stream for the
/// beginning.
#[test]
fn file_without_records_names_its_offset_and_database() {
    let mut bench = Bench::new();
    bench.ring.append(0, b"first\n");
    bench.writer.rotate(0).unwrap().end_reserving();
    bench.writer.rotate(3).unwrap().end_reserving();
    let read = |name: &str| {
        let text = bench.text(name);
        let mut reader = Reader::new(text.as_bytes(), 0).going_on_from(Some(106));
        let mut commands = Vec::new();
        while let Some(words) = reader.read_command().unwrap() {
            commands.push(words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
        }
        (reader.progress().log_end(None), commands)
    };
    assert_eq!(read("a.aof.2.incr.aof"), (Some(106), vec![]));
    assert_eq!(read("a.aof.3.incr.aof"), (Some(106), vec![vec![b"SELECT".to_vec(), b"3".to_vec()]]));
    let bytes = ["a.aof.1.incr.aof", "a.aof.2.incr.aof", "a.aof.3.incr.aof"]
        .map(|name| bench.text(name).len() as u64);
    assert_eq!(bench.writer.log_bytes(), bytes.iter().sum::<u64>());
    assert_eq!((bench.writer.written(), bench.writer.synced(), bench.writer.unsynced_bytes()), (106, 106, 0));
    bench.faults.syncs.store(0, SeqCst);
    assert!(bench.writer.rotate(0).is_err(), "an opening that may not last begins no file");
    bench.faults.syncs.store(i64::MAX, SeqCst);
    assert_eq!(bench.writer.increment(), 3);
    bench.ring.append(0, b"second\n");
    bench.writer.write(None).unwrap();
    assert!(bench.text("a.aof.3.incr.aof").contains("SELECT\r\n$1\r\n3\r\n#CRC32C:"));
    assert!(bench.text("a.aof.3.incr.aof").ends_with(" LSN:113 LEN:7\r\n"));
}

/// A replica that was promoted while its disk was full once wrote its own changes into a log that was said to be its primary's.
#[test]
fn writer_writes_nothing_before_the_manifest_names_the_stream() {
    let mut bench = Bench::new();
    let directory = bench.writer.directory().to_owned();
    let stream = |digit: &str| Some(StreamId { id: digit.repeat(40), base: 7, second: None });
    let says = |text: &str, digit: &str| text.starts_with(&format!("# replication {} 7\n", digit.repeat(40)));
    bench.writer.set_stream(stream("a")).unwrap();
    bench.ring.append(0, b"first\n");
    bench.writer.write(None).unwrap();
    // Room enough for a batch, and not for a manifest.
    let too_little = || bench.faults.bytes.store(60, SeqCst);
    too_little();
    assert_eq!(bench.writer.set_stream(stream("b")).unwrap_err().kind(), io::ErrorKind::StorageFull);
    bench.ring.append(0, b"second\n");
    let before = bench.text("a.aof.1.incr.aof");
    for _ in 0..2 {
        too_little();
        assert!(bench.writer.write(None).is_err());
        too_little();
        assert!(bench.writer.rotate(0).is_err());
        too_little();
        assert!(bench.writer.begin_adopting(1, BaseFormat::Rdb).is_err());
    }
    assert_eq!(bench.text("a.aof.1.incr.aof"), before);
    assert!(says(&bench.text("a.aof.manifest"), "a"));
    bench.faults.bytes.store(i64::MAX, SeqCst);
    assert!(bench.writer.write(None).unwrap());
    assert!(says(&bench.text("a.aof.manifest"), "b"));
    assert_eq!(records(&bench.text("a.aof.1.incr.aof")), "firstsecond");
    // A stream that is set twice meanwhile, and a file or a base that comes next.
    for digit in ["c", "d"] {
        too_little();
        assert!(bench.writer.set_stream(stream(digit)).is_err());
    }
    bench.faults.bytes.store(i64::MAX, SeqCst);
    bench.writer.rotate(0).unwrap().end_reserving();
    assert!(says(&bench.text("a.aof.manifest"), "d"));
    too_little();
    assert!(bench.writer.set_stream(stream("e")).is_err());
    bench.faults.bytes.store(i64::MAX, SeqCst);
    let since = bench.writer.increment();
    adopt(&mut bench.writer, since, |name| std::fs::write(directory.join(name), "base")).unwrap();
    assert!(says(&bench.text("a.aof.manifest"), "e"));
}

#[test]
fn log_turned_on_begins_with_the_offset_of_its_cut() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::none();
    let storage = Arc::new(FaultyDisk(Arc::clone(&faults)));
    let options = WriterOptions {
        directory: directory.path().to_owned(),
        filename: "a.aof".to_owned(),
        retained_bytes_max: 0,
    };
    let (ring, reader) = Ring::new(SIZES, 1, 100);
    let mut writer = Writer::begin_in_background(storage, options, Manifest::default(), reader).unwrap();
    ring.append(0, b"in the base\n");
    faults.bytes.store(10, SeqCst);
    assert!(writer.begin_at(112, 3).is_err());
    faults.bytes.store(i64::MAX, SeqCst);
    drop(writer.close());
    let text = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let (ring, reader) = Ring::new(SIZES, 1, 100);
    let options = WriterOptions {
        directory: directory.path().to_owned(),
        filename: "b.aof".to_owned(),
        retained_bytes_max: 0,
    };
    let mut writer =
        Writer::begin_in_background(Arc::new(crate::storage::Disk), options, Manifest::default(), reader)
            .unwrap();
    ring.append(0, b"in the base\n");
    writer.begin_at(112, 3).unwrap();
    assert!(text("b.aof.1.incr.aof").contains(" LSN:112 LEN:"));
    ring.append(0, b"behind it\n");
    writer.write(None).unwrap();
    assert!(text("b.aof.1.incr.aof").ends_with(" LSN:122 LEN:10\r\n"));
    assert!(!text("b.aof.1.incr.aof").contains("in the base"));
}

#[test]
fn base_replaces_what_precedes_its_increment() {
    let mut bench = Bench::new();
    let directory = bench.writer.directory().to_owned();
    bench.ring.append(0, b"first\n");
    assert_eq!(bench.ring.set_boundary(), 106);
    bench.ring.append(0, b"second\n");
    bench.writer.rotate(0).unwrap().end_reserving();
    bench.ring.lift_boundary();
    bench.writer.write(None).unwrap();
    assert_eq!(records(&bench.text("a.aof.1.incr.aof")), "first", "what is behind the cut is not here");
    assert_eq!(records(&bench.text("a.aof.2.incr.aof")), "second");
    let put = |name: &str| std::fs::write(directory.join(name), "base");
    bench.faults.bytes.store(10, SeqCst);
    assert!(adopt(&mut bench.writer, 2, put).is_err(), "no room for a manifest");
    assert_eq!(bench.writer.manifest().base, None);
    bench.faults.bytes.store(i64::MAX, SeqCst);
    let since = bench.writer.increment();
    adopt(&mut bench.writer, since, put).unwrap();
    assert_eq!(
        bench.text("a.aof.manifest"),
        "file a.aof.1.base.rdb seq 1 type b\nfile a.aof.1.incr.aof seq 1 type h\nfile a.aof.2.incr.aof seq 2 type i\n"
    );
    let newest = bench.text("a.aof.2.incr.aof").len() as u64;
    assert_eq!(bench.writer.log_bytes(), 4 + newest);
    bench.writer.remove_history().unwrap();
    assert!(!directory.join("a.aof.1.incr.aof").exists());
    assert_eq!(bench.writer.manifest().history, []);
}

#[test]
fn log_without_a_base_leaves_the_manifest_alone() {
    let bench = Bench::new();
    let before = bench.text("a.aof.manifest");
    let directory = bench.writer.directory().to_owned();
    let options =
        WriterOptions { directory: directory.clone(), filename: "a.aof".to_owned(), retained_bytes_max: 0 };
    let mut manifest = bench.writer.manifest().clone();
    manifest.supersede();
    let (ring, reader) = Ring::new(SIZES, 1, 100);
    let mut writer =
        Writer::begin_in_background(Arc::new(crate::storage::Disk), options, manifest, reader).unwrap();
    for text in [b"one", b"two"] {
        ring.append(0, text);
        writer.rotate(0).unwrap().end_reserving();
    }
    assert!(writer.is_in_background());
    assert_eq!(bench.text("a.aof.manifest"), before);
    let since = writer.increment();
    adopt(&mut writer, since, |name| std::fs::write(directory.join(name), "base")).unwrap();
    writer.remove_history().unwrap();
    assert_eq!(
        bench.text("a.aof.manifest"),
        "file a.aof.2.base.rdb seq 2 type b\nfile a.aof.4.incr.aof seq 4 type i\n"
    );
    let left = std::fs::read_dir(&directory).unwrap().count();
    assert_eq!(left, 3, "manifest, base, increment");
}
