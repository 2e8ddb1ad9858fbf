//! Certificates that OpenSSL accepts from a peer, and webpki does not.
//!
//! ```text
//! its own authority     the very certificate is among the trusted ones, and has signed itself: `openssl req -x509`
//!                       makes it an authority (CA:TRUE), which webpki refuses as a peer
//! version 1             no extensions, signed by a trusted authority itself: `openssl x509 -req` without a file of
//!                       extensions makes it, before OpenSSL 3.2
//! ```
//!
//! Both must be valid now, and their usages, if they have any, must allow what the peer does. Any other certificate is
//! left to webpki.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved};
use x509_parser::asn1_rs::Sequence;
use x509_parser::prelude::{ASN1Time, FromDer, ParsedExtension, X509Certificate, X509Version};

/// The part of a peer in its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The peer has connected to this server.
    Client,
    /// This server has connected to it.
    Server,
}

/// Decides about a certificate of one of the kinds above; `None` for any other.
pub(crate) fn accept(
    certificate: &CertificateDer<'_>,
    authorities: &[CertificateDer<'_>],
    now: UnixTime,
    purpose: Purpose,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Option<Result<(), Error>> {
    if authorities.contains(certificate) {
        let leaf = parsed(certificate)?;
        let has_signed_itself = leaf.issuer().as_raw() == leaf.subject().as_raw();
        return has_signed_itself
            .then(|| check_validity(&leaf, now).and_then(|()| check_usage(&leaf, purpose)));
    }
    if !is_version_1(certificate) {
        return None;
    }
    let leaf = parsed(certificate)?;
    let is_plain = leaf.extensions().is_empty() && leaf.tbs_certificate.signature == leaf.signature_algorithm;
    is_plain.then(|| {
        check_validity(&leaf, now)
            .and_then(|()| check_issuer(&leaf, certificate, authorities, now, algorithms))
    })
}

/// Whether a certificate begins with its serial number: later versions begin with the version. Any stranger may send a
/// certificate, so the parser sees those of this kind alone.
fn is_version_1(certificate: &CertificateDer<'_>) -> bool {
    const INTEGER: u8 = 2;
    contents(certificate).and_then(contents).is_some_and(|signed| signed.first() == Some(&INTEGER))
}

/// The key of a certificate before version 3, which webpki does not read.
pub(crate) fn key_of_old_version<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Option<SubjectPublicKeyInfoDer<'a>> {
    let old = is_version_1(certificate).then(|| parsed(certificate)).flatten()?;
    Some(old.tbs_certificate.subject_pki.raw.into())
}

/// Verifies the signature that a peer of TLS 1.2 has made in the handshake by its key.
pub(crate) fn verify_tls12_signature(
    message: &[u8],
    key: &SubjectPublicKeyInfoDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let mapped = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
    let (_, candidates) =
        mapped.ok_or(Error::from(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme))?;
    let (key_algorithm, key) = key_parts(key).ok_or(CertificateError::BadEncoding)?;
    let fits = candidates.iter().find(|algorithm| algorithm.public_key_alg_id().as_ref() == key_algorithm);
    let algorithm = fits.ok_or(Error::from(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme))?;
    algorithm
        .verify_signature(key, message, signature.signature())
        .map_err(|_| CertificateError::BadSignature)?;
    Ok(HandshakeSignatureValid::assertion())
}

fn parsed<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    rest.is_empty().then_some(parsed)
}

