//! The store: keyspace, values and commands; no sockets, files, threads or clocks.
