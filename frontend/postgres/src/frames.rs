//! A socket that refuses messages that are too long or malformed.
//!
//! A message begins with its length, and the codec would wait for up to a gigabyte of it and accept any content. This
//! wrapper inspects messages as their bytes pass, before the codec sees them ([`crate::check`]). A fault that ends the
//! connection becomes an error of the read; one that only refuses the message is kept in `faults` until the message is
//! handled.
//!
//! Invariant: either `missing` bytes of the current message have not passed yet, or its first bytes are in `head`.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use partita_frontend::Prepared;
use pgwire::tokio::server::PgWireMessageServerCodec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::codec::Framed;

use crate::check::{self, Fault};
use crate::shared::Shared;
use crate::stream::Stream;

/// The messages of a connection.
pub(crate) type Socket = Framed<Frames<Stream<Shared>>, PgWireMessageServerCodec<Arc<Prepared>>>;

/// Maximum length of a message of a session in bytes.
pub(crate) const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// Maximum length of a message before the session in bytes: a startup message may have 10,000.
const SIGN_IN_BYTES_MAX: u32 = 16 << 10;
/// Bytes of a length and a code.
const STARTUP_HEAD: usize = 8;
/// Bytes of a type and a length.
const HEAD: usize = 5;
/// The type of messages with rows of COPY, which are not buffered for inspection.
const COPY_DATA: u8 = b'd';
/// Buffer size that is kept from one fragmented message to the next, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The startup message or a cancel request, with its code.
    Before(u32),
    /// A message of a session, with its type.
    Of(u8),
}

/// A socket that inspects messages.
pub(crate) struct Frames<S> {
    inner: S,
    head: Vec<u8>,
    missing: usize,
    /// False until the startup message has passed, which has no type.
    started: bool,
    /// Maximum length of a message in bytes.
    bytes_max: u32,
    /// The kind of the current message.
    at_hand: Kind,
    /// The bytes of the current message that have passed, unless it came in one piece.
    body: Vec<u8>,
    /// Number of messages that have passed since the startup.
    passed: u64,
    /// Messages to refuse, by number; the first message after the startup is 0.
    faults: VecDeque<(u64, Fault)>,
    /// Bytes that have passed.
    bytes: u64,
}

