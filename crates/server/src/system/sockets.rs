//! Options of sockets that not every system has.

use std::{io, time::Duration};

use socket2::Socket;

/// Ends a connection with an error if, for this long, the other machine acknowledges none of the bytes sent, or has no
/// room for them. A process that stands still is neither until its socket's buffer is full. Elsewhere than on Linux a
/// connection lasts as long as the system lets it.
pub(crate) fn limit_silence(socket: &Socket, time: Duration) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return socket.set_tcp_user_timeout(Some(time));
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (socket, time);
        Ok(())
    }
}
