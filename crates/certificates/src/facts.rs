//! The holder of a certificate, as the certificate names it.

use std::fmt::Write;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

/// Names in a client's certificate that may be users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The first common name (CN) of the subject.
    pub common_name: Option<Vec<u8>>,
    /// Its alternative names that are URIs, in order.
    pub uris: Vec<Vec<u8>>,
}

impl Identity {
    /// Reads a certificate; `None` if it cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let common_name = certificate.subject().iter_common_name().next();
        let common_name = common_name.map(|name| name.attr_value().data.to_vec());
        let mut uris = Vec::new();
        for extension in certificate.extensions() {
            let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
                continue;
            };
            uris.extend(names.general_names.iter().filter_map(|name| match name {
                GeneralName::URI(uri) => Some(uri.as_bytes().to_vec()),
                _ => None,
            }));
        }
        Some(Self { common_name, uris })
    }
}

/// Facts of one of the operator's certificates, for INFO and the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its serial number in hexadecimal digits.
    pub serial: String,
    /// From when on it is valid, in seconds since 1970.
    pub begins_s: i64,
    /// Until when it is valid, in seconds since 1970.
    pub expires_s: i64,
}

impl CertificateFacts {
    /// Reads a certificate; `None` if it cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let mut serial = String::new();
        for byte in certificate.raw_serial() {
            let _ = write!(serial, "{byte:02X}");
        }
        let validity = certificate.validity();
        let (begins_s, expires_s) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        Some(Self { serial, begins_s, expires_s })
    }
}

/// Whether a public key, as a SubjectPublicKeyInfo, is a certificate's.
pub fn has_public_key(certificate: &CertificateDer<'_>, key: &[u8]) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, certificate)| certificate.public_key().raw == key)
}
