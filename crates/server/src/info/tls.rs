//! Certificates, handshakes of TLS, and the audit log.

use dunlin_net::tls::{CertificateFacts, TlsMaterial};

use super::{
    Reading,
    metric::{Metric, Number, Row, Unit},
};
use crate::tls::now_s;

pub(super) const ROWS: &[Row] = &[
    Row::One(Metric::text(
        "tls_server_cert_serial",
        "Serial number of the server's certificate, or `none`.",
        |reading| serial(reading, of_server).into(),
    )),
    Row::One(Metric::gauge(
        "tls_server_cert_expires_in_seconds",
        Unit::Seconds,
        "Time until the server's certificate expires; 0 without one, negative afterwards.",
        |reading| expiry(reading, of_server),
    )),
    Row::One(Metric::text(
        "tls_client_cert_serial",
        "Serial number of the certificate for outgoing connections, or `none`.",
        |reading| serial(reading, of_client).into(),
    )),
    Row::One(Metric::gauge(
        "tls_client_cert_expires_in_seconds",
        Unit::Seconds,
        "Time until the certificate for outgoing connections expires; 0 without one.",
        |reading| expiry(reading, of_client),
    )),
    Row::One(Metric::text(
        "tls_ca_cert_serial",
        "Serial number of the trusted certificate that expires first, or `none`.",
        |reading| serial(reading, of_authority).into(),
    )),
    Row::One(Metric::gauge(
        "tls_ca_cert_expires_in_seconds",
        Unit::Seconds,
        "Time until the first of the trusted certificates expires; 0 without one.",
        |reading| expiry(reading, of_authority),
    )),
    Row::One(Metric::gauge(
        "tls_port",
        Unit::Count,
        "The port for clients that speak TLS; 0 for none.",
        |reading| reading.config.tls_port.into(),
    )),
    Row::One(Metric::resettable(
        "tls_handshakes",
        Unit::Count,
        "Handshakes that were completed.",
        |reading| reading.traffic().handshakes,
    )),
    Row::One(Metric::resettable(
        "tls_handshakes_resumed",
        Unit::Count,
        "Of these, handshakes that resumed a session.",
        |reading| reading.traffic().handshakes_resumed,
    )),
    Row::One(Metric::resettable(
        "tls_handshakes_failed",
        Unit::Count,
        "Handshakes that failed because of what the peer has sent.",
        |reading| reading.traffic().handshakes_failed,
    )),
    Row::One(Metric::resettable(
        "tls_handshakes_given_up",
        Unit::Count,
        "Handshakes that took too long, or of which there were too many.",
        |reading| reading.traffic().handshakes_given_up,
    )),
];

pub(super) const AUDIT_ROWS: &[Row] = &[
    Row::One(Metric::resettable(
        "audit_lines",
        Unit::Count,
        "Lines of the audit log that were written.",
        |reading| reading.shared.audit.written(),
    )),
    Row::One(Metric::resettable(
        "audit_lines_dropped",
        Unit::Count,
        "Lines of the audit log that found no room, since earlier ones could not be written.",
        |reading| reading.shared.audit.dropped(),
    )),
    Row::One(Metric::resettable(
        "audit_write_failures",
        Unit::Count,
        "Writes of the audit log that failed.",
        |reading| reading.shared.audit.failures(),
    )),
    Row::One(Metric::gauge(
        "audit_pending_bytes",
        Unit::Bytes,
        "Lines of the audit log that wait to be written.",
        |reading| reading.shared.audit.pending_bytes().into(),
    )),
];

fn of_server(material: &TlsMaterial) -> Option<&CertificateFacts> {
    Some(&material.server_certificate)
}

fn of_client(material: &TlsMaterial) -> Option<&CertificateFacts> {
    material.client_certificate.as_ref()
}

fn of_authority(material: &TlsMaterial) -> Option<&CertificateFacts> {
    material.ca_certificate.as_ref()
}

type Of = fn(&TlsMaterial) -> Option<&CertificateFacts>;

fn serial(reading: &Reading<'_>, of: Of) -> String {
    let material = reading.shared.tls.material();
    material.as_deref().and_then(of).map_or_else(|| "none".to_owned(), |facts| facts.serial.clone())
}

fn expiry(reading: &Reading<'_>, of: Of) -> Number {
    let material = reading.shared.tls.material();
    let seconds = material.as_deref().and_then(of).map_or(0, |facts| facts.expires_s - now_s());
    Number::Integer(seconds)
}
