//! The identity of a node: its id and its cluster, in a file of the data directory.
//!
//! ```text
//! dir/cluster-node      node 3f…        drawn at the first start
//!                       name prod       of --cluster-join
//!                       cluster a7…     the record's id, once it has been seen
//!                       slots 912       the newest record of slots that it has obeyed: an older one is a backup's
//!                       epoch 5c… 7     its shard, and the newest epoch of that: an older one is a backup's, too
//!                       mark 91… 12 77 4d.9  for each node: its last change of a record that this one has obeyed, that change's
//!                                       id, and the runs of its changes
//!                       process b0… k   its last process whose presence was recorded, and where the directory was then
//! ```
//!
//! A state of etcd that lacks one of these marks has not come from the one that was obeyed ([`dunlin_cluster::lineage`]). `slots` and
//! `epoch` are of versions that left no marks, and count while there are none.
//!
//! The file is written and read under the directory's lock, so one process at a time has the id. A directory that was copied
//! brings its id along: the second process with it finds the first one's presence in etcd, and ends. A process that finds the
//! presence of the last one of this very directory, whose lock it holds, knows that that one is gone.

use std::{io, path::Path};

use dunlin_cluster::{
    BootId, ClusterId, NodeId, ShardId,
    lineage::Lineage,
    meta::Revision,
    records::{Mark, Runs},
};

use crate::config::{describe, replace_file};

/// The name of the file.
const FILE: &str = "cluster-node";
/// Bytes of it that are read at most: a mark takes up to 224.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A node's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) node: NodeId,
    /// The cluster's name.
    pub(super) name: String,
    /// The cluster's id, once it is known.
    pub(super) cluster: Option<ClusterId>,
    /// The revision of the newest record of slots that it has obeyed; 0 for none.
    pub(super) slots: Revision,
    /// The shard that it was part of last, and the newest epoch of it that the node has obeyed.
    pub(super) epoch: Option<(ShardId, u64)>,
    /// The marks of the newest state of the store that the node has obeyed.
    pub(super) lineage: Lineage,
    /// The last process of the directory whose presence was recorded.
    pub(super) process: Option<Process>,
}

/// A process, and the directory that it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) boot: BootId,
    /// See [`place_of`].
    pub(super) place: String,
}

impl Identity {
    /// Reads the identity of a directory; draws one if there is none. The error is a line for the operator.
    pub(super) fn of(
        directory: &Path,
        name: &str,
        draw: impl FnOnce() -> Result<[u8; 20], String>,
    ) -> Result<Self, String> {
        let path = directory.join(FILE);
        let named = |reason: &str| format!("{}: {reason}", path.display());
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Self {
                    node: NodeId::from_bytes(draw()?),
                    name: name.to_owned(),
                    cluster: None,
                    slots: 0,
                    epoch: None,
                    lineage: Lineage::default(),
                    process: None,
                };
                identity.keep(directory)?;
                return Ok(identity);
            }
            Err(error) => return Err(named(&describe(&error))),
        };
        let identity = Self::parse(&text).ok_or_else(|| {
            named("it says no node's id; restore it, or empty the directory and join as a new node")
        })?;
        if identity.name != name {
            return Err(format!(
                "the data directory belongs to a node of the cluster '{}', and cluster-join names '{name}': correct it, or give the server another --dir",
                identity.name
            ));
        }
        Ok(identity)
    }

    /// Whether it has a record of slots, or a shard, that an earlier one lacks, or another shard.
    pub(super) fn begins_after(&self, earlier: &Self) -> bool {
        let shard = |identity: &Self| identity.epoch.map(|(shard, _)| shard);
        earlier.slots == 0 && self.slots != 0 || shard(earlier) != shard(self)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let cluster = match field("cluster") {
            Some(id) => Some(id.parse().ok()?),
            None => None,
        };
        let slots = match field("slots") {
            Some(revision) => revision.parse().ok()?,
            None => 0,
        };
        let epoch = match field("epoch").map(|words| words.split_once(' ')) {
            Some(words) => {
                let (shard, epoch) = words?;
                Some((shard.parse().ok()?, epoch.parse().ok()?))
            }
            None => None,
        };
        let mut lineage = Lineage::default();
        for words in text.lines().filter_map(|line| line.strip_prefix("mark ")) {
            let mut words = words.split(' ');
            let node = words.next()?.parse().ok()?;
            let (count, id) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let runs = words.next().map_or(Some(Runs::default()), |runs| runs.parse().ok())?;
            lineage.set(node, Mark { count, id, runs });
        }
        // A hint: without it, a presence is waited out.
        let process = field("process").and_then(|words| {
            let (boot, place) = words.split_once(' ')?;
            Some(Process { boot: boot.parse().ok()?, place: place.to_owned() })
        });
        let (node, name) = (field("node")?.parse().ok()?, field("name")?.to_owned());
        Some(Self { node, name, cluster, slots, epoch, lineage, process })
    }

    /// Writes the file. The error is a line for the operator.
    pub(super) fn keep(&self, directory: &Path) -> Result<(), String> {
        let mut text = format!("node {}\nname {}\n", self.node, self.name);
        if let Some(cluster) = self.cluster {
            text += &format!("cluster {cluster}\n");
        }
        if self.slots != 0 {
            text += &format!("slots {}\n", self.slots);
        }
        if let Some((shard, epoch)) = self.epoch {
            text += &format!("epoch {shard} {epoch}\n");
        }
        for (node, Mark { count, id, runs }) in self.lineage.iter() {
            text += &format!("mark {node} {count} {id} {runs}\n");
        }
        if let Some(Process { boot, place }) = &self.process {
            text += &format!("process {boot} {place}\n");
        }
        let path = directory.join(FILE);
        replace_file(&path, text.as_bytes())
            .map_err(|error| format!("cannot write {}: {}", path.display(), describe(&error)))
    }
}

