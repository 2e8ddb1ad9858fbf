//! The identity of a node: its id and its cluster, in a file of the data directory.
//!
//! ```text
//! dir/cluster-node      node 3f…        drawn at the first start
//!                       name prod       of --cluster-join
//!                       cluster a7…     the record's id, once it has been seen
//!                       slots 912       the newest record of slots that it has obeyed: an older one is a backup's
//! ```
//!
//! The file is written and read under the directory's lock, so one process at a time has the id. A directory that was copied
//! brings its id along: the second process with it finds the first one's presence in etcd, and ends.

use std::{io, path::Path};

use dunlin_cluster::{ClusterId, NodeId, meta::Revision};

use crate::config::{describe, replace_file};

/// The name of the file.
const FILE: &str = "cluster-node";
/// Bytes of it that are read at most.
const FILE_BYTES_MAX: u64 = 4096;

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
}

impl Identity {
    /// Reads the identity of a directory; draws one where there is none. The error is a line for the operator.
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
        Some(Self { node: field("node")?.parse().ok()?, name: field("name")?.to_owned(), cluster, slots })
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
        let path = directory.join(FILE);
        replace_file(&path, text.as_bytes())
            .map_err(|error| format!("cannot write {}: {}", path.display(), describe(&error)))
    }
}

fn read(path: &Path) -> io::Result<String> {
    use io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Draws the bytes of an id.
pub(super) fn draw() -> Result<[u8; 20], String> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| format!("cannot draw a random identity: {error}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    #[test]
    fn identity_is_drawn_once_and_belongs_to_one_cluster() {
        let scratch = ScratchDir::new("identity");
        let directory = scratch.path("");
        let draw = || Ok([7; 20]);
        let first = Identity::of(&directory, "prod", draw).unwrap();
        assert_eq!((first.node, first.cluster), (NodeId::from_bytes([7; 20]), None));
        let known = Identity { cluster: Some(ClusterId::from_bytes([9; 20])), ..first };
        known.keep(&directory).unwrap();
        let never = || panic!("the id is there");
        assert_eq!(Identity::of(&directory, "prod", never), Ok(known));
        let error = Identity::of(&directory, "test", never).unwrap_err();
        assert!(error.contains("'prod'") && error.contains("'test'"), "{error}");
    }

    #[test]
    fn identity_that_cannot_be_read_is_no_new_one() {
        for text in ["", "node x\nname prod\n", "name prod\n", "node 07\n", "\0\u{1}"] {
            let scratch = ScratchDir::new("identity-damaged");
            scratch.write(FILE, text);
            let error =
                Identity::of(&scratch.path(""), "prod", || panic!("it is not drawn anew")).unwrap_err();
            assert!(error.contains("cluster-node"), "{text:?}: {error}");
        }
    }
}
