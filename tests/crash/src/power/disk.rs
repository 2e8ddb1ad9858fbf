//! The possible contents of a disk after a power cut.
//!
//! ```text
//! calls   write a ─ begin sync ─ write b ─ end sync ─ write c ─ ✂
//!         durable                open                 open
//! ```
//!
//! Calls that were done before a sync began that has ended are durable. The state of later ones is open:
//! - Bytes: none of them are there, or all, or those that were written first, or any sectors of those that were written
//!   over others. A file does not end with bytes that were not written, as where data goes to disk before its metadata.
//! - Names: as many of the changes as were first, as where a journal has them; and all in a directory that was synced.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dunlin_test_support::random::Random;

use super::recording::{Call, What};

/// Bytes that a disk writes as a whole.
const SECTOR_BYTES: usize = 512;

/// A directory as it was, and the calls on it since. Moments are numbers of calls.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    names: BTreeMap<PathBuf, Node>,
    renamings: Vec<(usize, Renaming)>,
    files: Vec<DiskFile>,
    directories: HashMap<PathBuf, Vec<Sync>>,
    /// The file or directory that has an inode now.
    inodes: HashMap<u64, Place>,
}

/// The file, by its number, or directory of a name.
#[derive(Debug, Clone, Copy)]
enum Node {
    File(usize),
    Directory,
}

#[derive(Debug, Clone)]
enum Place {
    File(usize),
    Directory(PathBuf),
}

#[derive(Debug)]
enum Renaming {
    Create(PathBuf, Node),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Debug, Default)]
struct DiskFile {
    before: Vec<u8>,
    changes: Vec<(usize, Change)>,
    syncs: Vec<Sync>,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Cut { length: usize },
}

#[derive(Debug)]
struct Sync {
    number: u64,
    begun: usize,
    /// `None` as long as it goes on.
    ended: Option<usize>,
}

impl Disk {
    /// The present contents of a directory, all of them durable.
    pub fn of(root: &Path) -> io::Result<Self> {
        let mut disk = Self {
            root: root.to_owned(),
            names: BTreeMap::new(),
            renamings: Vec::new(),
            files: Vec::new(),
            directories: HashMap::new(),
            inodes: HashMap::new(),
        };
        disk.add_directory(root)?;
        Ok(disk)
    }

