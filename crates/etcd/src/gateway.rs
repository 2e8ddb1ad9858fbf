//! Requests: one of several endpoints, a token, and the judgement of failures.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dunlin_cluster::meta::MetaError;
use serde::{Serialize, de::DeserializeOwned};
use ureq::{
    Agent, Body,
    http::Response,
    unversioned::{
        resolver::DefaultResolver,
        transport::{Connector, TcpConnector},
    },
};

use crate::{
    Options,
    json::{Authenticate, GatewayError, Token},
    tls::TlsConnector,
};

/// Bytes of an answer at most. A cluster of a thousand nodes has a megabyte of records.
pub(crate) const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Bytes of an error's text at most.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// etcd has not done it, and will not.
    NotDone(MetaError),
    /// etcd may have done it, or may do it later.
    Unknown(String),
}

/// The codes of gRPC that are treated differently.
mod code {
    /// The code of an error that names none: a proxy's.
    pub(super) const NONE: u32 = 0;
    pub(super) const CANCELLED: u32 = 1;
    pub(super) const UNKNOWN: u32 = 2;
    pub(super) const INVALID_ARGUMENT: u32 = 3;
    pub(super) const DEADLINE_EXCEEDED: u32 = 4;
    pub(super) const NOT_FOUND: u32 = 5;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(super) const ABORTED: u32 = 10;
    pub(super) const INTERNAL: u32 = 13;
    pub(super) const UNAVAILABLE: u32 = 14;
    pub(super) const DATA_LOSS: u32 = 15;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

#[derive(Debug, Default)]
struct State {
    /// The endpoint that answered last.
    endpoint: usize,
    token: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    agent: Agent,
    options: Arc<Options>,
    state: Arc<Mutex<State>>,
}

impl Gateway {
    pub(crate) fn new(options: Options) -> Result<Self, String> {
        if options.endpoints.is_empty() {
            return Err("etcd has no endpoint".to_owned());
        }
        let timeout = Some(Duration::from_millis(options.timeout_ms.max(1)));
        let config = Agent::config_builder()
            // The body of an error says more than its status.
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent("dunlin")
            .timeout_resolve(timeout)
            .timeout_connect(timeout)
            .timeout_send_request(timeout)
            .timeout_send_body(timeout)
            .timeout_recv_response(timeout)
            .build();
        let agent = match options.endpoints.iter().any(|endpoint| endpoint.starts_with("https:")) {
            false => Agent::new_with_config(config),
            true => {
                let connector = TcpConnector::default().chain(TlsConnector::new(&options.tls)?);
                Agent::with_parts(config, connector, DefaultResolver::default())
            }
        };
        Ok(Self { agent, options: Arc::new(options), state: Arc::default() })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call that does no harm when it is done twice.
    pub(crate) fn read<A: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<A, MetaError> {
        // Twice round: the first attempt may meet a connection that etcd has closed since.
        let mut last = MetaError::Unavailable("no endpoint".to_owned());
        for _ in 0..2 * self.options.endpoints.len() {
            match self.write(path, request) {
                Ok(answer) => return Ok(answer),
                Err(Failure::NotDone(error)) => return Err(error),
                Err(Failure::Unknown(why)) => {
                    last = MetaError::Unavailable(why);
                }
            }
        }
        Err(last)
    }

    fn next_endpoint(&self) {
        let mut state = self.state();
        state.endpoint = (state.endpoint + 1) % self.options.endpoints.len();
    }

    /// Makes a call that is done once at most. An endpoint that cannot have received the request gives way to the next.
    pub(crate) fn write<A: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<A, Failure> {
        let body =
            self.call(path, request, Some(Duration::from_millis(self.options.timeout_ms.max(1))), None)?;
        let answer = body.into_with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let answer = answer.map_err(|error| Failure::Unknown(error.to_string()))?;
        // The call was done, but its result is unknown: the outcome has to be read back.
        serde_json::from_slice(&answer)
            .map_err(|error| Failure::Unknown(format!("the answer of etcd: {error}")))
    }

    /// Sends a request; returns the body of a good answer. `body_time` limits reading it, `read_time` each piece of it.
    pub(crate) fn call(
        &self,
        path: &str,
        request: &impl Serialize,
        body_time: Option<Duration>,
        read_time: Option<Duration>,
    ) -> Result<Body, Failure> {
        let request = serde_json::to_vec(request).expect("requests have text for keys");
        let (mut last, mut is_fresh) = (String::new(), false);
        let mut attempts = self.options.endpoints.len();
        while attempts > 0 {
            let (endpoint, token) = {
                let state = self.state();
                (self.options.endpoints[state.endpoint].clone(), state.token.clone())
            };
            let token = match (&self.options.user, token) {
                (None, _) => None,
                (Some(_), Some(token)) => Some(token),
                (Some(user), None) => {
                    is_fresh = true;
                    match self.authenticate(&endpoint, user) {
                        Ok(token) => Some(token),
                        Err(Failure::NotDone(error)) => return Err(Failure::NotDone(error)),
                        // The request itself has not left.
                        Err(Failure::Unknown(why)) => {
                            (last, attempts) = (why, attempts - 1);
                            self.next_endpoint();
                            continue;
                        }
                    }
                }
            };
            let sent =
                self.send(&format!("{endpoint}{path}"), &request, token.as_deref(), body_time, read_time);
            match sent {
                Ok(response) if response.status() == 200 => return Ok(response.into_body()),
                Ok(response) => {
                    let error = read_error(response);
                    if is_about_token(&error) && !is_fresh && self.options.user.is_some() {
                        // etcd has refused it; tokens end after some minutes.
                        self.state().token = None;
                        continue;
                    }
                    let failure = judge(error);
                    if matches!(failure, Failure::Unknown(_)) {
                        self.next_endpoint();
                    }
                    return Err(failure);
                }
                Err(error) if is_unsent(&error) => {
                    last = format!("{endpoint}: {error}");
                    attempts -= 1;
                    self.next_endpoint();
                }
                Err(error) => {
                    self.next_endpoint();
                    return Err(Failure::Unknown(format!("{endpoint}: {error}")));
                }
            }
        }
        Err(Failure::NotDone(MetaError::Unavailable(last)))
    }

    fn send(
        &self,
        url: &str,
        request: &[u8],
        token: Option<&str>,
        body_time: Option<Duration>,
        read_time: Option<Duration>,
    ) -> Result<Response<Body>, ureq::Error> {
        let mut builder = self.agent.post(url).header("content-type", "application/json");
        if let Some(token) = token {
            builder = builder.header("authorization", token);
        }
        builder.config().timeout_recv_body(body_time).timeout_per_read(read_time).build().send(request)
    }

    fn authenticate(&self, endpoint: &str, (name, password): &(String, String)) -> Result<String, Failure> {
        let request = serde_json::to_vec(&Authenticate { name, password }).expect("text");
        let time = Some(Duration::from_millis(self.options.timeout_ms.max(1)));
        let response = self
            .send(&format!("{endpoint}/v3/auth/authenticate"), &request, None, time, None)
            .map_err(|error| Failure::Unknown(format!("{endpoint}: {error}")))?;
        if response.status() != 200 {
            return Err(match judge(read_error(response)) {
                Failure::NotDone(MetaError::Refused(why)) => Failure::NotDone(MetaError::Denied(why)),
                other => other,
            });
        }
        let answer = response.into_body().into_with_config().limit(ERROR_BYTES_MAX).read_to_vec();
        let answer = answer.map_err(|error| Failure::Unknown(error.to_string()))?;
        let Token { token } =
            serde_json::from_slice(&answer).map_err(|error| Failure::Unknown(error.to_string()))?;
        self.state().token = Some(token.clone());
        Ok(token)
    }
}

/// Whether the request cannot have reached an etcd.
fn is_unsent(error: &ureq::Error) -> bool {
    use ureq::{Error, Timeout};
    match error {
        Error::HostNotFound | Error::ConnectionFailed | Error::BadUri(_) => true,
        Error::Timeout(Timeout::Resolve | Timeout::Connect) => true,
        Error::Io(error) => {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            // Only the making of a connection ends so.
            matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable
            ) || inner.is_some_and(is_bad_certificate)
                // The standard library has no stable kind for it.
                || error.to_string().starts_with("failed to lookup address information")
        }
        _ => false,
    }
}

/// The handshake comes before the request. Later alerts of TLS look different.
fn is_bad_certificate(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(_))
}

