//! The way in: reading from the socket, into a lent buffer, the connection's own or the block of a long argument.
//!
//! A turn chooses the buffer once. [`Connection::serve`] gets the very bytes that were read there as a slice, so that no
//! later condition (a handshake ends, a user logs in) can make it look into another buffer.

use std::io;

use super::lent::SHARED_BYTES;
use super::{Connection, STRANGER_INPUT_BYTES_MAX, Scratch, TurnEnd};
use crate::{EventLoop, Limits, Service, input::Input, stream::Received};

/// Input received for a connection that is not served.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Requests are decoded with 31-bit offsets, so no setting may let input grow beyond.
const INPUT_BYTES_MAX: u64 = (1 << 31) - (1 << 24);
/// Bytes of a long argument that are read at once: others wait for as long as the system takes to copy them.
const BLOCK_READ_BYTES_MAX: usize = 256 * 1024;

impl<T> Connection<T> {
    /// Reads once if that makes sense, and serves what is there.
    pub(super) fn receive<S: Service<Session = T>>(
        &mut self,
        scratch: &mut Scratch<'_, S>,
        event_loop: &mut EventLoop<S>,
        serving: bool,
    ) -> io::Result<TurnEnd> {
        if !self.wants_input(event_loop, serving) {
            if serving && self.backlog {
                return self.serve(scratch.service, &mut scratch.reply, event_loop, None);
            }
            return Ok(TurnEnd::Wait);
        }
        if let Some(arrived) = self.receive_block(scratch.service)? {
            self.note_arrived(event_loop, arrived);
            return Ok(if self.exceeds_query_buffer(event_loop) { TurnEnd::Close } else { TurnEnd::Wait });
        }
        // Short beginnings of requests go back to a lent buffer, which takes larger reads.
        if serving && self.input.len() + self.wanted <= SHARED_BYTES / 2 {
            let Scratch { service, buffers, reply } = scratch;
            let service = &mut **service;
            let lent = buffers.lend(self.stranger, self.input.held());
            self.input = Input::default();
            let arrived = self.read_into(lent)?;
            self.after_read(service, event_loop, arrived);
            return self.serve(service, reply, event_loop, Some(lent));
        }
        let mut input = std::mem::take(&mut self.input);
        let arrived = self.read_into(input.with_room(self.wanted));
        self.input = input;
        let arrived = arrived?;
        self.after_read(scratch.service, event_loop, arrived);
        if serving && arrived > 0 {
            return self.serve(scratch.service, &mut scratch.reply, event_loop, None);
        }
        self.backlog |= arrived > 0;
        Ok(TurnEnd::Wait)
    }

    /// Notes a read of input, which may have ended the handshake.
    #[inline]
    fn after_read<S: Service<Session = T>>(
        &mut self,
        service: &mut S,
        event_loop: &mut EventLoop<S>,
        arrived: usize,
    ) {
        self.note_arrived(event_loop, arrived);
        if self.is_handshaking {
            self.go_on_with_handshake(service, event_loop);
        }
    }

    /// Reads once into the block of the argument that is arriving, if there is one.
    #[inline]
    fn receive_block<S: Service<Session = T>>(&mut self, service: &mut S) -> io::Result<Option<usize>> {
        let Some(block) = service.arriving(&mut self.session) else { return Ok(None) };
        let mut received = Received::default();
        let arrived = block.fill_with(BLOCK_READ_BYTES_MAX, |room| {
            received = self.stream.receive_into(room)?;
            Ok::<_, io::Error>(received.bytes)
        })?;
        self.note_received(received);
        service.has_arrived(&mut self.session);
        self.detached_bytes = service.detached_bytes(&self.session);
        Ok(Some(arrived))
    }

    fn note_arrived<S: Service<Session = T>>(&mut self, event_loop: &EventLoop<S>, arrived: usize) {
        if arrived > 0 {
            self.client.last_interaction_ms.set(event_loop.now.steady_ms);
            self.client.input_bytes_total.add(arrived as u64);
            event_loop.traffic().input_bytes.add(arrived as u64);
        }
        event_loop.traffic().reads.add(1);
    }

    /// Whether the request at hand is longer than may be; then the connection is to be closed.
    #[inline]
    pub(super) fn exceeds_query_buffer<S: Service<Session = T>>(&self, event_loop: &EventLoop<S>) -> bool {
        // Queued commands are requests that are not complete before EXEC.
        let held = self.input.len() + self.detached_bytes + self.client.queued_bytes.get() as usize;
        if held <= query_buffer_max(&event_loop.limits) || self.backlog {
            return false;
        }
        tracing::warn!(
            "closing {}: its request of over {held} bytes exceeds client-query-buffer-limit",
            self.client
        );
        event_loop.traffic().query_buffer_disconnections.add(1);
        true
    }

    pub(super) fn wants_input<S: Service<Session = T>>(
        &self,
        event_loop: &EventLoop<S>,
        serving: bool,
    ) -> bool {
        if !self.readable || self.ended || self.closing {
            return false;
        }
        if serving {
            !self.backlog
        } else {
            let held_max = if self.stranger { STRANGER_INPUT_BYTES_MAX } else { HELD_BYTES_MAX };
            self.input.len() + self.detached_bytes < held_max.min(query_buffer_max(&event_loop.limits))
        }
    }

    /// Reads once into the spare capacity of `buffer`.
    fn read_into(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let received = self.stream.receive(buffer)?;
        self.note_received(received);
        Ok(received.bytes)
    }

    /// Notes the outcome of a read.
    #[inline]
    fn note_received(&mut self, received: Received) {
        let Received { has_more, is_drained, has_ended, .. } = received;
        self.ended |= has_ended;
        self.readable = (has_more || self.hung_up) && !is_drained && !has_ended;
    }

    /// Looks whether the handshake of TLS is over, and hands the peer's identity to the service.
    fn go_on_with_handshake<S: Service<Session = T>>(
        &mut self,
        service: &mut S,
        event_loop: &mut EventLoop<S>,
    ) {
        event_loop.handshakes.note_step();
        if self.stream.is_handshaking() {
            return;
        }
        self.is_handshaking = false;
        event_loop.handshakes.note_end();
        event_loop.traffic().handshakes.add(1);
        if self.stream.has_resumed() {
            event_loop.traffic().handshakes_resumed.add(1);
        }
        if let Some(identity) = self.stream.peer_identity() {
            service.identify(&mut self.session, &identity);
            self.stranger = service.is_stranger(&self.session);
        }
    }
}

fn query_buffer_max(limits: &Limits) -> usize {
    limits.query_buffer_max.min(INPUT_BYTES_MAX) as usize
}
