//! The data structures under the keyspace; they know no keys, clients or time.
