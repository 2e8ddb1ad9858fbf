//! TLS to etcd, under ureq: the same rules for certificates as on the links between servers, and names are checked.

use std::{
    fmt,
    io::{Read, Write},
    sync::Arc,
};

use dunlin_certificates::{PeerVerifier, Peers};
use rustls::{
    ClientConfig, ClientConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use ureq::{
    Error,
    unversioned::transport::{
        Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
    },
};

use crate::Tls;

/// Wraps connections to `https:` endpoints.
pub(crate) struct TlsConnector {
    config: Arc<ClientConfig>,
}

impl TlsConnector {
    /// A connector by the options. The error is one line for the operator.
    pub(crate) fn new(tls: &Tls) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let authorities = match &tls.authorities {
            Some(pem) => certificates(pem)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let verifier = PeerVerifier::new(Peers::ServersByName, authorities, Arc::clone(&provider))
            .map_err(|_| "there is no authority that could have signed etcd's certificate".to_owned())?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS to etcd: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| format!("the key for etcd: {error}"))?;
                builder
                    .with_client_auth_cert(certificates(chain)?, key)
                    .map_err(|error| format!("the certificate for etcd: {error}"))?
            }
        };
        Ok(Self { config: Arc::new(config) })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| format!("a certificate for etcd: {error}"))?;
    match certificates.is_empty() {
        true => Err("a file of certificates for etcd has none".to_owned()),
        false => Ok(certificates),
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TlsConnector").finish_non_exhaustive()
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        // An address of version 6 stands in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Error::Tls("no name of a server"))?;
        let mut connection =
            ClientConnection::new(Arc::clone(&self.config), name).map_err(std::io::Error::other)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let buffers =
            LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport { buffers, stream: StreamOwned::new(connection, socket) })))
    }
}

/// A connection inside TLS.
pub(crate) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
