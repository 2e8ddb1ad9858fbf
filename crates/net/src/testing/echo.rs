//! A service that says each line back, with the name of the user whose rights it had.
//!
//! ```text
//! text            USER text
//! login           USER login, and USER is `member` from now on
//! ```

use std::sync::Arc;
use std::time::Duration;

use dunlin_resp::ReplyBuffer;

use crate::{Client, Identity, Next, Now, Served, Service};

/// The line that makes a stranger the user `member`.
pub const LOGIN: &[u8] = b"login";

/// The service; it keeps nothing.
#[derive(Debug, Default)]
pub struct Echo;

/// Who a client is: nobody knows a stranger.
#[derive(Debug)]
pub struct EchoSession {
    user: Option<Vec<u8>>,
}

impl Service for Echo {
    type Session = EchoSession;
    type Message = ();

    fn open(&mut self, _: &Arc<Client>) -> EchoSession {
        EchoSession { user: None }
    }

    fn identify(&mut self, session: &mut EchoSession, identity: &Identity) {
        session.user.clone_from(&identity.common_name);
    }

    fn is_stranger(&self, session: &EchoSession) -> bool {
        session.user.is_none()
    }

    fn tick(&mut self, _: Now) {}

    fn serve(
        &mut self,
        session: &mut EchoSession,
        input: &[u8],
        reply: &mut ReplyBuffer,
        _: Option<&mut crate::EventLoop<Self>>,
    ) -> Served {
        let consumed = input.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in input[..consumed].split_inclusive(|byte| *byte == b'\n') {
            reply.raw(session.user.as_deref().unwrap_or(b"stranger"));
            reply.raw(b" ");
            reply.raw(line);
            if line.strip_suffix(b"\n") == Some(LOGIN) {
                session.user = Some(b"member".to_vec());
            }
        }
        Served { consumed, next: Next::Read, wanted: 0, detached: 0 }
    }

    fn resume(&mut self, _: &mut EchoSession, _: &mut ReplyBuffer) -> Next {
        Next::Read
    }

    fn deliver(&mut self, _: &mut EchoSession, (): (), _: &mut ReplyBuffer) -> Option<Next> {
        None
    }

    fn receive(&mut self, (): ()) {}

    fn close(&mut self, _: EchoSession) {}

    fn background(&mut self, _: Now) -> Duration {
        Duration::from_secs(60)
    }
}