fn read_error(response: Response<Body>) -> GatewayError {
    let status = response.status();
    let text =
        response.into_body().into_with_config().limit(ERROR_BYTES_MAX).read_to_vec().unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_else(|_| GatewayError {
        // A proxy's page, say. The request may or may not have come through.
        code: code::UNKNOWN,
        message: format!("HTTP status {status}"),
    })
}

fn is_about_token(error: &GatewayError) -> bool {
    error.code == code::UNAUTHENTICATED || error.message.contains("revision of auth store is old")
}

fn judge(error: GatewayError) -> Failure {
    let why = error.message;
    Failure::NotDone(match error.code {
        // gRPC itself does not let it in.
        code::RESOURCE_EXHAUSTED if why.contains("larger than max") => MetaError::Refused(why),
        // "request timed out" and "leader changed" come when the request is already on its way through etcd. "database space
        // exceeded" is what the transaction is answered, too, that has filled the space and is applied (`quotaApplierV3`).
        code::NONE
        | code::CANCELLED
        | code::UNKNOWN
        | code::DEADLINE_EXCEEDED
        | code::RESOURCE_EXHAUSTED
        | code::ABORTED
        | code::INTERNAL
        | code::UNAVAILABLE
        | code::DATA_LOSS => return Failure::Unknown(why),
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => MetaError::Denied(why),
        code::INVALID_ARGUMENT
            if why.contains("user name is empty") || why.contains("authentication failed") =>
        {
            MetaError::Denied(why)
        }
        code::NOT_FOUND if why.contains("lease") => MetaError::NoLease,
        _ => MetaError::Refused(why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the codes of gRPC, as etcd 3.4 to 3.6 and the gateway in front of it use them.
    #[test]
    fn judge_says_not_done_only_of_errors_before_applying() {
        let is_unknown = |code, message: &str| {
            matches!(judge(GatewayError { code, message: message.to_owned() }), Failure::Unknown(_))
        };
        for (code, message) in [
            (0, "upstream timed out"),
            (1, "context canceled"),
            (2, "HTTP status 502"),
            (4, "context deadline exceeded"),
            (8, "etcdserver: mvcc: database space exceeded"),
            (10, "aborted"),
            (13, "transport is closing"),
            (14, "etcdserver: request timed out"),
            (15, "etcdserver: corrupt cluster"),
        ] {
            assert!(is_unknown(code, message), "{code}: {message}");
        }
        for (code, message) in [
            (3, "etcdserver: duplicate key given in txn request"),
            (5, "etcdserver: requested lease not found"),
            (7, "etcdserver: permission denied"),
            (8, "grpc: received message larger than max (4000018 vs. 2097152)"),
            (9, "etcdserver: authentication is not enabled"),
            (11, "etcdserver: mvcc: required revision has been compacted"),
            (16, "etcdserver: invalid auth token"),
        ] {
            assert!(!is_unknown(code, message), "{code}: {message}");
        }
    }
}
