//! Ids of nodes, shards, clusters and histories: 40 hexadecimal digits, as Redis Cluster's clients expect them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Why a text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdError;

impl fmt::Display for IdError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an id has 40 hexadecimal digits, in lower case")
    }
}

impl std::error::Error for IdError {}

fn parse(text: &str) -> Result<[u8; 20], IdError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(IdError),
    };
    let digits: &[u8; 40] = text.as_bytes().try_into().map_err(|_| IdError)?;
    let mut bytes = [0; 20];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

macro_rules! id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 20]);

        impl $name {
            /// Makes the id of random bytes, which the caller draws.
            pub const fn from_bytes(bytes: [u8; 20]) -> Self {
                Self(bytes)
            }

            /// Returns the bytes.
            pub const fn bytes(self) -> [u8; 20] {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            /// The first bytes are enough to tell ids apart in a failure's text.
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0[..4].iter().try_for_each(|byte| write!(out, "{byte:02x}"))
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                parse(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id! {
    /// A node: a process with a data directory, in which the id stands.
    NodeId
}
id! {
    /// A shard: the nodes that hold the same slots.
    ShardId
}
id! {
    /// A cluster. Ids differ if two clusters share a prefix of etcd, or if etcd was emptied.
    ClusterId
}
id! {
    /// A history of a shard's stream, as a replication id.
    HistoryId
}
id! {
    /// A start of a process: two processes with one node's id differ in it.
    BootId
}
id! {
    /// A move of slots.
    MoveId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_reads_what_it_writes_and_nothing_else() {
        let id = NodeId::from_bytes(std::array::from_fn(|at| (at * 13) as u8));
        assert_eq!(id.to_string().parse(), Ok(id));
        let text = id.to_string();
        for wrong in [&text[1..], &text.to_uppercase(), &format!("{text}0"), &text.replace('0', "g"), ""] {
            assert_eq!(wrong.parse::<NodeId>(), Err(IdError), "{wrong}");
        }
    }
}
