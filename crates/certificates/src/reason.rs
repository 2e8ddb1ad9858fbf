//! Why a handshake of TLS has failed, for operators.

use std::{fmt, io};

use rustls::{AlertDescription, CertificateError, Error};

/// A failure of TLS, which says its reason in an operator's words if there are any.
#[derive(Debug)]
struct Failure(Error);

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match reason(&self.0) {
            Some(reason) => out.write_str(&reason),
            None => self.0.fmt(out),
        }
    }
}

impl std::error::Error for Failure {}

/// The error of a read or a write whose TLS has failed.
pub fn failure(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Failure(error))
}

/// Names the reason of a failure that an operator can do something about: a certificate that was refused, at this end or at
/// the other, or settings that have nothing in common. `None` for peers that do not speak TLS, or break off.
pub fn refusal(error: &io::Error) -> Option<String> {
    reason(&error.get_ref()?.downcast_ref::<Failure>()?.0)
}

fn reason(error: &Error) -> Option<String> {
    let known = match error {
        Error::NoCertificatesPresented => "the peer shows no certificate",
        Error::InvalidCertificate(error) => return Some(of_certificate(error)),
        Error::AlertReceived(alert) => return of_alert(*alert),
        Error::PeerIncompatible(error) => {
            return Some(format!("the peer's settings do not fit ours: {error:?}"));
        }
        _ => return None,
    };
    Some(known.to_owned())
}

fn of_certificate(error: &CertificateError) -> String {
    use CertificateError as Error;
    let known = match error {
        Error::BadEncoding => "the certificate cannot be read",
        Error::Expired | Error::ExpiredContext { .. } => "the certificate has expired",
        Error::NotValidYet | Error::NotValidYetContext { .. } => "the certificate is not valid yet",
        Error::UnknownIssuer => {
            "no authority in tls-ca-cert-file or tls-ca-cert-dir has signed the certificate or those that came with it"
        }
        Error::BadSignature => "the certificate's signature is not its authority's",
        Error::InvalidPurpose | Error::InvalidPurposeContext { .. } => {
            "the certificate's usage (keyUsage, extendedKeyUsage) does not allow this"
        }
        Error::Other(other) => return of_other(&format!("{other:?}")),
        other => return format!("the certificate is refused: {other}"),
    };
    known.to_owned()
}

/// webpki's own reasons come as the text of a type of its own.
fn of_other(text: &str) -> String {
    if text.contains("CaUsedAsEndEntity") {
        return "the certificate is an authority's (CA:TRUE) and not itself among the trusted ones"
            .to_owned();
    }
    if text.contains("UnsupportedCertVersion") {
        return "the certificate is of an X.509 version other than 1 and 3".to_owned();
    }
    format!("the certificate is refused: {text}")
}

/// An alert that says what the peer has against this end.
fn of_alert(alert: AlertDescription) -> Option<String> {
    use AlertDescription as Alert;
    let known = match alert {
        Alert::UnknownCA => "the peer does not trust the authority of our certificate",
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::DecryptError => "the peer refuses our certificate",
        Alert::CertificateExpired => "the peer says that our certificate has expired",
        Alert::CertificateRequired => "the peer wants a certificate, and was shown none",
        Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity => {
            return Some(format!("the peer's settings do not fit ours: {alert:?}"));
        }
        _ => return None,
    };
    Some(known.to_owned())
}