/// Whether a directory has an identity.
pub(super) fn is_there(directory: &Path) -> bool {
    directory.join(FILE).exists()
}

/// Takes the identity of a directory back: its node was never one of a cluster.
pub(super) fn remove(directory: &Path) {
    // If it stays, it names the cluster that was to be joined.
    let _ = std::fs::remove_file(directory.join(FILE));
}

fn read(path: &Path) -> io::Result<String> {
    use io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Names a directory as no copy of it is named at the same time: by the running kernel, the device and the inode. `None`: the
/// system does not say.
pub(super) fn place_of(directory: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let metadata = std::fs::metadata(directory).ok()?;
    Some(format!("{}:{}:{}", kernel.trim(), metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::records::Run;

    use super::*;
    use crate::config::tests::ScratchDir;

    #[test]
    fn identity_is_drawn_once_and_belongs_to_one_cluster() {
        let scratch = ScratchDir::new("identity");
        let directory = scratch.path("");
        let draw = || Ok([7; 20]);
        let first = Identity::of(&directory, "prod", draw).unwrap();
        assert_eq!((first.node, first.cluster), (NodeId::from_bytes([7; 20]), None));
        let epoch = Some((ShardId::from_bytes([5; 20]), 7));
        let run = |after| Run { id: u64::MAX, after };
        let runs = Runs::default().begun(run(0)).begun(run(2));
        let mark = |count| Mark { count, id: u64::MAX - count, runs };
        let marks =
            [(NodeId::from_bytes([7; 20]), mark(3)), (NodeId::from_bytes([8; 20]), mark(u64::MAX / 2))];
        let lineage: Lineage = marks.into_iter().collect();
        let known =
            Identity { cluster: Some(ClusterId::from_bytes([9; 20])), slots: 3, epoch, lineage, ..first };
        known.keep(&directory).unwrap();
        let never = || panic!("the id is there");
        assert_eq!(Identity::of(&directory, "prod", never), Ok(known));
        let error = Identity::of(&directory, "test", never).unwrap_err();
        assert!(error.contains("'prod'") && error.contains("'test'"), "{error}");
    }

    #[test]
    fn identity_names_the_last_process_and_its_directory() {
        let (one, other) = (ScratchDir::new("identity-one"), ScratchDir::new("identity-other"));
        let place = place_of(&one.path("")).unwrap();
        assert_eq!(place_of(&one.path("")), Some(place.clone()));
        assert_ne!(place_of(&other.path("")), Some(place.clone()), "a copy is another place");
        let first = Identity::of(&one.path(""), "prod", || Ok([7; 20])).unwrap();
        let process = Some(Process { boot: BootId::from_bytes([8; 20]), place });
        let known = Identity { process, ..first };
        known.keep(&one.path("")).unwrap();
        assert_eq!(Identity::of(&one.path(""), "prod", || panic!("it is there")), Ok(known));
        let odd = Identity::parse("node 0707070707070707070707070707070707070707\nname prod\nprocess x\n");
        assert_eq!(odd.unwrap().process, None, "a hint");
    }

    #[test]
    fn identity_begins_with_its_first_record_of_slots_and_with_each_shard() {
        let before = Identity::parse("node 0707070707070707070707070707070707070707\nname prod\n").unwrap();
        let of = |slots, epoch: Option<(u8, u64)>| {
            let epoch = epoch.map(|(shard, epoch)| (ShardId::from_bytes([shard; 20]), epoch));
            Identity { slots, epoch, ..before.clone() }
        };
        for (earlier, later, begins) in [
            (of(0, None), of(3, None), true),
            (of(3, None), of(4, None), false),
            (of(3, None), of(3, Some((5, 1))), true),
            (of(3, Some((5, 1))), of(9, Some((5, 2))), false),
            (of(3, Some((5, 1))), of(3, Some((6, 1))), true),
        ] {
            assert_eq!(later.begins_after(&earlier), begins, "{earlier:?} {later:?}");
        }
    }

    #[test]
    fn identity_that_cannot_be_read_is_no_new_one() {
        let without = "node 0707070707070707070707070707070707070707\nname prod\n";
        assert_eq!(Identity::parse(without).unwrap().epoch, None, "as older versions have written it");
        assert!(Identity::parse(without).unwrap().lineage.is_empty());
        let odd = format!("{without}epoch 7\n");
        let torn = format!("{without}mark 0707070707070707070707070707070707070707 5\n");
        for text in
            ["", "node x\nname prod\n", "name prod\n", "node 07\n", "\0\u{1}", odd.as_str(), torn.as_str()]
        {
            let scratch = ScratchDir::new("identity-damaged");
            scratch.write(FILE, text);
            let error =
                Identity::of(&scratch.path(""), "prod", || panic!("it is not drawn anew")).unwrap_err();
            assert!(error.contains("cluster-node"), "{text:?}: {error}");
        }
    }
}
