//! Load generator for servers of the Redis protocol.
