//! The tools of every black-box test driver: seeded randomness, a server process that is started on
//! a Unix socket and always stopped again, a connection that pipelines, and a RESP parser.
//!
//! The parser shares no code with Dunlin's own on purpose: a test that decodes replies with the
//! code under test cannot see that code fail.

pub mod connection;
pub mod process;
pub mod random;
pub mod resp;
