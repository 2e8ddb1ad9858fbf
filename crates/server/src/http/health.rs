//! `GET /health`, for load balancers and orchestrators.
//!
//! ```text
//! 200 ok                      commands are served
//! 503 the data set is …       it is being loaded: clients are answered LOADING
//! 503 the append-only …       the disk fails: writes are refused
//! 503 the cluster is down …   slots are not served, and `cluster-require-full-coverage` stops the others
//! ```
//!
//! The answer comes at once however busy the workers are. The page has no secret, so there is no password, and the name
//! of the host is not checked.

use hyper::StatusCode;

use crate::shared::Shared;

/// Whether commands are served as they should be, and the reason why not.
pub(super) fn check(shared: &Shared) -> (StatusCode, String) {
    match complaint(shared) {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(complaint) => (StatusCode::SERVICE_UNAVAILABLE, complaint + "\n"),
    }
}

fn complaint(shared: &Shared) -> Option<String> {
    if let Some(progress) = shared.loading.progress() {
        return Some(format!("the data set is being loaded: {:.0}%", progress.percent()));
    }
    if shared.durability.is_failing() {
        let reason = shared.durability.status().write_error.clone().unwrap_or_default();
        return Some(format!("the append-only file cannot be written: {reason}"));
    }
    let demands_all = shared.config.current().cluster_require_full_coverage;
    let topology = shared.cluster.topology().filter(|topology| !topology.is_ok(demands_all))?;
    Some(format!("the cluster is down: {} slots are not served", topology.uncovered()))
}