    fn add_directory(&mut self, path: &Path) -> io::Result<()> {
        self.inodes.insert(fs::metadata(path)?.ino(), Place::Directory(path.to_owned()));
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            let data = fs::metadata(&path)?;
            if data.is_dir() {
                self.names.insert(path.clone(), Node::Directory);
                self.add_directory(&path)?;
            } else {
                let number = self.add_file(data.ino(), fs::read(&path)?);
                self.names.insert(path, Node::File(number));
            }
        }
        Ok(())
    }

    fn add_file(&mut self, inode: u64, before: Vec<u8>) -> usize {
        let number = self.files.len();
        self.files.push(DiskFile { before, ..DiskFile::default() });
        self.inodes.insert(inode, Place::File(number));
        number
    }

    /// Takes note of the calls since.
    pub fn record(&mut self, calls: Vec<Call>) -> Result<(), String> {
        for (moment, call) in calls.into_iter().enumerate() {
            let unknown = || format!("call {moment} is about a file that nobody has made");
            match call.what {
                What::Create { path, inode } => {
                    let file = self.add_file(inode, Vec::new());
                    self.renamings.push((moment, Renaming::Create(path, Node::File(file))));
                }
                What::MakeDirectory { path, inode } => {
                    self.inodes.insert(inode, Place::Directory(path.clone()));
                    self.renamings.push((moment, Renaming::Create(path, Node::Directory)));
                }
                What::Rename { from, to } => self.renamings.push((moment, Renaming::Rename(from, to))),
                What::Remove { path } => self.renamings.push((moment, Renaming::Remove(path))),
                What::Write { inode, offset, bytes } => {
                    let change = Change::Write { offset, bytes };
                    self.file(inode).ok_or_else(unknown)?.changes.push((moment, change));
                }
                What::Cut { inode, length } => {
                    self.file(inode).ok_or_else(unknown)?.changes.push((moment, Change::Cut { length }));
                }
                What::BeginSync { inode, number } => {
                    let syncs = self.syncs(inode).ok_or_else(unknown)?;
                    syncs.push(Sync { number, begun: moment, ended: None });
                }
                What::EndSync { inode, number } => {
                    // Another process may have had one of that number before.
                    let mut syncs = self.syncs(inode).ok_or_else(unknown)?.iter_mut().rev();
                    syncs.find(|sync| sync.number == number).ok_or_else(unknown)?.ended = Some(moment);
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, inode: u64) -> Option<&mut DiskFile> {
        match self.inodes.get(&inode)? {
            Place::File(number) => Some(&mut self.files[*number]),
            Place::Directory(_) => None,
        }
    }

    fn syncs(&mut self, inode: u64) -> Option<&mut Vec<Sync>> {
        match self.inodes.get(&inode)? {
            Place::File(number) => Some(&mut self.files[*number].syncs),
            Place::Directory(path) => Some(self.directories.entry(path.clone()).or_default()),
        }
    }

    /// Makes a directory as the disk may have it if power fails at a moment.
    pub fn leave(&self, moment: usize, random: &mut Random, into: &Path) -> io::Result<()> {
        let names = self.names_at(moment, random);
        // Parents stand before their entries.
        for (path, node) in &names {
            let relative = path.strip_prefix(&self.root).expect("only what is below it is recorded");
            let path = into.join(relative);
            match node {
                Node::Directory => fs::create_dir(path)?,
                Node::File(number) => fs::write(path, self.files[*number].bytes_at(moment, random))?,
            }
        }
        Ok(())
    }

    fn names_at(&self, moment: usize, random: &mut Random) -> BTreeMap<PathBuf, Node> {
        let done = || self.renamings.iter().filter(|(at, _)| *at < moment);
        let is_durable = |at: usize, renaming: &Renaming| {
            let (Renaming::Create(path, _) | Renaming::Rename(_, path) | Renaming::Remove(path)) = renaming;
            let syncs = path.parent().and_then(|parent| self.directories.get(parent));
            syncs.is_some_and(|syncs| at < durable_until(syncs, moment))
        };
        let open = done().filter(|(at, renaming)| !is_durable(*at, renaming)).count();
        let mut kept = some_of(open, random);
        let mut names = self.names.clone();
        for (at, renaming) in done() {
            if !is_durable(*at, renaming) {
                if kept == 0 {
                    continue;
                }
                kept -= 1;
            }
            match renaming {
                Renaming::Create(path, node) => {
                    names.insert(path.clone(), *node);
                }
                Renaming::Rename(from, to) => {
                    if let Some(node) = names.remove(from) {
                        names.insert(to.clone(), node);
                    }
                }
                Renaming::Remove(path) => {
                    names.remove(path);
                }
            }
        }
        // Files in a directory that is not there cannot be found.
        let all = names.clone();
        let is_there = |path: &Path| path == self.root || matches!(all.get(path), Some(Node::Directory));
        names.retain(|path, _| path.parent().is_some_and(is_there));
        names
    }
}

impl DiskFile {
    fn bytes_at(&self, moment: usize, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.before.clone();
        let durable_until = durable_until(&self.syncs, moment);
        let (durable, later): (Vec<_>, Vec<_>) = self.changes.iter().partition(|(at, _)| *at < durable_until);
        durable.into_iter().for_each(|(_, change)| change.apply(&mut bytes));
        let open: Vec<_> =
            later.into_iter().filter(|(at, _)| *at < moment).map(|(_, change)| change).collect();
        let kept = some_of(open.len(), random);
        let durable_bytes = bytes.len();
        open[..kept].iter().for_each(|change| change.apply(&mut bytes));
        if let Some(change) = open.get(kept) {
            change.apply_partly(durable_bytes, &mut bytes, random);
        }
        bytes
    }
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write_over(to, *offset, bytes),
            Self::Cut { length } => to.resize(*length, 0),
        }
    }

    /// Applies the part that the disk had time for. Of a cut, nothing; of a write, any of the sectors over durable
    /// bytes, and the first few behind these.
    fn apply_partly(&self, durable_bytes: usize, to: &mut Vec<u8>, random: &mut Random) {
        let Self::Write { offset, bytes } = self else { return };
        let over = durable_bytes.saturating_sub(*offset).min(bytes.len());
        let percent = *random.pick(&[10, 50, 90]);
        let mut at = 0;
        while at < over {
            let end = over.min((offset + at + 1).next_multiple_of(SECTOR_BYTES) - offset);
            if random.chance(percent) {
                write_over(to, offset + at, &bytes[at..end]);
            }
            at = end;
        }
        let behind = random.below(bytes.len() - over + 1);
        if behind > 0 {
            write_over(to, offset + over, &bytes[over..over + behind]);
        }
    }
}

fn write_over(to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[offset..end].copy_from_slice(bytes);
}

/// The moment up to which syncs have made calls durable.
fn durable_until(syncs: &[Sync], moment: usize) -> usize {
    let ended = syncs.iter().filter(|sync| sync.ended.is_some_and(|ended| ended < moment));
    ended.map(|sync| sync.begun).max().unwrap_or(0)
}