fn check_validity(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let now = ASN1Time::from_timestamp(seconds).map_err(|_| CertificateError::BadEncoding)?;
    if now < certificate.validity().not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > certificate.validity().not_after {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// Checks that the usages of a certificate, if it names any, are those of a peer, and that nothing in it is critical that
/// is not understood here.
fn check_usage(certificate: &X509Certificate<'_>, purpose: Purpose) -> Result<(), Error> {
    for extension in certificate.extensions() {
        let is_allowed = match extension.parsed_extension() {
            ParsedExtension::ExtendedKeyUsage(usage) => {
                usage.any
                    || match purpose {
                        Purpose::Client => usage.client_auth,
                        Purpose::Server => usage.server_auth,
                    }
            }
            ParsedExtension::KeyUsage(usage) => {
                usage.digital_signature()
                    || usage.key_agreement()
                    || (purpose == Purpose::Server && usage.key_encipherment())
            }
            ParsedExtension::BasicConstraints(_) | ParsedExtension::SubjectAlternativeName(_) => true,
            ParsedExtension::ParseError { .. } => return Err(CertificateError::BadEncoding.into()),
            _ => !extension.critical,
        };
        if !is_allowed {
            return Err(CertificateError::InvalidPurpose.into());
        }
    }
    Ok(())
}

/// Checks that an authority has signed a certificate.
fn check_issuer(
    certificate: &X509Certificate<'_>,
    der: &CertificateDer<'_>,
    authorities: &[CertificateDer<'_>],
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let named = authorities.iter().filter_map(parsed);
    let named = named.filter(|authority| authority.subject().as_raw() == certificate.issuer().as_raw());
    let mut refusal = CertificateError::UnknownIssuer.into();
    for authority in named.filter(may_issue) {
        let checked = check_validity(&authority, now);
        match checked.and_then(|()| check_signature(certificate, der, &authority, algorithms)) {
            Ok(()) => return Ok(()),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// Whether an authority may sign certificates of any name.
fn may_issue(authority: &X509Certificate<'_>) -> bool {
    if authority.version() == X509Version::V1 {
        // OpenSSL takes a root of version 1 for an authority.
        return authority.issuer().as_raw() == authority.subject().as_raw();
    }
    let mut is_authority = false;
    for extension in authority.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(constraints) => is_authority = constraints.ca,
            ParsedExtension::KeyUsage(usage) if !usage.key_cert_sign() => return false,
            ParsedExtension::NameConstraints(_) | ParsedExtension::ParseError { .. } => return false,
            _ => {}
        }
    }
    is_authority
}

fn check_signature(
    certificate: &X509Certificate<'_>,
    der: &CertificateDer<'_>,
    authority: &X509Certificate<'_>,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let signed = certificate.tbs_certificate.as_ref();
    let signature_algorithm = signature_algorithm(der, signed.len()).ok_or(CertificateError::BadEncoding)?;
    let key = authority.public_key().raw.into();
    let (key_algorithm, key) = key_parts(&key).ok_or(CertificateError::BadEncoding)?;
    let candidates = algorithms.all.iter().filter(|algorithm| {
        algorithm.signature_alg_id().as_ref() == signature_algorithm
            && algorithm.public_key_alg_id().as_ref() == key_algorithm
    });
    let mut refusal = weak_signature();
    for algorithm in candidates {
        match algorithm.verify_signature(key, signed, &certificate.signature_value.data) {
            Ok(()) => return Ok(()),
            Err(_) => refusal = CertificateError::BadSignature.into(),
        }
    }
    Err(refusal)
}

#[allow(deprecated, reason = "the variant with more to say wants algorithms that are not known here")]
fn weak_signature() -> Error {
    CertificateError::UnsupportedSignatureAlgorithm.into()
}

/// The contents of the algorithm that stands behind the signed part of a certificate.
fn signature_algorithm<'a>(certificate: &'a CertificateDer<'_>, signed_bytes: usize) -> Option<&'a [u8]> {
    let rest = contents(certificate)?.get(signed_bytes..)?;
    contents(rest)
}

/// The contents of a public key's algorithm, and its bits.
fn key_parts<'a>(key: &'a SubjectPublicKeyInfoDer<'_>) -> Option<(&'a [u8], &'a [u8])> {
    let (_, parsed) = x509_parser::x509::SubjectPublicKeyInfo::from_der(key).ok()?;
    let algorithm = contents(contents(key)?)?;
    // The bits are the end of the key.
    let bits = parsed.subject_public_key.data.len();
    Some((algorithm, key.get(key.len().checked_sub(bits)?..)?))
}

/// The contents of the sequence at the front of `der`.
fn contents(der: &[u8]) -> Option<&[u8]> {
    let (rest, _) = Sequence::from_der(der).ok()?;
    let whole = der.len() - rest.len();
    let head = match *der.get(1)? {
        long @ 0x80.. => 2 + usize::from(long & 0x7F),
        _ => 2,
    };
    der.get(head..whole)
}