impl<S> Frames<S> {
    /// Inspects everything that is read from a socket, from its first byte on.
    pub(crate) fn new(inner: S) -> Self {
        Self {
            inner,
            head: Vec::with_capacity(STARTUP_HEAD),
            missing: 0,
            started: false,
            bytes_max: SIGN_IN_BYTES_MAX,
            at_hand: Kind::Before(0),
            body: Vec::new(),
            passed: 0,
            faults: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Allows the messages of a session to be longer than those before it. To be called when the client is
    /// authenticated.
    pub(crate) fn begin_session(&mut self) {
        self.bytes_max = MESSAGE_BYTES_MAX;
    }

    /// The reason to refuse a message, by its number since the startup; to be called for each message in turn.
    pub(crate) fn fault_of(&mut self, number: u64) -> Option<Fault> {
        let is_its = self.faults.front().is_some_and(|(faulty, _)| *faulty == number);
        if is_its { self.faults.pop_front().map(|(_, fault)| fault) } else { None }
    }

    /// The number of bytes passed, if the last of them is inside of a message.
    pub(crate) fn midway(&self) -> Option<u64> {
        (self.missing > 0 || !self.head.is_empty()).then_some(self.bytes)
    }

    fn pass(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
        while !bytes.is_empty() {
            if self.missing > 0 {
                let (passing, rest) = bytes.split_at(self.missing.min(bytes.len()));
                bytes = rest;
                self.missing -= passing.len();
                self.pass_body(passing)?;
                continue;
            }
            let head_length = if self.started { HEAD } else { STARTUP_HEAD };
            let take = (head_length - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.head.len() == head_length {
                self.missing = self.begin()?;
                self.head.clear();
                if self.missing == 0 {
                    self.end(&[])?;
                }
            }
        }
        Ok(())
    }

    /// The number of bytes after the head.
    fn begin(&mut self) -> io::Result<usize> {
        let number = |offset: usize| {
            let bytes = [
                self.head[offset],
                self.head[offset + 1],
                self.head[offset + 2],
                self.head[offset + 3],
            ];
            u32::from_be_bytes(bytes)
        };
        let (length, counted) = if self.started {
            self.at_hand = Kind::Of(self.head[0]);
            (number(1), 4)
        } else {
            let code = number(4);
            self.at_hand = Kind::Before(code);
            self.started = true;
            (number(0), 8)
        };
        let maximum = self.bytes_max;
        if !(counted..=maximum).contains(&length) {
            return Err(violation(format!(
                "invalid message length {length}, the maximum is {maximum}"
            )));
        }
        Ok((length - counted) as usize)
    }

    /// Takes bytes of the current message; `missing` bytes are still to come.
    fn pass_body(&mut self, passing: &[u8]) -> io::Result<()> {
        if self.missing == 0 && self.body.is_empty() {
            return self.end(passing);
        }
        if self.at_hand != Kind::Of(COPY_DATA) {
            self.body.extend_from_slice(passing);
        }
        if self.missing > 0 {
            return Ok(());
        }
        let mut body = std::mem::take(&mut self.body);
        let ended = self.end(&body);
        if body.capacity() <= KEPT_BYTES_MAX {
            body.clear();
            self.body = body;
        }
        ended
    }

    /// Checks the current message, which has passed completely.
    fn end(&mut self, body: &[u8]) -> io::Result<()> {
        let checked = match self.at_hand {
            Kind::Before(code) => check::check_startup(code, body),
            Kind::Of(kind) => {
                self.passed += 1;
                check::check(kind, body)
            }
        };
        match checked {
            Ok(()) => Ok(()),
            Err(fault) if fault.is_fatal => Err(violation(fault.message)),
            Err(fault) => {
                self.faults.push_back((self.passed.saturating_sub(1), fault));
                Ok(())
            }
        }
    }
}

fn violation(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

impl<S: AsyncRead + Unpin> AsyncRead for Frames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = read {
            self.pass(&buf.filled()[start..])?;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn startup() -> Vec<u8> {
        let mut bytes = 17_u32.to_be_bytes().to_vec();
        bytes.extend(196_608_u32.to_be_bytes());
        bytes.extend(b"user\0me\0\0");
        bytes
    }

    #[test]
    fn messages_pass_however_they_are_cut() {
        let mut bytes = startup();
        for body in [0_u32, 1, 300] {
            bytes.push(b'd');
            bytes.extend((body + 4).to_be_bytes());
            bytes.extend(vec![7; body as usize]);
        }
        bytes.extend(b"Q\0\0\0\x0eSELECT 1;\0");
        bytes.extend(b"Q\0\0\0\x06\xff\0");
        for cut in 1..bytes.len() {
            let mut frames = Frames::new(());
            for part in bytes.chunks(cut) {
                frames.pass(part).unwrap();
            }
            assert_eq!((frames.missing, frames.head.len()), (0, 0));
            assert_eq!((frames.passed, frames.midway()), (5, None));
            // The last one is refused when its turn comes, not before.
            assert!((0..4).all(|number| frames.fault_of(number).is_none()));
            assert_eq!(frames.fault_of(4).unwrap().sqlstate, "22021");
            assert_eq!(frames.fault_of(4), None);
        }
    }

    #[test]
    fn a_malformed_message_is_an_error_before_its_last_byte_is_handed_on() {
        let mut frames = Frames::new(());
        frames.pass(&startup()).unwrap();
        frames.pass(b"B\0\0\0\x08\0\0").unwrap();
        assert!(frames.midway().is_some());
        let error = frames.pass(b"\0\x01").unwrap_err();
        assert_eq!(error.to_string(), "insufficient data left in message");
    }

    #[test]
    fn a_long_message_needs_a_session() {
        let long = [b"d".as_slice(), &(SIGN_IN_BYTES_MAX + 1).to_be_bytes()].concat();
        let mut frames = Frames::new(());
        frames.pass(&startup()).unwrap();
        assert!(frames.pass(&long).is_err());
        let mut frames = Frames::new(());
        frames.pass(&startup()).unwrap();
        frames.begin_session();
        frames.pass(&long).unwrap();
        let request = [0, 0, 0, 8, 4, 210, 22, 47];
        assert!(Frames::new(()).pass(&request).is_err(), "encryption is negotiated before");
    }

    #[test]
    fn a_message_that_is_too_long_or_too_short_is_refused_at_its_head() {
        for length in [0, 3, MESSAGE_BYTES_MAX + 1, u32::MAX] {
            let mut frames = Frames::new(());
            frames.pass(&startup()).unwrap();
            frames.begin_session();
            let mut head = vec![b'd'];
            head.extend(length.to_be_bytes());
            assert!(frames.pass(&head).is_err(), "{length}");
        }
    }
}