/// Returns none, all, or a part of `count`.
fn some_of(count: usize, random: &mut Random) -> usize {
    match random.below(3) {
        0 => 0,
        1 => count,
        _ => random.below(count + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn inode(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    fn write(inode: u64, offset: usize, text: &str) -> What {
        What::Write { inode, offset, bytes: text.as_bytes().to_vec() }
    }

    /// The directories that a power cut may leave, as names and contents of files.
    fn outcomes(
        before: &[(&str, &str)],
        calls: impl Fn(&Path) -> Vec<What>,
        moment: usize,
    ) -> BTreeSet<Vec<(String, String)>> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        before.iter().for_each(|(name, content)| fs::write(root.join(name), content).unwrap());
        let mut disk = Disk::of(&root).unwrap();
        let calls = calls(&root).into_iter().map(|what| Call { at_ns: 0, what });
        disk.record(calls.collect()).unwrap();
        let leave = |seed| {
            let into = folder.path().join(format!("{seed}"));
            fs::create_dir(&into).unwrap();
            disk.leave(moment, &mut Random::new(seed), &into).unwrap();
            let entries = fs::read_dir(&into).unwrap().map(Result::unwrap);
            let entries = entries.filter(|entry| entry.file_type().unwrap().is_file());
            let read = |entry: fs::DirEntry| {
                let content = String::from_utf8(fs::read(entry.path()).unwrap()).unwrap();
                (entry.file_name().into_string().unwrap(), content)
            };
            let mut found: Vec<_> = entries.map(read).collect();
            found.sort();
            found
        };
        (0..200).map(leave).collect()
    }

    fn set(outcomes: &[&[(&str, &str)]]) -> BTreeSet<Vec<(String, String)>> {
        let owned = |(name, content): &(&str, &str)| ((*name).to_owned(), (*content).to_owned());
        outcomes.iter().map(|found| found.iter().map(owned).collect()).collect()
    }

    #[test]
    fn writes_after_the_begin_of_a_sync_may_be_lost() {
        let calls = |root: &Path| {
            let inode = inode(&root.join("a"));
            vec![
                write(inode, 1, "b"),
                What::BeginSync { inode, number: 1 },
                write(inode, 2, "c"),
                What::EndSync { inode, number: 1 },
                write(inode, 3, "de"),
            ]
        };
        let before = [("a", "a")];
        assert_eq!(outcomes(&before, calls, 0), set(&[&[("a", "a")]]));
        assert_eq!(outcomes(&before, calls, 3), set(&[&[("a", "a")], &[("a", "ab")], &[("a", "abc")]]));
        assert_eq!(outcomes(&before, calls, 4), set(&[&[("a", "ab")], &[("a", "abc")]]));
        let all = set(&[&[("a", "ab")], &[("a", "abc")], &[("a", "abcd")], &[("a", "abcde")]]);
        assert_eq!(outcomes(&before, calls, 5), all);
    }

    #[test]
    fn overwritten_sectors_may_each_be_old() {
        let (old, new) = ("o".repeat(2 * SECTOR_BYTES), "n".repeat(2 * SECTOR_BYTES));
        let calls = |root: &Path| vec![write(inode(&root.join("a")), 0, &new)];
        let (half_old, half_new) = (&old[SECTOR_BYTES..], &new[SECTOR_BYTES..]);
        let (first, second) = (format!("{half_new}{half_old}"), format!("{half_old}{half_new}"));
        let all = [&old, &new, &first, &second].map(|content| vec![("a".to_owned(), content.clone())]);
        assert_eq!(outcomes(&[("a", &old)], calls, 1), all.into_iter().collect());
    }

    #[test]
    fn names_are_durable_once_their_directory_is() {
        let calls = |root: &Path| {
            let directory = inode(root);
            vec![
                What::Create { path: root.join("b"), inode: 0 },
                write(0, 0, "new"),
                What::BeginSync { inode: 0, number: 1 },
                What::EndSync { inode: 0, number: 1 },
                What::Rename { from: root.join("b"), to: root.join("a") },
                What::BeginSync { inode: directory, number: 2 },
                What::EndSync { inode: directory, number: 2 },
                What::Remove { path: root.join("a") },
            ]
        };
        let before = [("a", "old")];
        let (old, both, new): (&[_], &[_], &[_]) =
            (&[("a", "old")], &[("a", "old"), ("b", "new")], &[("a", "new")]);
        assert_eq!(outcomes(&before, calls, 4), set(&[old, both]));
        assert_eq!(outcomes(&before, calls, 6), set(&[old, both, new]));
        assert_eq!(outcomes(&before, calls, 7), set(&[new]));
        assert_eq!(outcomes(&before, calls, 8), set(&[new, &[]]));
    }

    #[test]
    fn directory_takes_its_content_with_it() {
        let calls = |root: &Path| {
            let path = root.join("directory");
            vec![
                What::MakeDirectory { path: path.clone(), inode: 1 },
                What::Create { path: path.join("a"), inode: 0 },
                What::BeginSync { inode: 1, number: 1 },
                What::EndSync { inode: 1, number: 1 },
            ]
        };
        assert!(outcomes(&[], calls, 4).contains(&vec![]));
    }
}
