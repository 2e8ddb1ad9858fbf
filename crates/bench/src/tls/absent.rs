//! The types of a binary without TLS: no value of them exists.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::marker::PhantomData;

use super::TlsOptions;

/// TLS to one server, which this binary cannot speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls(Infallible);

/// A socket inside TLS, which this binary never has.
#[derive(Debug)]
pub struct TlsStream<S> {
    never: Infallible,
    socket: PhantomData<S>,
}

impl TlsOptions {
    /// Refuses with the line that says how to get a binary with TLS.
    pub fn configured(&self, _: &str) -> Result<Tls, String> {
        Err(format!("this binary was built without TLS; {}", crate::FULL_BUILD))
    }
}

impl Tls {
    /// Never called: there is no value to call it on.
    pub fn handshake<S: Read + Write>(&self, _: S) -> io::Result<TlsStream<S>> {
        match self.0 {}
    }
}

impl<S> TlsStream<S> {
    /// The socket itself.
    pub fn socket(&self) -> &S {
        match self.never {}
    }

    /// The socket itself.
    pub fn socket_mut(&mut self) -> &mut S {
        match self.never {}
    }

    /// This session over another handle of the socket.
    pub fn map<T>(self, _: impl FnOnce(S) -> T) -> TlsStream<T> {
        match self.never {}
    }

    /// Whether bytes that were taken wait for the socket.
    pub fn has_unsent(&self) -> bool {
        match self.never {}
    }
}

impl<S> Read for TlsStream<S> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.never {}
    }
}

impl<S> Write for TlsStream<S> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.never {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.never {}
    }
}
