//! Clients that need not say who they are: their certificate, or the process at the other end of a Unix socket, does.

use dunlin_acl::{Context, Reason, User};
use dunlin_net::{Identity, PeerIds};
use std::sync::Arc;

use super::Executor;
use crate::{config::CertificateUser, session::Session};

impl Executor {
    /// Lets a client in as the user that the peer's end of its connection stands for, if there is one: at the beginning,
    /// and again after RESET, which forgets any other login.
    pub(crate) fn identify(&mut self, session: &mut Session) {
        let certificate = session.client.is_tls.then(|| session.client.stream()?.peer_identity()).flatten();
        if let Some(identity) = certificate {
            self.identify_certificate(session, &identity);
        } else if let Some(peer) = session.client.peer
            && !self.config.config().unixsocket_user.is_empty()
        {
            self.identify_peer(session, peer);
        }
    }

    /// Lets a client in as the user that its certificate names, if one is enabled (`tls-auth-clients-user`).
    pub(super) fn identify_certificate(&mut self, session: &mut Session, identity: &Identity) {
        self.refresh_config();
        let names: Vec<&[u8]> = match self.config.config().tls_auth_clients_user {
            CertificateUser::Off => return,
            CertificateUser::CommonName => identity.common_name.iter().map(Vec::as_slice).collect(),
            CertificateUser::Uri => identity.uris.iter().map(Vec::as_slice).collect(),
        };
        if let Some(user) = names.iter().find_map(|name| self.enabled(name)) {
            self.let_in(session, user);
            return self.audit_success(session, "certificate");
        }
        let name = names.first().copied().unwrap_or_default();
        self.note_denied(session, Reason::Certificate, Context::TopLevel, b"TLS certificate", name);
    }

    /// Lets a client in as the user that `unixsocket-user` gives to its process.
    fn identify_peer(&mut self, session: &mut Session, peer: PeerIds) {
        let of_peer = |id: u32, is_group: bool| if is_group { id == peer.group } else { id == peer.user };
        let users = &self.config.config().unixsocket_user;
        let Some(found) = users.iter().find(|user| of_peer(user.id, user.is_group)) else { return };
        match self.enabled(&found.user) {
            Some(user) => {
                self.let_in(session, user);
                self.audit_success(session, "unix socket");
            }
            None => {
                let name = found.user.clone();
                self.note_denied(
                    session,
                    Reason::Authentication,
                    Context::TopLevel,
                    b"unixsocket-user",
                    &name,
                );
            }
        }
    }

    fn enabled(&self, name: &[u8]) -> Option<Arc<User>> {
        self.shared.access.find(name).filter(|user| user.is_on())
    }

    fn let_in(&self, session: &mut Session, user: Arc<User>) {
        session.client.names().user = user.name().to_vec();
        (session.user, session.authenticated) = (user, true);
        session.refresh_conditions(self.shared.access.is_open());
    }
}
