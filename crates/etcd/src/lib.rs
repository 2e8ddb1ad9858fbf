//! The cluster's metadata in etcd, over its JSON gateway.
